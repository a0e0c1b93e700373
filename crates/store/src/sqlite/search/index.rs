//! The index and how it comes to have the entries: a chunk at a time, made by whoever searches and written in between.

use std::collections::BTreeSet;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{TapeSlice, searchable_text};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use super::terms::{EntryTerms, tokenizer_version};
use crate::sqlite::columns::{entry_id_column, to_sql_integer};
use crate::sqlite::queries;

/// After how many terms no more entries are brought into the index at once.
const MAX_CHUNK_TERMS: usize = 10_000;
/// A row of the index has the number of its tape in its upper bits and the id of the entry in these lower ones. So the rows
/// of a tape stand together, in the order of its entries.
const INDEX_ENTRY_ID_BITS: u32 = 40;
/// The greatest id that fits. Entries beyond it are not in the index.
pub(super) const MAX_INDEXED_ID: EntryId = EntryId((1 << INDEX_ENTRY_ID_BITS) - 1);

/// The place of a tape in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedTape {
    tape_number: i64,
    /// The newest entry that is there.
    pub(super) indexed_up_to: EntryId,
}

impl IndexedTape {
    /// What the number of a row is greater by than the id of its entry.
    fn rowid_offset(self) -> i64 {
        self.tape_number << INDEX_ENTRY_ID_BITS
    }

    /// What an expression finds among the entries of a slice that are here.
    pub(super) fn candidates<'a>(self, slice: &TapeSlice, expression: &'a str) -> CandidateRows<'a> {
        let after = slice.after.unwrap_or_default().min(MAX_INDEXED_ID);
        let last = slice.up_to.map_or(self.indexed_up_to, |id| id.min(self.indexed_up_to));
        let row = |id: EntryId| self.rowid_offset() + to_sql_integer(id.0);
        CandidateRows {
            rowid_offset: self.rowid_offset(),
            first_rowid: row(after.next()),
            last_rowid: row(last),
            expression,
        }
    }
}

/// Rows of the index that may be meant by a search.
#[derive(Debug)]
pub(in crate::sqlite) struct CandidateRows<'a> {
    /// What the number of a row is greater by than the id of its entry.
    pub(in crate::sqlite) rowid_offset: i64,
    /// The first row to look at.
    pub(in crate::sqlite) first_rowid: i64,
    /// The last one.
    pub(in crate::sqlite) last_rowid: i64,
    /// What must be in them.
    pub(in crate::sqlite) expression: &'a str,
}

/// Lets all reads see one moment of the database while this lives. A connection may be in a transaction already, and one
/// within it would be refused.
pub(super) fn begin_read_snapshot(connection: &Connection) -> Result<Option<Transaction<'_>>> {
    if connection.is_autocommit() { connection.unchecked_transaction().map(Some) } else { Ok(None) }
}

/// The place of a tape, if any of it is in the index.
pub(super) fn find_indexed_tape(connection: &Connection, tape: &TapeName) -> Result<Option<IndexedTape>> {
    if !has_current_rules(connection)? {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached("SELECT number, up_to FROM search_tapes WHERE tape = ?1")?;
    statement
        .query_row([tape.as_str()], |row| {
            Ok(IndexedTape { tape_number: row.get(0)?, indexed_up_to: entry_id_column(row, 1)? })
        })
        .optional()
}

fn has_current_rules(connection: &Connection) -> Result<bool> {
    connection.prepare_cached("SELECT 1 FROM search_rules WHERE rules = ?1")?.exists([tokenizer_version()])
}

/// Calls `seen` with every word of the index.
pub(super) fn for_each_word(connection: &Connection, mut seen: impl FnMut(&str)) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT word FROM search_words")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        seen(row.get_ref(0)?.as_str()?);
    }
    Ok(())
}

/// Entries of a tape on their way into the index.
#[derive(Debug)]
pub(in crate::sqlite) struct IndexChunk {
    tape: TapeName,
    /// The newest entry that must be there already.
    after: EntryId,
    up_to: EntryId,
    rows: Vec<(EntryId, String)>,
    words: BTreeSet<String>,
}

/// The next entries of a tape that are not in the index, at most so many; nothing when all are there up to this one.
pub(super) fn read_next_chunk(
    connection: &Connection,
    tape: &TapeName,
    up_to: EntryId,
    most: usize,
) -> Result<Option<IndexChunk>> {
    let _moment = begin_read_snapshot(connection)?;
    let after = find_indexed_tape(connection, tape)?.map(|place| place.indexed_up_to).unwrap_or_default();
    let (mut rows, mut words, mut terms) = (Vec::new(), BTreeSet::new(), 0);
    let slice = TapeSlice { up_to: Some(up_to), limit: Some(most), ..TapeSlice::after(after) };
    queries::for_each_in_slice(connection, tape, &slice, |entry| {
        let found = EntryTerms::from_text(&searchable_text(&entry));
        terms += found.len();
        rows.push((entry.id, found.to_index_text()));
        words.extend(found.words);
        terms < MAX_CHUNK_TERMS
    })?;
    let last = rows.last().map(|(id, _)| *id);
    Ok(last.map(|up_to| IndexChunk { tape: tape.clone(), after, up_to, rows, words }))
}

/// Writes a chunk, inside a transaction. One that does not follow what is there is left alone: somebody was faster.
pub(in crate::sqlite) fn write_chunk(connection: &Connection, chunk: &IndexChunk) -> Result<()> {
    if !has_current_rules(connection)? {
        clear_index(connection)?;
        connection.execute("INSERT INTO search_rules (rules) VALUES (?1)", [tokenizer_version()])?;
    }
    let known = find_indexed_tape(connection, &chunk.tape)?;
    if known.map(|place| place.indexed_up_to).unwrap_or_default() != chunk.after {
        return Ok(());
    }
    let sql = "INSERT INTO search_tapes (tape, up_to) VALUES (?1, ?2) \
               ON CONFLICT (tape) DO UPDATE SET up_to = ?2 RETURNING number, up_to";
    let values = params![chunk.tape.as_str(), to_sql_integer(chunk.up_to.0)];
    let number = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    let place = IndexedTape { tape_number: number, indexed_up_to: chunk.up_to };
    let mut put_row = connection.prepare_cached("INSERT INTO search_index (rowid, terms) VALUES (?1, ?2)")?;
    for (id, terms) in &chunk.rows {
        put_row.execute(params![place.rowid_offset() + to_sql_integer(id.0), terms])?;
    }
    let mut put_word =
        connection.prepare_cached("INSERT INTO search_words (word) VALUES (?1) ON CONFLICT DO NOTHING")?;
    for word in &chunk.words {
        put_word.execute([word])?;
    }
    Ok(())
}

/// Empties the index, inside a transaction.
pub(in crate::sqlite) fn clear_index(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "INSERT INTO search_index (search_index) VALUES ('delete-all'); \
         DELETE FROM search_words; DELETE FROM search_tapes; DELETE FROM search_rules;",
    )
}
