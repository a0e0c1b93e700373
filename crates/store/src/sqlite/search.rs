//! Search: an index of full text says which entries may be meant, and the rule of the search decides.
//!
//! The index is no part of what a batch writes. A search first brings it up to date, in chunks between which batches are
//! written; what is still missing is read, so the answer is whole even where nothing can be written.

mod expression;
mod index;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{Entry, Order, Search, Slice, StoreError};
use rusqlite::{Connection, Result, params};
use tokio::sync::Semaphore;

use super::columns::integer;
use super::read;
use super::readers::Readers;
use super::writer::{IndexWork, Writer};
use expression::Expression;
use index::{GREATEST_ID, Place};

pub(super) use index::{Candidates, Chunk, clear, write};

/// Up to how many entries are read rather than looked up: that is faster than to go through the words of the index.
const FEW: usize = 1000;

/// Which part of them is read in any case, before the index is asked.
const GLANCE: usize = 5;
/// How many entries are brought into the index at once: a batch that waits behind them must not wait for long.
const CHUNK: usize = 500;

/// What searches need to know.
pub(super) struct Searches {
    /// Who brings the index up to date. Two at once would do everything twice.
    turn: Arc<Semaphore>,
    few: usize,
    /// How many entries are brought into the index at once.
    chunk: usize,
}

impl Default for Searches {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), few: FEW, chunk: CHUNK }
    }
}

/// Whether an answer can be given, or up to where the index must go first.
enum Looked {
    Found(Vec<Entry>),
    Behind(EntryId),
}

