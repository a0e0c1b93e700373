//! Tapes and their entries, and the commit that writes everything.

use async_trait::async_trait;
use capstan_protocol::{EntryId, TapeName};

use super::RowPages;
use crate::{
    Batch, ChainLink, CommitReceipt, Entry, IntegrityProblem, SearchScan, StoreError, TapeRecord, TapeSlice, TextSearch,
};

/// Tapes and their entries, and the commit that writes to all tables.
///
/// `commit` returns when the requested [durability](crate::CommitDurability) of the batch is reached. Reads may see a
/// batch earlier, so before data that was read leaves the host, an empty durable batch must make it durable.
#[async_trait]
pub trait JournalStore: Send + Sync + 'static {
    /// Applies a batch atomically. Appended entries get the ids after their tape's head.
    async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError>;

    /// Waits until the store rejects all writes until it is reopened, and returns the reason.
    async fn wait_for_failure(&self) -> StoreError {
        std::future::pending().await
    }

    /// Tape with this name.
    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError>;

    /// Tapes with names after `after`, ordered by name, at most `limit`.
    async fn tape_page(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeRecord>, StoreError>;

    /// All tapes, ordered by name.
    fn tapes(&self) -> RowPages<'_, TapeRecord> {
        RowPages::new(move |after: Option<TapeRecord>, limit| {
            Box::pin(async move { self.tape_page(after.as_ref().map(|tape| &tape.name), limit).await })
        })
    }

    /// Names after `after` of tapes that have entries in their rows, in order, at most `limit`. With an external tape
    /// store these are the tapes with entries that are not replicated.
    async fn tapes_with_entries(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeName>, StoreError> {
        let (mut found, mut after) = (Vec::new(), after.cloned());
        while found.len() < limit {
            let Some(record) = self.tape_page(after.as_ref(), 1).await?.pop() else { break };
            let first = TapeSlice { limit: Some(1), ..TapeSlice::all() };
            if !self.read(&record.name, &first).await?.is_empty() {
                found.push(record.name.clone());
            }
            after = Some(record.name);
        }
        Ok(found)
    }

    /// Entries in the rows of a tape, of all generations, without those of a fork's parent. An unknown tape has none.
    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError>;

    /// Entries of a slice that a search matches, in its order and up to its limit: the entries of
    /// [`read`](Self::read) for which [`TextSearch::matches`] is true. A store with an index may find them without
    /// reading the slice.
    async fn search(&self, tape: &TapeName, slice: &TapeSlice, search: &TextSearch) -> Result<Vec<Entry>, StoreError> {
        search_by_scan(self, tape, slice, search).await
    }

    /// Newest entry of a tape up to and including `up_to` that has a hash, without those of a fork's parent.
    async fn chain_link(&self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError>;

    /// Hashes of the entries of a tape after `after`, in order, at most `limit`. They include replicated entries, whose
    /// rows were removed, but not those of a fork's parent.
    async fn chain_page(&self, tape: &TapeName, after: EntryId, limit: usize) -> Result<Vec<ChainLink>, StoreError>;

    /// Looks for damage: ids out of order, unreadable entries, heads that differ from the last entry, breaks of the hash
    /// chain.
    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError>;
}

/// Entries that a search matches, found by reading every entry of a slice.
pub async fn search_by_scan<S: JournalStore + ?Sized>(
    store: &S,
    tape: &TapeName,
    slice: &TapeSlice,
    search: &TextSearch,
) -> Result<Vec<Entry>, StoreError> {
    let mut scan = SearchScan::new(search, slice);
    while let Some(page) = scan.next_page() {
        scan.push_page(store.read(tape, &page).await?);
    }
    Ok(scan.matches())
}
