//! What stands under a name of storage: where its content is.

use capstan_protocol::BlobHash;
use capstan_tape::{Fact, KeyValueRecord, blob_hash};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many bytes tell a content from every other one.
const CONTENT_MARKER_LEN: usize = 16;

/// Where the content of a name is: beside it, in a blob of its own.
///
/// Contents are kept once however many refer to them, so nobody could tell whether one may go. That of a name has a mark
/// at its end which no other blob has, and goes with the name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContentLocation {
    /// The hash of the content.
    pub(crate) hash: BlobHash,
    /// How large it is.
    pub(crate) bytes: u64,
    /// The blob with the content and its mark. None where it was put before there were marks: others may have that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<BlobHash>,
}

impl ContentLocation {
    /// The place of a new content, and what keeps it.
    pub(crate) fn for_content(mut content: Vec<u8>) -> (Self, Fact) {
        let (hash, bytes) = (blob_hash(&content), content.len() as u64);
        content.extend(Uuid::now_v7().as_bytes());
        let own = blob_hash(&content);
        (Self { hash, bytes, own: Some(own.clone()) }, Fact::PutBlob { hash: own, bytes: content.into() })
    }

    /// The place that stands under a name, if it can be read.
    pub(crate) fn from_record(kept: &KeyValueRecord) -> Option<Self> {
        Self::deserialize(&kept.value).ok()
    }

    /// The blob that has the content.
    pub(crate) fn content_blob(&self) -> &BlobHash {
        self.own.as_ref().unwrap_or(&self.hash)
    }

    /// The content of its blob.
    pub(crate) fn strip_marker(&self, mut blob: Vec<u8>) -> Vec<u8> {
        if self.own.is_some() {
            blob.truncate(blob.len().saturating_sub(CONTENT_MARKER_LEN));
        }
        blob
    }

    /// What removes the content, to be committed with what takes its name away.
    pub(crate) fn removal_fact(kept: &KeyValueRecord) -> Option<Fact> {
        let hash = Self::from_record(kept)?.own?;
        Some(Fact::RemoveBlob { hash })
    }
}
