//! JSON columns of a batch, encoded before it reaches the writer thread.
//!
//! All sessions wait for the writer thread, so the caller of a commit encodes the columns that do not depend on the
//! content of the database.

use capstan_tape::{Batch, Entry, Fact};
use rusqlite::Result;
use serde_json::Value;

use super::columns::to_json;

/// Encoded columns of a batch, one element per fact.
pub(super) struct EncodedBatch(Vec<Option<EncodedFact>>);

enum EncodedFact {
    Entry(EncodedEntry),
    /// A run record or an outbound message.
    Json(String),
}

/// JSON columns of an entry.
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
    /// Encodes a batch. A column that cannot be encoded is skipped: the writer fails on it again and reports the error.
    pub(super) fn from_batch(batch: &Batch) -> Self {
        let encode = |fact: &Fact| match fact {
            // An entry that names other entries of its batch needs their ids, which are assigned later.
            Fact::AppendEntry { entry, .. } if entry.named_messages.is_empty() => {
                EncodedEntry::new(&entry.payload, &entry.meta, &entry.extra).ok().map(EncodedFact::Entry)
            }
            Fact::OpenRun(record) => to_json(record).ok().map(EncodedFact::Json),
            Fact::EnqueueOutbound(outbound) => to_json(&outbound.message).ok().map(EncodedFact::Json),
            _ => None,
        };
        Self(batch.facts.iter().map(encode).collect())
    }

    /// Encoded entry of the fact at this index.
    pub(super) fn entry(&self, fact_index: usize) -> Option<&EncodedEntry> {
        match self.0.get(fact_index)? {
            Some(EncodedFact::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Encoded record or message of the fact at this index.
    pub(super) fn json(&self, fact_index: usize) -> Option<&str> {
        match self.0.get(fact_index)? {
            Some(EncodedFact::Json(text)) => Some(text),
            _ => None,
        }
    }
}
