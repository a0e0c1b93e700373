//! Lists that are read in parts, and changes that must see each other.

use std::sync::Arc;

use capstan_hooks::contracts::Page;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::Kept;
use tokio::sync::SemaphorePermit;

use super::cursor::List;
use super::store_failed;
use crate::runs::run::Run;

/// How many of a list are given at once at most.
const MOST: usize = 200;

/// How many are given where somebody asks for so many. None is no list.
pub(super) fn most(limit: usize) -> Result<usize, ApiError> {
    if limit == 0 {
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, "a limit is at least 1"));
    }
    Ok(limit.min(MOST))
}

/// A part of a space, by key.
pub(super) async fn kept(
    run: &Arc<Run>,
    list: &List<'_>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Page<Kept>, ApiError> {
    let limit = most(limit)?;
    let after = cursor.map(|cursor| list.place(cursor)).transpose()?;
    let store = run.services.tapes.store();
    // One more than is asked for tells whether there are more.
    let found = store.kept_in(list.of, after.as_deref(), limit + 1).await;
    let mut items = found.map_err(|error| store_failed(&error))?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| list.cursor(&last.key));
    Ok(Page { items, next })
}

/// Waits until nobody else in this run changes what is kept: how much there is must not change between looking and
/// writing.
pub(super) async fn change(run: &Run) -> Result<SemaphorePermit<'_>, ApiError> {
    // It is never closed.
    let permit = run.door.changes.acquire().await;
    permit.map_err(|_| ApiError::new(ApiErrorCode::RuntimeError, "the run is ending"))
}
