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
use capstan_tape::{Entry, EntryOrder, StoreError, TapeSlice, TextSearch};
use rusqlite::{Connection, Result, params};
use tokio::sync::Semaphore;

use super::columns::to_sql_integer;
use super::queries;
use super::reader_pool::ReaderPool;
use super::writer::{IndexUpdate, WriterThread};
use expression::MatchExpression;
use index::{IndexedTape, MAX_INDEXED_ID};

pub(super) use index::{CandidateRows, IndexChunk, clear_index, write_chunk};

/// Up to how many entries are read rather than looked up: that is faster than to go through the words of the index.
const SCAN_THRESHOLD_ENTRIES: usize = 1000;

/// Which part of them is read in any case, before the index is asked.
const PRESCAN_DIVISOR: usize = 5;
/// How many entries are brought into the index at once: a batch that waits behind them must not wait for long.
const INDEX_CHUNK_ENTRIES: usize = 500;

/// What searches need to know.
pub(super) struct SearchEngine {
    /// Who brings the index up to date. Two at once would do everything twice.
    index_update_permit: Arc<Semaphore>,
    scan_threshold: usize,
    /// How many entries are brought into the index at once.
    chunk_entries: usize,
}

impl Default for SearchEngine {
    fn default() -> Self {
        Self {
            index_update_permit: Arc::new(Semaphore::new(1)),
            scan_threshold: SCAN_THRESHOLD_ENTRIES,
            chunk_entries: INDEX_CHUNK_ENTRIES,
        }
    }
}

/// Whether an answer can be given, or up to where the index must go first.
enum SearchAttempt {
    Complete(Vec<Entry>),
    IndexBehind(EntryId),
}

