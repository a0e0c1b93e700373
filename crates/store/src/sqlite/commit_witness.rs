//! Rows of the last commits, by which a state that went back is recognised.

use capstan_protocol::{EntryId, EventKey, TapeName};
use capstan_tape::{Batch, CommitReceipt, Fact, FactOutput};
use rusqlite::{Connection, OptionalExtension as _, Result};

use super::columns::{event_key_columns, to_sql_integer};
use super::high_water_mark::count_entries;

/// Rows that stay as long as the database does: the newest of each kind that this process has committed.
#[derive(Debug, Default)]
pub(super) struct CommitWitness {
    /// Number of entries at an earlier time, and of those that this process has appended since.
    entries: u64,
    accepted: Option<EventKey>,
    settled: Option<EventKey>,
    head: Option<(TapeName, EntryId)>,
}

impl CommitWitness {
    /// Reads the number of entries of a database that was just opened.
    pub(super) fn read(connection: &Connection) -> Result<Self> {
        Ok(Self { entries: count_entries(connection)?, ..Self::default() })
    }

    /// Number of entries that the database had at least.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Records a later number of entries.
    pub(super) fn record_entries(&mut self, entries: u64) {
        self.entries = self.entries.max(entries);
    }

    /// Records a committed batch. Returns true if it added rows that stay; other batches may have changed nothing.
    pub(super) fn record_commit(&mut self, batch: &Batch, receipt: &CommitReceipt) -> bool {
        let (mut accepted, mut settled, mut head) = (None, None, None);
        for (fact, output) in batch.facts.iter().zip(&receipt.outputs) {
            match (fact, output) {
                (Fact::AcceptEvent { key, .. }, _) => accepted = Some(key),
                (Fact::SettleEvent { key, .. }, _) => settled = Some(key),
                (Fact::AppendEntry { tape, .. }, FactOutput::Entry(id)) => {
                    self.entries += 1;
                    head = Some((tape, *id));
                }
                _ => {}
            }
        }
        let has_added_rows = accepted.is_some() || settled.is_some() || head.is_some();
        self.accepted = accepted.cloned().or_else(|| self.accepted.take());
        self.settled = settled.cloned().or_else(|| self.settled.take());
        self.head = head.map(|(tape, id)| (tape.clone(), id)).or_else(|| self.head.take());
        has_added_rows
    }

    /// Returns true if the database still has the recorded rows.
    pub(super) fn is_present(&self, connection: &Connection) -> Result<bool> {
        let has_event = |table: &str, key: &Option<EventKey>| match key {
            None => Ok(true),
            Some(key) => {
                let sql = format!("SELECT count(*) FROM {table} WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3");
                connection.query_row(&sql, event_key_columns(key), |row| row.get::<_, bool>(0))
            }
        };
        let has_head = match &self.head {
            None => true,
            Some((tape, head)) => {
                let sql = "SELECT head >= ?2 FROM tapes WHERE name = ?1";
                let found = connection.query_row(sql, (tape.as_str(), to_sql_integer(head.0)), |row| row.get(0));
                found.optional()?.unwrap_or(false)
            }
        };
        Ok(has_head
            && has_event("inbox", &self.accepted)?
            && has_event("outcomes", &self.settled)?
            && count_entries(connection)? >= self.entries)
    }
}
