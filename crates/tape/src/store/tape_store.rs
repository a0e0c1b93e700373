//! Entries stored by a plugin.

use async_trait::async_trait;
use capstan_protocol::TapeName;

use crate::{Entry, IntegrityProblem, StoreError, TapeSlice};

/// External store of entries, provided by a plugin.
///
/// The host commits to its [`Store`](crate::Store) first, replicates the entries right after, and reads both until
/// then. A tape store only needs to return the entries that were appended.
#[async_trait]
pub trait TapeStore: Send + Sync + 'static {
    /// Stores entries of a tape. An entry may be repeated after a crash, so ids that are already stored are skipped.
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError>;

    /// Entries of a tape; an unknown tape has none. [`TapeSlice::select`] selects them from entries in memory.
    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError>;

    /// Names of all stored tapes.
    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError>;

    /// Looks for damage.
    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        Ok(Vec::new())
    }

    /// Closes the store when the host stops.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
