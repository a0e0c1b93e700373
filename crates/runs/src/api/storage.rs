//! Methods of `storage.*`: contents by name.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{StorageDelete, StorageGet, StorageList, StoragePut};
use capstan_hooks::contracts::{ApiMethod, CursorPage, StorageEntry, StoredContent};
use capstan_protocol::run_api::{StorageListCall, StorageNameCall, StoragePutCall};
use capstan_protocol::{ApiError, ApiErrorCode, StorageArea};
use capstan_tape::{Fact, KeyValueRecord, StorageChange, TapeEvent};
use serde_json::json;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::Run;
use crate::state::commit;
use crate::state::commit::{STATE_CONFLICT_RETRIES, conflict_error};
use crate::state_admin::{ContentLocation, RunnerNamespace};

/// Maximum length of a name, in bytes.
const MAX_STORAGE_NAME_LEN: usize = 255;
/// Maximum size of a content.
const MAX_STORAGE_ITEM_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of names in an area.
const MAX_STORAGE_ITEMS: u64 = 1_000;
/// Maximum size of all contents of an area.
const MAX_STORAGE_AREA_BYTES: u64 = 256 * 1024 * 1024;

impl MethodHandler for StoragePut {
    fn permission(_: &Run, call: &StoragePutCall) -> RequiredPermission {
        RequiredPermission::Storage(call.area)
    }

    fn payload(_: &Run, call: &StoragePutCall) -> PayloadSize {
        PayloadSize::Content(text_size(&call.name) + call.content.len() as u64)
    }

    async fn handle(run: &Arc<Run>, call: StoragePutCall) -> Result<StorageEntry, ApiError> {
        let StoragePutCall { area, name, content } = call;
        check_name(&name)?;
        if content.len() as u64 > MAX_STORAGE_ITEM_BYTES {
            let message = format!("a content has at most {MAX_STORAGE_ITEM_BYTES} bytes");
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        let space = area_namespace(run, area);
        let _alone = paging::lock_changes(run).await?;
        let (place, content) = ContentLocation::for_content(content);
        let at = run.environment.options.clock.now();
        let stored = StorageEntry { name: name.clone(), bytes: place.bytes, hash: place.hash.clone(), at };
        let kept = KeyValueRecord { space, key: name.clone(), value: json!(place), at, by: Some(run.id().clone()) };
        let told = StorageChange { area, name: name.clone(), bytes: Some(stored.bytes) };
        commit_change(run, &kept.space, told, |before: &[KeyValueRecord]| {
            check_quota(before, &name, stored.bytes)?;
            let mut facts = vec![content.clone(), Fact::PutKeyValue(kept.clone())];
            facts.extend(find_by_name(before, &name).and_then(ContentLocation::removal_fact));
            Ok(facts)
        })
        .await?;
        Ok(stored)
    }
}

impl MethodHandler for StorageGet {
    fn permission(_: &Run, call: &StorageNameCall) -> RequiredPermission {
        RequiredPermission::Storage(call.area)
    }

    fn payload(_: &Run, call: &StorageNameCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name))
    }

    async fn handle(run: &Arc<Run>, call: StorageNameCall) -> Result<StoredContent, ApiError> {
        let StorageNameCall { area, name } = call;
        let (store, space) = (run.environment.tapes.store(), area_namespace(run, area));
        for _ in 0..STATE_CONFLICT_RETRIES {
            let kept = store.key_value(&space, &name).await.map_err(|error| store_api_error(&error))?;
            let place = kept.as_ref().and_then(ContentLocation::from_record).ok_or_else(|| not_found_error(area))?;
            if let Some(blob) = store.blob(place.content_blob()).await.map_err(|error| store_api_error(&error))? {
                return Ok(StoredContent { content: place.strip_marker(blob) });
            }
            // Another content stands there by now, and the old one is gone.
        }
        Err(conflict_error())
    }
}

impl MethodHandler for StorageList {
    fn permission(_: &Run, call: &StorageListCall) -> RequiredPermission {
        RequiredPermission::Storage(call.area)
    }

