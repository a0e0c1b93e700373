//! Runs.

use async_trait::async_trait;
use capstan_protocol::RunId;

use super::RowPages;
use crate::{RunRecord, StoreError};

/// Runs, with their grant, status and usage.
#[async_trait]
pub trait LedgerStore: Send + Sync + 'static {
    /// Run with this id.
    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Runs that began before the run `before`, newest first, at most `limit`. None before an unknown run.
    async fn run_page(&self, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError>;

    /// All runs, newest first.
    fn runs(&self) -> RowPages<'_, RunRecord> {
        RowPages::new(move |before: Option<RunRecord>, limit| {
            Box::pin(async move { self.run_page(before.as_ref().map(|run| &run.run_id), limit).await })
        })
    }

    /// Runs that have not ended and began after the run `after`, oldest first, at most `limit`. None after an unknown
    /// run.
    async fn open_run_page(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError>;

    /// All runs that have not ended, oldest first.
    fn open_runs(&self) -> RowPages<'_, RunRecord> {
        RowPages::new(move |after: Option<RunRecord>, limit| {
            Box::pin(async move { self.open_run_page(after.as_ref().map(|run| &run.run_id), limit).await })
        })
    }
}
