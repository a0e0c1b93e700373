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
    /// Maximum number of effects of events whose whole record was gone at some time, which was reported: each may be
    /// served again once for every such time. Other events have one effect.
    pub allowed_effects: BTreeMap<String, usize>,
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

    /// Accepts that the state went back, after a report: the client sends events without an outcome again. `effects` are
    /// those made until now.
    pub fn accept_setback(&mut self, recorded: &RecordedEvents, effects: &str) {
        let counts = count_effects(effects);
        for id in &self.sent {
            if !recorded.settled.contains(id) {
                self.outcomes.remove(id);
                self.without_outcome.insert(id.clone());
            }
            if !recorded.accepted.contains(id) {
                let made = counts.get(id.as_str()).copied().unwrap_or_default();
                self.allowed_effects.insert(id.clone(), made + 1);
            }
        }
    }

    /// Checks the effects, and returns the number of events with more than one.
    pub fn check_effects(&mut self, effects: &str) -> usize {
        let counts = count_effects(effects);
        for (id, count) in &counts {
            if *count > self.allowed_effects.get(*id).copied().unwrap_or(1) {
                self.violations.push(format!("the effect of event {id} happened {count} times"));
            }
        }
        counts.values().filter(|count| **count > 1).count()
    }
}

/// Number of effects of each event.
fn count_effects(effects: &str) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in effects.lines() {
        *counts.entry(id).or_default() += 1;
    }
    counts
}
