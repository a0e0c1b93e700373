//! Contents by name, as a run may keep them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, CursorPage, StorageApi, StorageEntry};
use capstan_protocol::{ApiError, ApiErrorCode, StorageArea};
use capstan_tape::{Fact, KeyValueRecord, StorageChange, TapeEvent};
use serde_json::json;

use super::cursor::PagedList;
use super::{paging, store_api_error};
use crate::runs::run::Run;
use crate::runs::state_commit::{STATE_CONFLICT_RETRIES, conflict_error};
use crate::state_admin::{ContentLocation, RunnerNamespace};

/// How long a name may be.
const MAX_STORAGE_NAME_LEN: usize = 255;
/// The largest content that is kept.
const MAX_STORAGE_ITEM_BYTES: u64 = 16 * 1024 * 1024;
/// How many names an area has.
const MAX_STORAGE_ITEMS: u64 = 1_000;
/// How much all contents of an area count for together.
const MAX_STORAGE_AREA_BYTES: u64 = 256 * 1024 * 1024;

pub(super) struct StorageHandler(pub(super) Arc<Run>);

#[async_trait]
impl StorageApi for StorageHandler {
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<StorageEntry, ApiError> {
        check_name(name)?;
        if content.len() as u64 > MAX_STORAGE_ITEM_BYTES {
            let message = format!("a content has at most {MAX_STORAGE_ITEM_BYTES} bytes");
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        let (run, space) = (&self.0, self.namespace(area));
        let _alone = paging::lock_changes(run).await?;
        let (place, content) = ContentLocation::for_content(content);
        let at = run.services.options.clock.now();
        let stored = StorageEntry { name: name.to_owned(), bytes: place.bytes, hash: place.hash.clone(), at };
        let kept = KeyValueRecord { space, key: name.to_owned(), value: json!(place), at, by: Some(run.id().clone()) };
        let told = StorageChange { area, name: name.to_owned(), bytes: Some(stored.bytes) };
        self.commit_change(&kept.space, told, |before: &[KeyValueRecord]| {
            check_quota(before, name, stored.bytes)?;
            let mut facts = vec![content.clone(), Fact::PutKeyValue(kept.clone())];
            facts.extend(find_by_name(before, name).and_then(ContentLocation::removal_fact));
            Ok(facts)
        })
        .await?;
        Ok(stored)
    }

    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError> {
        let (store, space) = (self.0.services.tapes.store(), self.namespace(area));
        for _ in 0..STATE_CONFLICT_RETRIES {
            let kept = store.key_value(&space, name).await.map_err(|error| store_api_error(&error))?;
            let place = kept.as_ref().and_then(ContentLocation::from_record).ok_or_else(|| not_found_error(area))?;
            if let Some(blob) = store.blob(place.content_blob()).await.map_err(|error| store_api_error(&error))? {
                return Ok(place.strip_marker(blob));
            }
            // Another content stands there by now, and the old one is gone.
        }
        Err(conflict_error())
    }

    async fn list(
        &self,
        area: StorageArea,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StorageEntry>, ApiError> {
        let space = self.namespace(area);
        let list = PagedList { method: ApiMethod::StorageList, list_key: &space };
        let page = paging::list_entries(&self.0, &list, cursor, limit).await?;
        Ok(CursorPage { items: page.items.into_iter().filter_map(storage_item).collect(), next: page.next })
    }

    async fn delete(&self, area: StorageArea, name: &str) -> Result<bool, ApiError> {
        let (run, space) = (&self.0, self.namespace(area));
        let _alone = paging::lock_changes(run).await?;
        let told = StorageChange { area, name: name.to_owned(), bytes: None };
        let at = run.services.options.clock.now();
        self.commit_change(&space, told, |before: &[KeyValueRecord]| {
            let Some(kept) = find_by_name(before, name) else { return Ok(Vec::new()) };
            let forget = Fact::RemoveKeyValue { namespace: space.clone(), key: name.to_owned(), removed_at: at };
            Ok(std::iter::once(forget).chain(ContentLocation::removal_fact(kept)).collect())
        })
        .await
    }
}

impl StorageHandler {
    /// The space of an area, by whom it belongs to.
    fn namespace(&self, area: StorageArea) -> String {
        let run = &self.0;
        let owner = match area {
            StorageArea::Plugin => {
                let descriptor = run.runner.descriptor();
                match descriptor.plugin {
                    Some(plugin) => json!([plugin.author, plugin.name]),
                    None => json!(descriptor.id),
                }
            }
            StorageArea::Workspace => json!(run.services.workspace_id),
            StorageArea::Binding => json!(run.context.trigger.binding_id),
        };
        RunnerNamespace::Storage { area, owner }.stored_name()
    }

    /// Changes a space by what `change` makes of what is kept in it, and tells of it. Says whether there was anything to
    /// change.
    async fn commit_change(
        &self,
        space: &str,
        told: StorageChange,
        change: impl Fn(&[KeyValueRecord]) -> Result<Vec<Fact>, ApiError> + Sync,
    ) -> Result<bool, ApiError> {
        let run = &self.0;
        let most = usize::try_from(MAX_STORAGE_ITEMS).unwrap_or(usize::MAX);
        let mut entry = None;
        for _ in 0..STATE_CONFLICT_RETRIES {
            let revision = run.namespace_revision(space).await?;
            let before = run.services.tapes.store().key_values(space, None, most).await;
            let mut facts = change(&before.map_err(|error| store_api_error(&error))?)?;
            if facts.is_empty() {
                return Ok(false);
            }
            facts.push(
                entry
                    .get_or_insert_with(|| {
                        let told = TapeEvent::StorageChanged(told.clone());
                        run.journal.final_entry(run.id(), told.into())
                    })
                    .clone(),
            );
            if run.commit_if_unchanged(space, revision, facts).await? {
                return Ok(true);
            }
        }
        Err(conflict_error())
    }
}

/// What stands under a name.
fn find_by_name<'a>(kept: &'a [KeyValueRecord], name: &str) -> Option<&'a KeyValueRecord> {
    kept.iter().find(|kept| kept.key == name)
}

