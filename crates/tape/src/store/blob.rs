//! Content stored by its hash.

use async_trait::async_trait;
use capstan_protocol::BlobHash;

use crate::StoreError;

/// Content stored by its hash.
#[async_trait]
pub trait BlobStore: Send + Sync + 'static {
    /// Content with this hash.
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError>;
}
