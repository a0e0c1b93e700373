//! Entries stored by a plugin.

use async_trait::async_trait;
use capstan_protocol::TapeName;

use crate::{Entry, IntegrityProblem, StoreError, TapeSlice};

/// External store of entries, provided by a plugin.
///
/// The host commits to its [`Store`](crate::Store) first, replicates the entries right after, and reads both until then. A
/// tape store only needs to return what it was given.
#[async_trait]
pub trait TapeStore: Send + Sync + 'static {
    /// Stores entries of a tape. The same entry may come again after a crash: an id that is already stored is skipped.
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError>;

    /// Entries of a tape; an unknown tape has none. [`TapeSlice::select`] selects them from entries in memory.
    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError>;

    /// Names of all stored tapes.
    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError>;

    /// Looks for damage.
    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        Ok(Vec::new())
    }

    /// Closes the store when the running scope ends.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