/// Refuses what there is no room for. What stood under the name goes.
fn check_quota(before: &[KeyValueRecord], name: &str, bytes: u64) -> Result<(), ApiError> {
    let too_large = |message: String| Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    let others = || before.iter().filter(|kept| kept.key != name);
    if others().count() as u64 >= MAX_STORAGE_ITEMS {
        return too_large(format!("there are {MAX_STORAGE_ITEMS} contents already, and no more are kept"));
    }
    let in_all: u64 = others().filter_map(ContentLocation::from_record).map(|place| place.bytes).sum();
    if in_all + bytes > MAX_STORAGE_AREA_BYTES {
        return too_large(format!("all contents together have at most {MAX_STORAGE_AREA_BYTES} bytes"));
    }
    Ok(())
}

/// What is known about a content, if it can be read.
fn storage_item(kept: KeyValueRecord) -> Option<StorageEntry> {
    let place = ContentLocation::from_record(&kept)?;
    Some(StorageEntry { name: kept.key, bytes: place.bytes, hash: place.hash, at: kept.at })
}

fn not_found_error(area: StorageArea) -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, format!("nothing is kept under this name in storage of {}", json!(area)))
}

/// Refuses what is more than a name.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_name = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if !name.is_empty() && name.len() <= MAX_STORAGE_NAME_LEN && !name.starts_with('.') && name.chars().all(is_name) {
        return Ok(());
    }
    let message = format!(
        "a name has 1 to {MAX_STORAGE_NAME_LEN} bytes, without slashes or control characters, and does not begin with a dot"
    );
    Err(ApiError::new(ApiErrorCode::InvalidArgument, message))
}
