//! What a batch brings, as text.
//!
//! The thread that writes is what all sessions wait for, so whoever brings a batch writes down beforehand what of it does
//! not depend on what is found in the database.

use capstan_tape::{Batch, Entry, Fact};
use rusqlite::Result;
use serde_json::Value;

use super::columns::to_json;

/// The texts of a batch, fact by fact.
pub(super) struct Written(Vec<Option<Text>>);

enum Text {
    Entry(EntryText),
    /// Of a record, or of a message.
    One(String),
}

/// The columns of an entry that are JSON.
pub(super) struct EntryText {
    pub(super) payload: String,
    pub(super) meta: String,
    pub(super) extra: String,
}

impl EntryText {
    pub(super) fn of(entry: &Entry) -> Result<Self> {
        Self::new(&entry.payload, &entry.meta, &entry.extra)
    }

    fn new(payload: &Value, meta: &capstan_protocol::Map, extra: &capstan_protocol::Map) -> Result<Self> {
        Ok(Self { payload: to_json(payload)?, meta: to_json(meta)?, extra: to_json(extra)? })
    }
}

impl Written {
    /// What can be written of a batch beforehand. What fails is left: it fails again where that can be told.
    pub(super) fn of(batch: &Batch) -> Self {
        let text = |fact: &Fact| match fact {
            // One that names others of its batch gets their numbers only when they have some.
            Fact::Append { entry, .. } if entry.names.is_empty() => {
                EntryText::new(&entry.payload, &entry.meta, &entry.extra).ok().map(Text::Entry)
            }
            Fact::OpenRun(record) => to_json(record).ok().map(Text::One),
            Fact::Enqueue(outbound) => to_json(&outbound.message).ok().map(Text::One),
            _ => None,
        };
        Self(batch.facts.iter().map(text).collect())
    }

    /// The text of the entry that a fact appends.
    pub(super) fn entry(&self, fact: usize) -> Option<&EntryText> {
        match self.0.get(fact)? {
            Some(Text::Entry(text)) => Some(text),
            _ => None,
        }
    }

    /// The text of the record or the message that a fact brings.
    pub(super) fn one(&self, fact: usize) -> Option<&str> {
        match self.0.get(fact)? {
            Some(Text::One(text)) => Some(text),
            _ => None,
        }
    }
}
