//! What a batch brings, as text.
//!
//! The thread that writes is what all sessions wait for, so whoever brings a batch writes down beforehand what of it does
//! not depend on what is found in the database.

use capstan_tape::{Batch, Entry, Fact};
use rusqlite::Result;
use serde_json::Value;

use super::columns::to_json;

/// The texts of a batch, fact by fact.
pub(super) struct EncodedBatch(Vec<Option<EncodedFact>>);

enum EncodedFact {
    Entry(EncodedEntry),
    /// Of a record, or of a message.
    Json(String),
}

/// The columns of an entry that are JSON.
pub(super) struct EncodedEntry {
    pub(super) payload: String,
    pub(super) meta: String,
    pub(super) extra: String,
}

impl EncodedEntry {
    pub(super) fn from_entry(entry: &Entry) -> Result<Self> {
        Self::new(&entry.payload, &entry.meta, &entry.extra)
    }

    fn new(payload: &Value, meta: &capstan_protocol::JsonObject, extra: &capstan_protocol::JsonObject) -> Result<Self> {
        Ok(Self { payload: to_json(payload)?, meta: to_json(meta)?, extra: to_json(extra)? })
    }
}

impl EncodedBatch {
    /// What can be written of a batch beforehand. What fails is left: it fails again where that can be told.
    pub(super) fn from_batch(batch: &Batch) -> Self {
        let text = |fact: &Fact| match fact {
            // One that names others of its batch gets their numbers only when they have some.
            Fact::AppendEntry { entry, .. } if entry.named_messages.is_empty() => {
                EncodedEntry::new(&entry.payload, &entry.meta, &entry.extra).ok().map(EncodedFact::Entry)
            }
            Fact::OpenRun(record) => to_json(record).ok().map(EncodedFact::Json),
            Fact::EnqueueOutbound(outbound) => to_json(&outbound.message).ok().map(EncodedFact::Json),
            _ => None,
        };
        Self(batch.facts.iter().map(text).collect())
    }

    /// The text of the entry that a fact appends.
    pub(super) fn entry(&self, fact: usize) -> Option<&EncodedEntry> {
        match self.0.get(fact)? {
            Some(EncodedFact::Entry(text)) => Some(text),
            _ => None,
        }
    }

    /// The text of the record or the message that a fact brings.
    pub(super) fn json(&self, fact: usize) -> Option<&str> {
        match self.0.get(fact)? {
            Some(EncodedFact::Json(text)) => Some(text),
            _ => None,
        }
    }
}
