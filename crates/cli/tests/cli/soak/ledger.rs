//! Knowledge of the client outside the home: events sent, outcomes received, effects made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Accepted and settled events of a database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedEvents {
    pub accepted: BTreeSet<String>,
    pub settled: BTreeSet<String>,
}

impl RecordedEvents {
    /// Reads a database that no process has open; `None` if it is missing or cannot be read.
    pub fn read(database: &Path) -> Option<Self> {
        // A connection that can write would checkpoint the log when it is closed.
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        let ids = |sql: &str| -> rusqlite::Result<BTreeSet<String>> {
            connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        let accepted = ids("SELECT event_id FROM inbox").ok()?;
        Some(Self { accepted, settled: ids("SELECT event_id FROM outcomes").ok()? })
    }

    /// Events that an earlier state had and this one lacks.
    pub fn lost_since(&self, earlier: &Self) -> BTreeSet<String> {
        let accepted = earlier.accepted.difference(&self.accepted);
        accepted.chain(earlier.settled.difference(&self.settled)).cloned().collect()
    }
}

/// Record of the client.
#[derive(Debug, Default)]
pub struct ClientLedger {
    pub sent: BTreeSet<String>,
    /// Outcome that the client received for each event.
    pub outcomes: BTreeMap<String, String>,
    /// Events whose outcome is gone, which was reported.
    pub without_outcome: BTreeSet<String>,
    /// Events whose whole record is gone, which was reported: they may be served again.
    pub without_record: BTreeSet<String>,
    pub violations: Vec<String>,
}

impl ClientLedger {
    /// Records a line of the host. An event has one outcome, unless its record is gone.
    pub fn record_line(&mut self, line: &Value) {
        let (Some(id), Some(outcome)) = (line["id"].as_str(), line["outcome"].as_str()) else { return };
        if let Some(before) = self.outcomes.insert(id.to_owned(), outcome.to_owned())
            && before != outcome
            && !self.without_outcome.contains(id)
        {
            self.violations.push(format!("event {id} ended as {before}, then as {outcome}"));
        }
    }

    /// Events without an outcome, which the client sends again.
    pub fn unanswered(&self) -> Vec<String> {
        self.sent.iter().filter(|id| !self.outcomes.contains_key(*id)).cloned().collect()
    }

    /// Events that the client was told about and the database lacks.
    pub fn missing_in(&self, recorded: &RecordedEvents) -> BTreeSet<String> {
        self.outcomes.keys().filter(|id| !recorded.settled.contains(*id)).cloned().collect()
    }

    /// Accepts that the state went back, after a report: the client sends events without an outcome again.
    pub fn accept_setback(&mut self, recorded: &RecordedEvents) {
        for id in &self.sent {
            if !recorded.settled.contains(id) {
                self.outcomes.remove(id);
                self.without_outcome.insert(id.clone());
            }
            if !recorded.accepted.contains(id) {
                self.without_record.insert(id.clone());
            }
        }
    }

    /// Checks the effects: one for each event at most, unless its record was gone.
    pub fn check_effects(&mut self, effects: &str) -> usize {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for id in effects.lines() {
            *counts.entry(id).or_default() += 1;
        }
        let repeated: Vec<String> =
            counts.iter().filter(|(_, count)| **count > 1).map(|(id, _)| (*id).to_owned()).collect();
        let count = repeated.len();
        for id in repeated {
            if !self.without_record.contains(&id) {
                self.violations.push(format!("the effect of event {id} happened twice"));
            }
        }
        count
    }
}
