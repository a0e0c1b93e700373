//! Blobs that belong to one record.
//!
//! Blobs are deduplicated by hash, so a plain blob could be shared and could not be removed safely. A marked blob ends
//! with a unique mark: no other record refers to it, and it is removed together with its record.

use capstan_protocol::{BlobHash, time_ordered_uuid};

use crate::{Fact, blob_hash};

/// Length of the mark, in bytes.
const MARK_LEN: usize = 16;

/// Blob that consists of a content and a unique mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedBlob {
    /// Hash of the blob.
    pub hash: BlobHash,
    bytes: Vec<u8>,
}

impl MarkedBlob {
    /// Marks a content.
    pub fn new(mut content: Vec<u8>) -> Self {
        content.extend(time_ordered_uuid().as_bytes());
        Self { hash: blob_hash(&content), bytes: content }
    }

    /// The fact that stores the blob.
    pub fn into_fact(self) -> Fact {
        Fact::PutBlob { hash: self.hash, bytes: self.bytes.into() }
    }

    /// Content of a marked blob.
    pub fn strip_mark(mut blob: Vec<u8>) -> Vec<u8> {
        blob.truncate(blob.len().saturating_sub(MARK_LEN));
        blob
    }
}

#[cfg(test)]
mod tests {
    use super::MarkedBlob;

    #[test]
    fn g07_equal_contents_have_blobs_of_their_own() {
        let [one, two] = [MarkedBlob::new(b"content".to_vec()), MarkedBlob::new(b"content".to_vec())];
        assert_ne!(one.hash, two.hash);
        assert_eq!(MarkedBlob::strip_mark(one.bytes), b"content");
        assert!(MarkedBlob::strip_mark(Vec::new()).is_empty());
    }
}
