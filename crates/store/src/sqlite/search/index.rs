//! Index of search terms. A search prepares chunks of entries, which the writer adds to the index.

use std::collections::BTreeSet;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{TapeSlice, searchable_text};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use super::terms::{EntryTerms, tokenizer_version};
use crate::sqlite::columns::{entry_id_column, to_sql_integer};
use crate::sqlite::queries;

/// Number of terms after which a chunk is closed.
const MAX_CHUNK_TERMS: usize = 10_000;
/// Number of lower bits of a row id of the index that hold the id of the entry; the upper bits hold the number of its
/// tape. The rows of a tape are thus adjacent and in the order of its entries.
const INDEX_ENTRY_ID_BITS: u32 = 40;
/// Greatest entry id that fits into a row id. Later entries are not indexed.
pub(super) const MAX_INDEXED_ID: EntryId = EntryId((1 << INDEX_ENTRY_ID_BITS) - 1);

/// Tape in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedTape {
    tape_number: i64,
    /// Newest indexed entry.
    pub(super) indexed_up_to: EntryId,
}

impl IndexedTape {
    /// Difference between the row ids of the tape and the ids of its entries.
    fn rowid_offset(self) -> i64 {
        self.tape_number << INDEX_ENTRY_ID_BITS
    }

    /// Rows for the indexed entries of a slice that match an expression.
    pub(super) fn candidates<'a>(self, slice: &TapeSlice, expression: &'a str) -> CandidateRows<'a> {
        let after = slice.after.unwrap_or_default().min(MAX_INDEXED_ID);
        let last = slice.up_to.map_or(self.indexed_up_to, |id| id.min(self.indexed_up_to));
        let rowid = |id: EntryId| self.rowid_offset() + to_sql_integer(id.0);
        CandidateRows {
            rowid_offset: self.rowid_offset(),
            first_rowid: rowid(after.next()),
            last_rowid: rowid(last),
            expression,
        }
    }
}

/// Rows of the index that may match a search.
#[derive(Debug)]
pub(in crate::sqlite) struct CandidateRows<'a> {
    /// Difference between the row ids of the tape and the ids of its entries.
    pub(in crate::sqlite) rowid_offset: i64,
    /// First row of the range.
    pub(in crate::sqlite) first_rowid: i64,
    /// Last row of the range.
    pub(in crate::sqlite) last_rowid: i64,
    /// FTS5 expression that the rows match.
    pub(in crate::sqlite) expression: &'a str,
}

/// Begins a read transaction, so that all reads see one snapshot while it lives. `None` if the connection is in a
/// transaction already, because transactions cannot be nested.
pub(super) fn begin_read_snapshot(connection: &Connection) -> Result<Option<Transaction<'_>>> {
    if connection.is_autocommit() { connection.unchecked_transaction().map(Some) } else { Ok(None) }
}

/// Finds a tape in the index. `None` if none of its entries are indexed, or by other rules.
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

/// Calls `visit` with every word of the index.
pub(super) fn for_each_word(connection: &Connection, mut visit: impl FnMut(&str)) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT word FROM search_words")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        visit(row.get_ref(0)?.as_str()?);
    }
    Ok(())
}

/// Entries of a tape that are to be added to the index.
#[derive(Debug)]
pub(in crate::sqlite) struct IndexChunk {
    tape: TapeName,
    /// Newest entry that must be indexed already.
    after: EntryId,
    up_to: EntryId,
    rows: Vec<(EntryId, String)>,
    words: BTreeSet<String>,
}

/// Reads the next entries of a tape that are not indexed, at most `limit`; `None` if all up to `up_to` are.
pub(super) fn read_next_chunk(
    connection: &Connection,
    tape: &TapeName,
    up_to: EntryId,
    limit: usize,
) -> Result<Option<IndexChunk>> {
    let _snapshot = begin_read_snapshot(connection)?;
    let after = find_indexed_tape(connection, tape)?.map(|indexed| indexed.indexed_up_to).unwrap_or_default();
    let (mut rows, mut words, mut term_count) = (Vec::new(), BTreeSet::new(), 0);
    let slice = TapeSlice { up_to: Some(up_to), limit: Some(limit), ..TapeSlice::after(after) };
    queries::for_each_in_slice(connection, tape, &slice, |entry| {
        let terms = EntryTerms::from_text(&searchable_text(&entry));
        term_count += terms.len();
        rows.push((entry.id, terms.to_index_text()));
        words.extend(terms.words);
        term_count < MAX_CHUNK_TERMS
    })?;
    let last = rows.last().map(|(id, _)| *id);
    Ok(last.map(|up_to| IndexChunk { tape: tape.clone(), after, up_to, rows, words }))
}

/// Writes a chunk, inside a transaction. A chunk that does not follow the indexed entries is ignored: another process
/// has updated the index in the meantime.
pub(in crate::sqlite) fn write_chunk(connection: &Connection, chunk: &IndexChunk) -> Result<()> {
    if !has_current_rules(connection)? {
        clear_index(connection)?;
        connection.execute("INSERT INTO search_rules (rules) VALUES (?1)", [tokenizer_version()])?;
    }
    let indexed = find_indexed_tape(connection, &chunk.tape)?;
    if indexed.map(|indexed| indexed.indexed_up_to).unwrap_or_default() != chunk.after {
        return Ok(());
    }
    let sql = "INSERT INTO search_tapes (tape, up_to) VALUES (?1, ?2) \
               ON CONFLICT (tape) DO UPDATE SET up_to = ?2 RETURNING number, up_to";
    let values = params![chunk.tape.as_str(), to_sql_integer(chunk.up_to.0)];
    let tape_number = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    let indexed = IndexedTape { tape_number, indexed_up_to: chunk.up_to };
    let mut insert_row = connection.prepare_cached("INSERT INTO search_index (rowid, terms) VALUES (?1, ?2)")?;
    for (id, terms) in &chunk.rows {
        insert_row.execute(params![indexed.rowid_offset() + to_sql_integer(id.0), terms])?;
    }
    let mut insert_word =
        connection.prepare_cached("INSERT INTO search_words (word) VALUES (?1) ON CONFLICT DO NOTHING")?;
    for word in &chunk.words {
        insert_word.execute([word])?;
    }
    Ok(())
}

/// Clears the index, inside a transaction.
pub(in crate::sqlite) fn clear_index(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "INSERT INTO search_index (search_index) VALUES ('delete-all'); \
         DELETE FROM search_words; DELETE FROM search_tapes; DELETE FROM search_rules;",
    )
}