impl SearchEngine {
    pub(super) async fn search(
        &self,
        readers: &ReaderPool,
        writer: Option<&WriterThread>,
        wanted: EntrySearchRequest,
    ) -> Result<Vec<Entry>, StoreError> {
        let (wanted, few) = (Arc::new(wanted), self.scan_threshold);
        let first = Arc::clone(&wanted);
        let looked = match readers.read(move |connection| first.try_search(connection, few)).await {
            Ok(SearchAttempt::Complete(found)) => return Ok(found),
            Ok(SearchAttempt::IndexBehind(up_to)) => {
                if let Some(writer) = writer
                    && let Err(error) = self.update_index(readers, writer, &wanted.tape, up_to).await
                {
                    tracing::warn!(%error, "the search index is behind: what it lacks is read");
                }
                let again = Arc::clone(&wanted);
                readers.read(move |connection| again.find_with_index(connection)).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = looked else { return looked };
        // If entries are damaged this fails too. If not, it is the index, and all of it can be had from the entries.
        let found = readers.read(move |connection| wanted.scan(connection, &wanted.slice)).await?;
        tracing::warn!(%error, "the search index is of no use: entries are read instead");
        if matches!(error, StoreError::Corrupt { .. })
            && let Some(writer) = writer
            && let Err(error) = writer.update_index(IndexUpdate::Clear).await
        {
            tracing::warn!(%error, "the damaged search index could not be emptied");
        }
        Ok(found)
    }

    /// Brings a tape's part of the index up to an entry.
    async fn update_index(
        &self,
        readers: &ReaderPool,
        writer: &WriterThread,
        tape: &TapeName,
        up_to: EntryId,
    ) -> Result<(), StoreError> {
        let _turn = self
            .index_update_permit
            .acquire()
            .await
            .map_err(|error| StoreError::io("bring the search index up to date", error))?;
        loop {
            let (tape, most) = (tape.clone(), self.chunk_entries);
            let chunk = readers.read(move |connection| index::read_next_chunk(connection, &tape, up_to, most)).await?;
            let Some(chunk) = chunk else { return Ok(()) };
            writer.update_index(IndexUpdate::Add(chunk)).await?;
        }
    }
}

/// What is searched for, and where.
pub(super) struct EntrySearchRequest {
    pub(super) tape: TapeName,
    pub(super) slice: TapeSlice,
    pub(super) search: TextSearch,
}

impl EntrySearchRequest {
    /// Answers if little has to be read for it, be it all there is or what the index lacks.
    fn try_search(&self, connection: &Connection, few: usize) -> Result<SearchAttempt> {
        let _moment = index::begin_read_snapshot(connection)?;
        if self.search.terms().is_empty() {
            return Ok(SearchAttempt::Complete(Vec::new()));
        }
        let up_to = self.slice.up_to.unwrap_or(EntryId(u64::MAX));
        let after = self.slice.after.unwrap_or_default();
        if self.has_at_most(connection, after, up_to, few)? {
            return self.scan(connection, &self.slice).map(SearchAttempt::Complete);
        }
        if let Some(found) = self.prescan(connection, few / PRESCAN_DIVISOR)? {
            return Ok(SearchAttempt::Complete(found));
        }
        let indexed =
            index::find_indexed_tape(connection, &self.tape)?.map(|place| place.indexed_up_to).unwrap_or_default();
        let up_to = up_to.min(MAX_INDEXED_ID);
        if self.has_at_most(connection, after.max(indexed), up_to, few)? {
            return self.find_with_index(connection).map(SearchAttempt::Complete);
        }
        let head = queries::tape(connection, &self.tape)?.map(|record| record.head).unwrap_or_default();
        Ok(SearchAttempt::IndexBehind(up_to.min(head)))
    }

    /// Looks at the first entries: a word that is everywhere is found there as often as it is asked for.
    fn prescan(&self, connection: &Connection, count: usize) -> Result<Option<Vec<Entry>>> {
        let slice = &self.slice;
        let Some(limit) = slice.limit else { return Ok(None) };
        let (after, up_to) = (slice.after.unwrap_or_default(), slice.up_to.unwrap_or(EntryId(u64::MAX)));
        let order = if slice.order == EntryOrder::OldestFirst { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT min(id), max(id) FROM \
             (SELECT id FROM entries WHERE tape = ?1 AND id > ?2 AND id <= ?3 ORDER BY id {order} LIMIT ?4)"
        );
        let values =
            params![self.tape.as_str(), to_sql_integer(after.0), to_sql_integer(up_to.0), to_sql_integer(count as u64)];
        let ends: (Option<i64>, Option<i64>) =
            connection.prepare_cached(&sql)?.query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(first), Some(last)) = ends else { return Ok(None) };
        let [before_first, last] = [first - 1, last].map(|id| Some(EntryId(id.cast_unsigned())));
        let found = self.scan(connection, &TapeSlice { after: before_first, up_to: last, ..slice.clone() })?;
        Ok(Some(found).filter(|found| found.len() >= limit))
    }

    fn has_at_most(&self, connection: &Connection, after: EntryId, up_to: EntryId, few: usize) -> Result<bool> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM entries WHERE tape = ?1 AND id > ?2 AND id <= ?3 LIMIT ?4)";
        let values = params![
            self.tape.as_str(),
            to_sql_integer(after.0),
            to_sql_integer(up_to.0),
            to_sql_integer(few as u64 + 1)
        ];
        let found: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(found <= to_sql_integer(few as u64))
    }

    /// What is found by the index, and by reading what it lacks; of one moment of the database.
    fn find_with_index(&self, connection: &Connection) -> Result<Vec<Entry>> {
        let _moment = index::begin_read_snapshot(connection)?;
        let Some(place) = index::find_indexed_tape(connection, &self.tape)? else {
            return self.scan(connection, &self.slice);
        };
        let mut expression = MatchExpression::for_search(&self.search);
        index::for_each_word(connection, |word| expression.offer_word(word))?;
        let Some(expression) = expression.build() else { return self.scan(connection, &self.slice) };
        let slice = &self.slice;
        let lacking =
            TapeSlice { after: Some(slice.after.unwrap_or_default().max(place.indexed_up_to)), ..slice.clone() };
        let rest = |slice: TapeSlice, found: &[Entry]| TapeSlice {
            limit: slice.limit.map(|limit| limit - found.len()),
            ..slice
        };
        let mut found;
        match slice.order {
            EntryOrder::OldestFirst => {
                found = self.search_indexed(connection, place, &expression, slice)?;
                found.extend(self.scan(connection, &rest(lacking, &found))?);
            }
            EntryOrder::NewestFirst => {
                found = self.scan(connection, &lacking)?;
                found.extend(self.search_indexed(connection, place, &expression, &rest(slice.clone(), &found))?);
            }
        }
        Ok(found)
    }

    fn search_indexed(
        &self,
        connection: &Connection,
        place: IndexedTape,
        expression: &str,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let meant = place.candidates(slice, expression);
        queries::for_each_candidate(connection, &self.tape, slice, &meant, self.match_collector(slice, &mut found))?;
        Ok(found)
    }

    /// Without an index.
    fn scan(&self, connection: &Connection, slice: &TapeSlice) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        // The limit is one of what is found, not of what is read.
        let all = TapeSlice { limit: None, ..slice.clone() };
        queries::for_each_in_slice(connection, &self.tape, &all, self.match_collector(slice, &mut found))?;
        Ok(found)
    }

    /// Takes what the search finds, and says whether more is wanted.
    fn match_collector(&self, slice: &TapeSlice, found: &mut Vec<Entry>) -> impl FnMut(Entry) -> bool {
        let limit = slice.limit.unwrap_or(usize::MAX);
        move |entry| {
            if found.len() < limit && self.search.matches(&entry) {
                found.push(entry);
            }
            found.len() < limit
        }
    }
}
