//! Values of storage namespaces: references to content blobs.

use capstan_protocol::BlobHash;
use capstan_tape::{Fact, KeyValueRecord, MarkedBlob, blob_hash};
use serde::{Deserialize, Serialize};

/// Reference from a storage name to the [`MarkedBlob`] with its content, which is removed together with the name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContentLocation {
    /// The hash of the content.
    pub(crate) hash: BlobHash,
    /// Size of the content, in bytes.
    pub(crate) bytes: u64,
    /// The marked blob. `None` for contents written before marks existed: such a blob may be shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<BlobHash>,
}

impl ContentLocation {
    /// Reference to new content, and the fact that stores its blob.
    pub(crate) fn for_content(content: Vec<u8>) -> (Self, Fact) {
        let (hash, bytes) = (blob_hash(&content), content.len() as u64);
        let blob = MarkedBlob::new(content);
        (Self { hash, bytes, own: Some(blob.hash.clone()) }, blob.into_fact())
    }

    /// Reference in a record, if it is readable.
    pub(crate) fn from_record(record: &KeyValueRecord) -> Option<Self> {
        Self::deserialize(&record.value).ok()
    }

    /// The blob that holds the content.
    pub(crate) fn content_blob(&self) -> &BlobHash {
        self.own.as_ref().unwrap_or(&self.hash)
    }

    /// Removes the mark from the bytes of the blob.
    pub(crate) fn strip_mark(&self, blob: Vec<u8>) -> Vec<u8> {
        if self.own.is_some() { MarkedBlob::strip_mark(blob) } else { blob }
    }

    /// The fact that removes the content; commit it together with the removal of the name.
    pub(crate) fn removal_fact(record: &KeyValueRecord) -> Option<Fact> {
        let hash = Self::from_record(record)?.own?;
        Some(Fact::RemoveBlob { hash })
    }
}
