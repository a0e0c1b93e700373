//! Leases of tapes.

use async_trait::async_trait;
use capstan_protocol::TapeName;

use crate::{LeaseRecord, StoreError};

/// Leases of tapes.
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// Lease of a tape, if it ever had one.
    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError>;
}
