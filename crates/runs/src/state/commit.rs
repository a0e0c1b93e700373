//! Changes of what is kept. Several runs and processes may change one space, and how much it may have holds for all of
//! them together: a change is only committed if the space is as it was when its room was looked at.

use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::{BatchPrecondition, Fact, StoreError};

use crate::api_error::store_api_error;
use crate::run::Run;

/// How often a change is tried again that somebody else came before.
pub(crate) const STATE_CONFLICT_RETRIES: usize = 16;

/// How often a space has changed.
pub(crate) async fn namespace_revision(run: &Run, space: &str) -> Result<u64, ApiError> {
    let known = run.environment.tapes.store().namespace(space).await.map_err(|error| store_api_error(&error))?;
    Ok(known.map_or(0, |known| known.revision))
}

/// Commits what waits and these facts, if nothing was kept in the space since. Says whether that is so; otherwise
/// nothing is committed.
pub(crate) async fn commit_if_unchanged(
    run: &Run,
    space: &str,
    revision: u64,
    facts: Vec<Fact>,
) -> Result<bool, ApiError> {
    let expect = BatchPrecondition::NamespaceRevision { namespace: space.to_owned(), revision };
    match run.journal.flush_with_preconditions(vec![expect], facts).await {
        Ok(_) => Ok(true),
        Err(StoreError::NamespaceChanged { .. }) => Ok(false),
        Err(error) => Err(store_api_error(&error)),
    }
}

/// Others were faster each time.
pub(crate) fn conflict_error() -> ApiError {
    let message = "others change the same all the time; try again";
    ApiError { retryable: true, ..ApiError::new(ApiErrorCode::RuntimeError, message) }
}
