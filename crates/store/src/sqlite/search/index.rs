//! The index and how it comes to have the entries: a chunk at a time, made by whoever searches and written in between.

use std::collections::BTreeSet;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{Slice, searched_text};
use rusqlite::{Connection, OptionalExtension, Result, Transaction, params};

use super::terms::{Terms, rules};
use crate::sqlite::columns::{entry_id, integer};
use crate::sqlite::read;

/// After how many terms no more entries are brought into the index at once.
const CHUNK_TERMS: usize = 10_000;
/// A row of the index has the number of its tape in its upper bits and the id of the entry in these lower ones. So the rows
/// of a tape stand together, in the order of its entries.
const ID_BITS: u32 = 40;
/// The greatest id that fits. Entries beyond it are not in the index.
pub(super) const GREATEST_ID: EntryId = EntryId((1 << ID_BITS) - 1);

/// The place of a tape in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    number: i64,
    /// The newest entry that is there.
    pub(super) up_to: EntryId,
}

impl Place {
    /// What the number of a row is greater by than the id of its entry.
    fn offset(self) -> i64 {
        self.number << ID_BITS
    }

    /// What an expression finds among the entries of a slice that are here.
    pub(super) fn candidates<'a>(self, slice: &Slice, expression: &'a str) -> Candidates<'a> {
        let after = slice.after.unwrap_or_default().min(GREATEST_ID);
        let last = slice.up_to.map_or(self.up_to, |id| id.min(self.up_to));
        let row = |id: EntryId| self.offset() + integer(id.0);
        Candidates { offset: self.offset(), first: row(after.next()), last: row(last), expression }
    }
}

/// Rows of the index that may be meant by a search.
#[derive(Debug)]
pub(in crate::sqlite) struct Candidates<'a> {
    /// What the number of a row is greater by than the id of its entry.
    pub(in crate::sqlite) offset: i64,
    /// The first row to look at.
    pub(in crate::sqlite) first: i64,
    /// The last one.
    pub(in crate::sqlite) last: i64,
    /// What must be in them.
    pub(in crate::sqlite) expression: &'a str,
}

/// Lets all reads see one moment of the database while this lives. A connection may be in a transaction already, and one
/// within it would be refused.
pub(super) fn one_moment(connection: &Connection) -> Result<Option<Transaction<'_>>> {
    if connection.is_autocommit() { connection.unchecked_transaction().map(Some) } else { Ok(None) }
}

/// The place of a tape, if any of it is in the index.
pub(super) fn place(connection: &Connection, tape: &TapeName) -> Result<Option<Place>> {
    if !has_our_rules(connection)? {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached("SELECT number, up_to FROM search_tapes WHERE tape = ?1")?;
    statement.query_row([tape.as_str()], |row| Ok(Place { number: row.get(0)?, up_to: entry_id(row, 1)? })).optional()
}

fn has_our_rules(connection: &Connection) -> Result<bool> {
    connection.prepare_cached("SELECT 1 FROM search_rules WHERE rules = ?1")?.exists([rules()])
}

/// Calls `seen` with every word of the index.
pub(super) fn each_word(connection: &Connection, mut seen: impl FnMut(&str)) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT word FROM search_words")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        seen(row.get_ref(0)?.as_str()?);
    }
    Ok(())
}

/// Entries of a tape on their way into the index.
#[derive(Debug)]
pub(in crate::sqlite) struct Chunk {
    tape: TapeName,
    /// The newest entry that must be there already.
    after: EntryId,
    up_to: EntryId,
    rows: Vec<(EntryId, String)>,
    words: BTreeSet<String>,
}

/// The next entries of a tape that are not in the index, at most so many; nothing when all are there up to this one.
pub(super) fn next_chunk(
    connection: &Connection,
    tape: &TapeName,
    up_to: EntryId,
    most: usize,
) -> Result<Option<Chunk>> {
    let _moment = one_moment(connection)?;
    let after = place(connection, tape)?.map(|place| place.up_to).unwrap_or_default();
    let (mut rows, mut words, mut terms) = (Vec::new(), BTreeSet::new(), 0);
    let slice = Slice { up_to: Some(up_to), limit: Some(most), ..Slice::after(after) };
    read::each_of(connection, tape, &slice, |entry| {
        let found = Terms::of(&searched_text(&entry));
        terms += found.len();
        rows.push((entry.id, found.joined()));
        words.extend(found.words);
        terms < CHUNK_TERMS
    })?;
    let last = rows.last().map(|(id, _)| *id);
    Ok(last.map(|up_to| Chunk { tape: tape.clone(), after, up_to, rows, words }))
}

/// Writes a chunk, inside a transaction. One that does not follow what is there is left alone: somebody was faster.
pub(in crate::sqlite) fn write(connection: &Connection, chunk: &Chunk) -> Result<()> {
    if !has_our_rules(connection)? {
        clear(connection)?;
        connection.execute("INSERT INTO search_rules (rules) VALUES (?1)", [rules()])?;
    }
    let known = place(connection, &chunk.tape)?;
    if known.map(|place| place.up_to).unwrap_or_default() != chunk.after {
        return Ok(());
    }
    let sql = "INSERT INTO search_tapes (tape, up_to) VALUES (?1, ?2) \
               ON CONFLICT (tape) DO UPDATE SET up_to = ?2 RETURNING number, up_to";
    let values = params![chunk.tape.as_str(), integer(chunk.up_to.0)];
    let number = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    let place = Place { number, up_to: chunk.up_to };
    let mut put_row = connection.prepare_cached("INSERT INTO search_index (rowid, terms) VALUES (?1, ?2)")?;
    for (id, terms) in &chunk.rows {
        put_row.execute(params![place.offset() + integer(id.0), terms])?;
    }
    let mut put_word =
        connection.prepare_cached("INSERT INTO search_words (word) VALUES (?1) ON CONFLICT DO NOTHING")?;
    for word in &chunk.words {
        put_word.execute([word])?;
    }
    Ok(())
}

/// Empties the index, inside a transaction.
pub(in crate::sqlite) fn clear(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "INSERT INTO search_index (search_index) VALUES ('delete-all'); \
         DELETE FROM search_words; DELETE FROM search_tapes; DELETE FROM search_rules;",
    )
}