    fn payload(_: &Run, call: &StorageListCall) -> PayloadSize {
        PayloadSize::Arguments(optional_text_size(call.cursor.as_deref()))
    }

    async fn handle(run: &Arc<Run>, call: StorageListCall) -> Result<CursorPage<StorageEntry>, ApiError> {
        let space = area_namespace(run, call.area);
        let list = PagedList { method: ApiMethod::StorageList, list_key: &space };
        let page = paging::list_entries(run, &list, call.cursor.as_deref(), call.limit).await?;
        Ok(CursorPage { items: page.items.into_iter().filter_map(storage_item).collect(), next: page.next })
    }
}

impl MethodHandler for StorageDelete {
    fn permission(_: &Run, call: &StorageNameCall) -> RequiredPermission {
        RequiredPermission::Storage(call.area)
    }

    fn payload(_: &Run, call: &StorageNameCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name))
    }

    async fn handle(run: &Arc<Run>, call: StorageNameCall) -> Result<bool, ApiError> {
        let StorageNameCall { area, name } = call;
        let space = area_namespace(run, area);
        let _alone = paging::lock_changes(run).await?;
        let told = StorageChange { area, name: name.clone(), bytes: None };
        let at = run.environment.options.clock.now();
        commit_change(run, &space, told, |before: &[KeyValueRecord]| {
            let Some(kept) = find_by_name(before, &name) else { return Ok(Vec::new()) };
            let forget = Fact::RemoveKeyValue { namespace: space.clone(), key: name.clone(), removed_at: at };
            Ok(std::iter::once(forget).chain(ContentLocation::removal_fact(kept)).collect())
        })
        .await
    }
}

/// Namespace of an area, by its owner.
fn area_namespace(run: &Run, area: StorageArea) -> String {
    let owner = match area {
        StorageArea::Plugin => {
            let descriptor = run.runner.descriptor();
            match descriptor.plugin {
                Some(plugin) => json!([plugin.author, plugin.name]),
                None => json!(descriptor.id),
            }
        }
        StorageArea::Workspace => json!(run.environment.workspace_id),
        StorageArea::Binding => json!(run.context.trigger.binding_id),
    };
    RunnerNamespace::Storage { area, owner }.stored_name()
}

/// Changes a namespace by the facts that `change` derives from its records, and writes an event of it. False if there was
/// nothing to change.
async fn commit_change(
    run: &Run,
    space: &str,
    told: StorageChange,
    change: impl Fn(&[KeyValueRecord]) -> Result<Vec<Fact>, ApiError> + Sync,
) -> Result<bool, ApiError> {
    let most = usize::try_from(MAX_STORAGE_ITEMS).unwrap_or(usize::MAX);
    let mut entry = None;
    for _ in 0..STATE_CONFLICT_RETRIES {
        let revision = commit::namespace_revision(run, space).await?;
        let before = run.environment.tapes.store().key_value_page(space, None, most).await;
        let mut facts = change(&before.map_err(|error| store_api_error(&error))?)?;
        if facts.is_empty() {
            return Ok(false);
        }
        let told = || run.journal.final_entry(run.id(), TapeEvent::StorageChanged(told.clone()).into());
        facts.push(entry.get_or_insert_with(told).clone());
        if commit::commit_if_unchanged(run, space, revision, facts).await? {
            return Ok(true);
        }
    }
    Err(conflict_error())
}

/// The record of a name.
fn find_by_name<'a>(kept: &'a [KeyValueRecord], name: &str) -> Option<&'a KeyValueRecord> {
    kept.iter().find(|kept| kept.key == name)
}

/// Refuses a content that exceeds the quota. The content that it replaces does not count.
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

/// Description of a stored content, if it can be read.
fn storage_item(kept: KeyValueRecord) -> Option<StorageEntry> {
    let place = ContentLocation::from_record(&kept)?;
    Some(StorageEntry { name: kept.key, bytes: place.bytes, hash: place.hash, at: kept.at })
}

fn not_found_error(area: StorageArea) -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, format!("nothing is kept under this name in storage of {}", json!(area)))
}

/// Refuses names with a path or control characters.
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