impl Searches {
    pub(super) async fn search(
        &self,
        readers: &Readers,
        writer: Option<&Writer>,
        wanted: Wanted,
    ) -> Result<Vec<Entry>, StoreError> {
        let (wanted, few) = (Arc::new(wanted), self.few);
        let first = Arc::clone(&wanted);
        let looked = match readers.read(move |connection| first.look(connection, few)).await {
            Ok(Looked::Found(found)) => return Ok(found),
            Ok(Looked::Behind(up_to)) => {
                if let Some(writer) = writer
                    && let Err(error) = self.catch_up(readers, writer, &wanted.tape, up_to).await
                {
                    tracing::warn!(%error, "the search index is behind: what it lacks is read");
                }
                let again = Arc::clone(&wanted);
                readers.read(move |connection| again.find(connection)).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = looked else { return looked };
        // If entries are damaged this fails too. If not, it is the index, and all of it can be had from the entries.
        let found = readers.read(move |connection| wanted.read(connection, &wanted.slice)).await?;
        tracing::warn!(%error, "the search index is of no use: entries are read instead");
        if matches!(error, StoreError::Corrupt { .. })
            && let Some(writer) = writer
            && let Err(error) = writer.index(IndexWork::Clear).await
        {
            tracing::warn!(%error, "the damaged search index could not be emptied");
        }
        Ok(found)
    }

    /// Brings a tape's part of the index up to an entry.
    async fn catch_up(
        &self,
        readers: &Readers,
        writer: &Writer,
        tape: &TapeName,
        up_to: EntryId,
    ) -> Result<(), StoreError> {
        let _turn =
            self.turn.acquire().await.map_err(|error| StoreError::io("bring the search index up to date", error))?;
        loop {
            let (tape, most) = (tape.clone(), self.chunk);
            let chunk = readers.read(move |connection| index::next_chunk(connection, &tape, up_to, most)).await?;
            let Some(chunk) = chunk else { return Ok(()) };
            writer.index(IndexWork::Add(chunk)).await?;
        }
    }
}

/// What is searched for, and where.
pub(super) struct Wanted {
    pub(super) tape: TapeName,
    pub(super) slice: Slice,
    pub(super) search: Search,
}

impl Wanted {
    /// Answers if little has to be read for it, be it all there is or what the index lacks.
    fn look(&self, connection: &Connection, few: usize) -> Result<Looked> {
        let _moment = index::one_moment(connection)?;
        if self.search.needles().is_empty() {
            return Ok(Looked::Found(Vec::new()));
        }
        let up_to = self.slice.up_to.unwrap_or(EntryId(u64::MAX));
        let after = self.slice.after.unwrap_or_default();
        if self.are_few(connection, after, up_to, few)? {
            return self.read(connection, &self.slice).map(Looked::Found);
        }
        if let Some(found) = self.glance(connection, few / GLANCE)? {
            return Ok(Looked::Found(found));
        }
        let indexed = index::place(connection, &self.tape)?.map(|place| place.up_to).unwrap_or_default();
        let up_to = up_to.min(GREATEST_ID);
        if self.are_few(connection, after.max(indexed), up_to, few)? {
            return self.find(connection).map(Looked::Found);
        }
        let head = read::tape(connection, &self.tape)?.map(|record| record.head).unwrap_or_default();
        Ok(Looked::Behind(up_to.min(head)))
    }

    /// Looks at the first entries: a word that is everywhere is found there as often as it is asked for.
    fn glance(&self, connection: &Connection, count: usize) -> Result<Option<Vec<Entry>>> {
        let slice = &self.slice;
        let Some(limit) = slice.limit else { return Ok(None) };
        let (after, up_to) = (slice.after.unwrap_or_default(), slice.up_to.unwrap_or(EntryId(u64::MAX)));
        let order = if slice.order == Order::OldestFirst { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT min(id), max(id) FROM \
             (SELECT id FROM entries WHERE tape = ?1 AND id > ?2 AND id <= ?3 ORDER BY id {order} LIMIT ?4)"
        );
        let values = params![self.tape.as_str(), integer(after.0), integer(up_to.0), integer(count as u64)];
        let ends: (Option<i64>, Option<i64>) =
            connection.prepare_cached(&sql)?.query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(first), Some(last)) = ends else { return Ok(None) };
        let [before_first, last] = [first - 1, last].map(|id| Some(EntryId(id.cast_unsigned())));
        let found = self.read(connection, &Slice { after: before_first, up_to: last, ..slice.clone() })?;
        Ok(Some(found).filter(|found| found.len() >= limit))
    }

    fn are_few(&self, connection: &Connection, after: EntryId, up_to: EntryId, few: usize) -> Result<bool> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM entries WHERE tape = ?1 AND id > ?2 AND id <= ?3 LIMIT ?4)";
        let values = params![self.tape.as_str(), integer(after.0), integer(up_to.0), integer(few as u64 + 1)];
        let found: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(found <= integer(few as u64))
    }

    /// What is found by the index, and by reading what it lacks; of one moment of the database.
    fn find(&self, connection: &Connection) -> Result<Vec<Entry>> {
        let _moment = index::one_moment(connection)?;
        let Some(place) = index::place(connection, &self.tape)? else { return self.read(connection, &self.slice) };
        let mut expression = Expression::of(&self.search);
        index::each_word(connection, |word| expression.offer(word))?;
        let Some(expression) = expression.complete() else { return self.read(connection, &self.slice) };
        let slice = &self.slice;
        let lacking = Slice { after: Some(slice.after.unwrap_or_default().max(place.up_to)), ..slice.clone() };
        let rest =
            |slice: Slice, found: &[Entry]| Slice { limit: slice.limit.map(|limit| limit - found.len()), ..slice };
        let mut found;
        match slice.order {
            Order::OldestFirst => {
                found = self.look_up(connection, place, &expression, slice)?;
                found.extend(self.read(connection, &rest(lacking, &found))?);
            }
            Order::NewestFirst => {
                found = self.read(connection, &lacking)?;
                found.extend(self.look_up(connection, place, &expression, &rest(slice.clone(), &found))?);
            }
        }
        Ok(found)
    }

    fn look_up(&self, connection: &Connection, place: Place, expression: &str, slice: &Slice) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let meant = place.candidates(slice, expression);
        read::each_candidate(connection, &self.tape, slice, &meant, self.taker(slice, &mut found))?;
        Ok(found)
    }

    /// Without an index.
    fn read(&self, connection: &Connection, slice: &Slice) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        // The limit is one of what is found, not of what is read.
        let all = Slice { limit: None, ..slice.clone() };
        read::each_of(connection, &self.tape, &all, self.taker(slice, &mut found))?;
        Ok(found)
    }

    /// Takes what the search finds, and says whether more is wanted.
    fn taker(&self, slice: &Slice, found: &mut Vec<Entry>) -> impl FnMut(Entry) -> bool {
        let limit = slice.limit.unwrap_or(usize::MAX);
        move |entry| {
            if found.len() < limit && self.search.finds(&entry) {
                found.push(entry);
            }
            found.len() < limit
        }
    }
}
