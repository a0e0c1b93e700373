//! Full-text search: an index selects candidates, and [`TextSearch::matches`] decides for each of them.
//!
//! # Index updates
//!
//! Batches do not update the index. A search first updates it in chunks, between which batches are written. Entries
//! that the index still lacks are scanned, so that the result is complete even if the database cannot be written.
//!
//! # Strategy
//!
//! 1. A slice with few entries is scanned without the index.
//! 2. Otherwise the first entries are scanned, because a frequent word reaches the limit there.
//! 3. Otherwise the index is updated and queried, and the rest is scanned.
//!
//! If the index is damaged, all entries are scanned and the index is cleared.

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

/// Maximum number of entries that are scanned rather than searched by index: iterating over the words of the index
/// takes longer.
const SCAN_THRESHOLD_ENTRIES: usize = 1000;
/// Fraction of the threshold that is scanned before the index is used.
const PRESCAN_DIVISOR: usize = 5;
/// Maximum number of entries in an index update, which bounds the delay of batches queued behind it.
const INDEX_CHUNK_ENTRIES: usize = 500;

/// Runs searches and updates the index for them.
pub(super) struct SearchEngine {
    /// Permit for updating the index. Two updates at once would do the same work.
    index_update_permit: Arc<Semaphore>,
    scan_threshold: usize,
    /// Maximum number of entries in an index update.
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

/// Result of a search before the index is updated.
enum SearchAttempt {
    /// Matching entries.
    Complete(Vec<Entry>),
    /// The index must first be updated up to this entry.
    IndexBehind(EntryId),
}

impl SearchEngine {
    pub(super) async fn search(
        &self,
        readers: &ReaderPool,
        writer: Option<&WriterThread>,
        request: EntrySearchRequest,
    ) -> Result<Vec<Entry>, StoreError> {
        let (request, scan_threshold) = (Arc::new(request), self.scan_threshold);
        let attempt = Arc::clone(&request);
        let result = match readers.read(move |connection| attempt.try_search(connection, scan_threshold)).await {
            Ok(SearchAttempt::Complete(found)) => return Ok(found),
            Ok(SearchAttempt::IndexBehind(up_to)) => {
                if let Some(writer) = writer
                    && let Err(error) = self.update_index(readers, writer, &request.tape, up_to).await
                {
                    tracing::warn!(%error, "could not update the search index; scanning the entries it lacks");
                }
                let indexed = Arc::clone(&request);
                readers.read(move |connection| indexed.find_with_index(connection)).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = result else { return result };
        // The scan fails too if entries are damaged. Otherwise the index is, which can be rebuilt from the entries.
        let found = readers.read(move |connection| request.scan(connection, &request.slice)).await?;
        tracing::warn!(%error, "could not use the search index; scanned the entries instead");
        if matches!(error, StoreError::Corrupt { .. })
            && let Some(writer) = writer
            && let Err(error) = writer.update_index(IndexUpdate::Clear).await
        {
            tracing::warn!(%error, "could not clear the damaged search index");
        }
        Ok(found)
    }

    /// Updates the index for the entries of a tape up to `up_to`.
    async fn update_index(
        &self,
        readers: &ReaderPool,
        writer: &WriterThread,
        tape: &TapeName,
        up_to: EntryId,
    ) -> Result<(), StoreError> {
        let _permit = self
            .index_update_permit
            .acquire()
            .await
            .map_err(|error| StoreError::io("update the search index", error))?;
        loop {
            let (tape, limit) = (tape.clone(), self.chunk_entries);
            let chunk = readers.read(move |connection| index::read_next_chunk(connection, &tape, up_to, limit)).await?;
            let Some(chunk) = chunk else { return Ok(()) };
            writer.update_index(IndexUpdate::Add(chunk)).await?;
        }
    }
}

/// Search in a slice of a tape.
pub(super) struct EntrySearchRequest {
    pub(super) tape: TapeName,
    pub(super) slice: TapeSlice,
    pub(super) search: TextSearch,
}

impl EntrySearchRequest {
    /// Searches if at most `scan_threshold` entries must be scanned: all of the slice, or those that the index lacks.
    fn try_search(&self, connection: &Connection, scan_threshold: usize) -> Result<SearchAttempt> {
        let _snapshot = index::begin_read_snapshot(connection)?;
        if self.search.terms().is_empty() {
            return Ok(SearchAttempt::Complete(Vec::new()));
        }
        let up_to = self.slice.up_to.unwrap_or(EntryId(u64::MAX));
        let after = self.slice.after.unwrap_or_default();
        if self.has_at_most(connection, after, up_to, scan_threshold)? {
            return self.scan(connection, &self.slice).map(SearchAttempt::Complete);
        }
        if let Some(found) = self.prescan(connection, scan_threshold / PRESCAN_DIVISOR)? {
            return Ok(SearchAttempt::Complete(found));
        }
        let indexed =
            index::find_indexed_tape(connection, &self.tape)?.map(|tape| tape.indexed_up_to).unwrap_or_default();
        let up_to = up_to.min(MAX_INDEXED_ID);
        if self.has_at_most(connection, after.max(indexed), up_to, scan_threshold)? {
            return self.find_with_index(connection).map(SearchAttempt::Complete);
        }
        let head = queries::tape(connection, &self.tape)?.map(|record| record.head).unwrap_or_default();
        Ok(SearchAttempt::IndexBehind(up_to.min(head)))
    }

    /// Scans the first `count` entries and returns the matches if they reach the limit, as with a frequent word.
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

    fn has_at_most(&self, connection: &Connection, after: EntryId, up_to: EntryId, count: usize) -> Result<bool> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM entries WHERE tape = ?1 AND id > ?2 AND id <= ?3 LIMIT ?4)";
        let values = params![
            self.tape.as_str(),
            to_sql_integer(after.0),
            to_sql_integer(up_to.0),
            to_sql_integer(count as u64 + 1)
        ];
        let found: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(found <= to_sql_integer(count as u64))
    }

