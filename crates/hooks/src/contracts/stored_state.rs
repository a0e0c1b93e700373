//! What a runner may keep in the host: values by key, and contents by name.

use async_trait::async_trait;
use capstan_protocol::{ApiError, BlobHash, StateScope, StorageArea, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CursorPage;

/// A value that is kept under a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// When it was written.
    pub at: Timestamp,
}

/// State, as a run may use it. Every runner has its own, for each of those that a scope means.
#[async_trait]
pub trait StateApi: Send + Sync + 'static {
    /// The value under a key.
    async fn get(&self, scope: StateScope, key: &str) -> Result<Option<Value>, ApiError>;

    /// Keeps a value under a key. It is durable when this returns; `null` removes the key.
    async fn set(&self, scope: StateScope, key: &str, value: Value) -> Result<(), ApiError>;

    /// What is kept, by key: at most this many after the cursor.
    async fn list(
        &self,
        scope: StateScope,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StateEntry>, ApiError>;

    /// Removes a key; says whether it was there.
    async fn delete(&self, scope: StateScope, key: &str) -> Result<bool, ApiError>;
}

/// What is known about a content that is kept under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageEntry {
    /// The name.
    pub name: String,
    /// How large the content is.
    pub bytes: u64,
    /// The content, which is kept once.
    pub hash: BlobHash,
    /// When it was put there.
    pub at: Timestamp,
}

/// Contents by name, as a run may keep them.
#[async_trait]
pub trait StorageApi: Send + Sync + 'static {
    /// Keeps a content under a name, in place of what was there. It is durable when this returns.
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<StorageEntry, ApiError>;

    /// The content under a name.
    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError>;

    /// What is kept, by name: at most this many after the cursor.
    async fn list(
        &self,
        area: StorageArea,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StorageEntry>, ApiError>;

    /// Removes a name; says whether it was there.
    async fn delete(&self, area: StorageArea, name: &str) -> Result<bool, ApiError>;
}
