//! Values of storage namespaces: references to content blobs.

use capstan_protocol::BlobHash;
use capstan_tape::{Fact, KeyValueRecord, blob_hash};
use serde::{Deserialize, Serialize};

/// Length of the marker that makes a content blob unique, in bytes.
const CONTENT_MARKER_LEN: usize = 16;

/// Reference from a storage name to the blob with its content.
///
/// Blobs are deduplicated by hash, so a plain blob could be shared and could not be removed safely. The blob of a
/// storage name ends with a unique marker and is removed together with the name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContentLocation {
    /// The hash of the content.
    pub(crate) hash: BlobHash,
    /// Size of the content, in bytes.
    pub(crate) bytes: u64,
    /// The blob with the content and its marker. `None` for contents written before markers existed: such a blob may be
    /// shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<BlobHash>,
}

impl ContentLocation {
    /// Reference to new content, and the fact that stores its blob.
    pub(crate) fn for_content(mut content: Vec<u8>) -> (Self, Fact) {
        let (hash, bytes) = (blob_hash(&content), content.len() as u64);
        content.extend(capstan_protocol::time_ordered_uuid().as_bytes());
        let own = blob_hash(&content);
        (Self { hash, bytes, own: Some(own.clone()) }, Fact::PutBlob { hash: own, bytes: content.into() })
    }

    /// Reference in a record, if it is readable.
    pub(crate) fn from_record(record: &KeyValueRecord) -> Option<Self> {
        Self::deserialize(&record.value).ok()
    }

    /// The blob that holds the content.
    pub(crate) fn content_blob(&self) -> &BlobHash {
        self.own.as_ref().unwrap_or(&self.hash)
    }

    /// Removes the marker from the bytes of the blob.
    pub(crate) fn strip_marker(&self, mut blob: Vec<u8>) -> Vec<u8> {
        if self.own.is_some() {
            blob.truncate(blob.len().saturating_sub(CONTENT_MARKER_LEN));
        }
        blob
    }

    /// The fact that removes the content; commit it together with the removal of the name.
    pub(crate) fn removal_fact(record: &KeyValueRecord) -> Option<Fact> {
        let hash = Self::from_record(record)?.own?;
        Some(Fact::RemoveBlob { hash })
    }
}
