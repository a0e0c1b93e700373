//! Requests and responses of `storage.*`: content by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::base64_bytes;
use crate::{BlobHash, StorageArea, Timestamp};

/// Content to be stored under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoragePutCall {
    /// Area of the storage.
    pub area: StorageArea,
    /// The name.
    pub name: String,
    /// The content; base64 in JSON.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub content: Vec<u8>,
}

/// A name of an area, to be read or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorageNameCall {
    /// Area of the storage.
    pub area: StorageArea,
    /// The name.
    pub name: String,
}

/// Request for a page of the names of an area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorageListCall {
    /// Area of the storage.
    pub area: StorageArea,
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of names, at least 1.
    pub limit: usize,
}

/// Description of stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorageEntry {
    /// The name.
    pub name: String,
    /// Size of the content.
    pub bytes: u64,
    /// Hash of the content; equal content is stored once.
    pub hash: BlobHash,
    /// Time of the last write.
    pub at: Timestamp,
}

/// Stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredContent {
    /// The content; base64 in JSON.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub content: Vec<u8>,
}