    /// Finds matches with the index, and scans the entries that it lacks, in one snapshot of the database.
    fn find_with_index(&self, connection: &Connection) -> Result<Vec<Entry>> {
        let _snapshot = index::begin_read_snapshot(connection)?;
        let Some(indexed) = index::find_indexed_tape(connection, &self.tape)? else {
            return self.scan(connection, &self.slice);
        };
        let mut expression = MatchExpression::for_search(&self.search);
        index::for_each_word(connection, |word| expression.offer_word(word))?;
        let Some(expression) = expression.build() else { return self.scan(connection, &self.slice) };
        let slice = &self.slice;
        let unindexed =
            TapeSlice { after: Some(slice.after.unwrap_or_default().max(indexed.indexed_up_to)), ..slice.clone() };
        let reduce_limit = |slice: TapeSlice, found: &[Entry]| TapeSlice {
            limit: slice.limit.map(|limit| limit - found.len()),
            ..slice
        };
        let mut found;
        match slice.order {
            EntryOrder::OldestFirst => {
                found = self.search_indexed(connection, indexed, &expression, slice)?;
                found.extend(self.scan(connection, &reduce_limit(unindexed, &found))?);
            }
            EntryOrder::NewestFirst => {
                found = self.scan(connection, &unindexed)?;
                let older = reduce_limit(slice.clone(), &found);
                found.extend(self.search_indexed(connection, indexed, &expression, &older)?);
            }
        }
        Ok(found)
    }

    fn search_indexed(
        &self,
        connection: &Connection,
        indexed: IndexedTape,
        expression: &str,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let candidates = indexed.candidates(slice, expression);
        let collect = self.match_collector(slice, &mut found);
        queries::for_each_candidate(connection, &self.tape, slice, &candidates, collect)?;
        Ok(found)
    }

    /// Finds matches without the index.
    fn scan(&self, connection: &Connection, slice: &TapeSlice) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        // The limit applies to the matches, not to the entries that are read.
        let all = TapeSlice { limit: None, ..slice.clone() };
        queries::for_each_in_slice(connection, &self.tape, &all, self.match_collector(slice, &mut found))?;
        Ok(found)
    }

    /// Collects matches and returns true until the limit is reached.
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
