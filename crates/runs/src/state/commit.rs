//! Optimistic commits of stored state. Several runs and processes may change one namespace, and its quota applies to
//! all of them together: a change is committed only if the namespace has not changed since its quota was checked.

use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::{BatchPrecondition, CommitDurability, Fact, StoreError};

use crate::api_error::store_api_error;
use crate::run::Run;

/// Retries of a change that another writer preceded.
pub(crate) const STATE_CONFLICT_RETRIES: usize = 16;

/// Number of changes of a namespace so far.
pub(crate) async fn namespace_revision(run: &Run, namespace: &str) -> Result<u64, ApiError> {
    let record = run.environment.tapes.store().namespace(namespace).await.map_err(|error| store_api_error(&error))?;
    Ok(record.map_or(0, |record| record.revision))
}

/// Commits the pending entries and these facts, if the namespace still has this revision. Otherwise nothing is
/// committed and the result is false.
pub(crate) async fn commit_if_unchanged(
    run: &Run,
    namespace: &str,
    revision: u64,
    facts: Vec<Fact>,
) -> Result<bool, ApiError> {
    let precondition = BatchPrecondition::NamespaceRevision { namespace: namespace.to_owned(), revision };
    match run.journal.flush_with(CommitDurability::Durable, vec![precondition], facts).await {
        Ok(_) => Ok(true),
        Err(StoreError::NamespaceChanged { .. }) => Ok(false),
        Err(error) => Err(store_api_error(&error)),
    }
}

/// Error of a change that lost every retry.
pub(crate) fn conflict_error() -> ApiError {
    let message = "too many concurrent changes of the same namespace; try again";
    ApiError { retryable: true, ..ApiError::new(ApiErrorCode::RuntimeError, message) }
}
