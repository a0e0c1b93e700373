//! Pages of key-value namespaces, and the lock of their changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_hooks::contracts::CursorPage;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::KeyValueRecord;
use tokio::sync::SemaphorePermit;

use super::cursor::PagedList;
use super::store_api_error;
use crate::run::Run;

/// Maximum number of items of a page.
const MAX_API_PAGE_SIZE: usize = 200;

/// Limits the number of items of a page. Zero is rejected.
pub(super) fn clamp_limit(limit: usize) -> Result<usize, ApiError> {
    if limit == 0 {
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, "a limit is at least 1"));
    }
    Ok(limit.min(MAX_API_PAGE_SIZE))
}

/// Page of a namespace, by key.
pub(super) async fn list_entries(
    run: &Arc<Run>,
    list: &PagedList<'_>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<CursorPage<KeyValueRecord>, ApiError> {
    let limit = clamp_limit(limit)?;
    let after = cursor.map(|cursor| list.decode_cursor(cursor)).transpose()?;
    let store = run.environment.tapes.store();
    // One more than requested, to know if there is a next page.
    let found = store.key_value_page(list.list_key, after.as_deref(), limit + 1).await;
    let mut items = found.map_err(|error| store_api_error(&error))?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| list.encode_cursor(&last.key));
    Ok(CursorPage { items, next })
}

/// Page of a namespace together with an earlier one, by key. A key of both has the value of the first.
pub(super) async fn list_entries_of_both(
    run: &Arc<Run>,
    list: &PagedList<'_>,
    earlier: Option<&str>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<CursorPage<KeyValueRecord>, ApiError> {
    let Some(earlier) = earlier else { return list_entries(run, list, cursor, limit).await };
    let limit = clamp_limit(limit)?;
    let after = cursor.map(|cursor| list.decode_cursor(cursor)).transpose()?;
    let store = run.environment.tapes.store();
    let mut items: BTreeMap<String, KeyValueRecord> = BTreeMap::new();
    for namespace in [earlier, list.list_key] {
        let found = store.key_value_page(namespace, after.as_deref(), limit + 1).await;
        let found = found.map_err(|error| store_api_error(&error))?;
        items.extend(found.into_iter().map(|record| (record.key.clone(), record)));
    }
    let has_more = items.len() > limit;
    let items: Vec<KeyValueRecord> = items.into_values().take(limit).collect();
    let next = items.last().filter(|_| has_more).map(|last| list.encode_cursor(&last.key));
    Ok(CursorPage { items, next })
}

/// Page of the keys of a namespace that begin with a prefix.
pub(super) async fn list_with_prefix(
    run: &Arc<Run>,
    list: &PagedList<'_>,
    cursor: Option<&str>,
    limit: usize,
    prefix: &str,
) -> Result<CursorPage<KeyValueRecord>, ApiError> {
    let limit = clamp_limit(limit)?;
    let mut after = cursor.map(|cursor| list.decode_cursor(cursor)).transpose()?;
    let (store, mut items) = (run.environment.tapes.store(), Vec::new());
    loop {
        let found = store.key_value_page(list.list_key, after.as_deref(), MAX_API_PAGE_SIZE).await;
        let found = found.map_err(|error| store_api_error(&error))?;
        let Some(end) = found.last().map(|record| record.key.clone()) else { break };
        let is_past = end.as_str() > prefix && !end.starts_with(prefix);
        items.extend(found.into_iter().filter(|record| record.key.starts_with(prefix)));
        after = Some(end);
        if is_past || items.len() > limit {
            break;
        }
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| list.encode_cursor(&last.key));
    Ok(CursorPage { items, next })
}

/// Waits for the other changes of this run: the quota must not change between its check and the commit.
pub(super) async fn lock_changes(run: &Run) -> Result<SemaphorePermit<'_>, ApiError> {
    // The semaphore is never closed, so this does not fail.
    let permit = run.call_limiter.change_lock.acquire().await;
    permit.map_err(|_| ApiError::new(ApiErrorCode::RuntimeError, "the run is ending"))
}
