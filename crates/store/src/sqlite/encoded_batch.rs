//! JSON columns of a batch, encoded before it reaches the writer thread.
//!
//! All sessions wait for the writer thread, so the caller of a commit encodes the columns that do not depend on the
//! content of the database.

use capstan_tape::{Batch, ContentDigest, Entry, Fact};
use rusqlite::Result;
use serde_json::Value;

use super::columns::to_json;

/// Encoded columns of a batch, one element per fact.
pub(super) struct EncodedBatch(Vec<Option<EncodedFact>>);

enum EncodedFact {
    /// An entry and the digest of its content, which is part of its hash.
    Entry(EncodedEntry, ContentDigest),
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
                let content = ContentDigest::new(&entry.kind, &entry.payload, &entry.meta, &entry.extra);
                let columns = EncodedEntry::new(&entry.payload, &entry.meta, &entry.extra).ok();
                columns.map(|columns| EncodedFact::Entry(columns, content))
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
            Some(EncodedFact::Entry(entry, _)) => Some(entry),
            _ => None,
        }
    }

    /// Digest of the content of the entry of the fact at this index.
    pub(super) fn content_digest(&self, fact_index: usize) -> Option<ContentDigest> {
        match self.0.get(fact_index)? {
            Some(EncodedFact::Entry(_, content)) => Some(*content),
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
