//! Methods of `storage.*`: contents by name.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{StorageDelete, StorageGet, StorageList, StoragePut};
use capstan_hooks::contracts::{ApiMethod, CursorPage, StorageEntry, StoredContent};
use capstan_protocol::run_api::{StorageListCall, StorageNameCall, StoragePutCall};
use capstan_protocol::{ApiError, ApiErrorCode, RunnerSource, StorageArea};
use capstan_tape::{Fact, KeyValueRecord, StorageChange, TapeEvent};
use serde_json::json;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::state::commit::{self, STATE_CONFLICT_RETRIES, conflict_error};
use crate::state_admin::{ContentLocation, RunnerNamespace};

/// Maximum length of a name, in bytes.
const MAX_STORAGE_NAME_LEN: usize = 255;
/// Maximum size of a content, in bytes.
const MAX_STORAGE_ITEM_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of names in an area.
const MAX_STORAGE_ITEMS: u64 = 1_000;
/// Maximum size of all contents of an area, in bytes.
const MAX_STORAGE_AREA_BYTES: u64 = 256 * 1024 * 1024;

impl MethodHandler for StoragePut {
    fn permission(_: &Run, call: &StoragePutCall) -> RequiredPermission {
        RequiredPermission::Storage(call.area)
    }

    fn payload(_: &Run, call: &StoragePutCall) -> PayloadSize {
        PayloadSize::Content(text_size(&call.name) + call.content.len() as u64)
    }

    async fn handle(run: &Arc<Run>, call: StoragePutCall, permit: CallPermit) -> Result<StorageEntry, ApiError> {
        let StoragePutCall { area, name, content } = call;
        check_name(&name)?;
        if content.len() as u64 > MAX_STORAGE_ITEM_BYTES {
            let message = format!("a content has at most {MAX_STORAGE_ITEM_BYTES} bytes");
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        let namespace = area_namespace(run, area, &permit);
        let _change_permit = paging::lock_changes(run).await?;
        let (location, content) = ContentLocation::for_content(content);
        let at = run.environment.options.clock.now();
        let stored = StorageEntry { name: name.clone(), bytes: location.bytes, hash: location.hash.clone(), at };
        let (value, by) = (json!(location), Some(run.id().clone()));
        let record = KeyValueRecord { space: namespace, key: name.clone(), value, at, by };
        let change = StorageChange { area, name: name.clone(), bytes: Some(stored.bytes) };
        commit_change(run, &record.space, change, |before: &[KeyValueRecord]| {
            check_quota(before, &name, stored.bytes)?;
            let mut facts = vec![content.clone(), Fact::PutKeyValue(record.clone())];
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

    async fn handle(run: &Arc<Run>, call: StorageNameCall, permit: CallPermit) -> Result<StoredContent, ApiError> {
        let StorageNameCall { area, name } = call;
        let (store, namespace) = (run.environment.tapes.store(), area_namespace(run, area, &permit));
        let earlier = earlier_namespace(run, area, &permit);
        for _ in 0..STATE_CONFLICT_RETRIES {
            let mut record = store.key_value(&namespace, &name).await.map_err(|error| store_api_error(&error))?;
            if let (None, Some(earlier)) = (&record, &earlier) {
                record = store.key_value(earlier, &name).await.map_err(|error| store_api_error(&error))?;
            }
            let location =
                record.as_ref().and_then(ContentLocation::from_record).ok_or_else(|| not_found_error(area))?;
            if let Some(blob) = store.blob(location.content_blob()).await.map_err(|error| store_api_error(&error))? {
                return Ok(StoredContent { content: location.strip_mark(blob) });
            }
            // The content was replaced since the record was read, and its blob removed.
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

    async fn handle(
        run: &Arc<Run>,
        call: StorageListCall,
        permit: CallPermit,
    ) -> Result<CursorPage<StorageEntry>, ApiError> {
        let namespace = area_namespace(run, call.area, &permit);
        let list = PagedList { method: ApiMethod::StorageList, list_key: &namespace };
        let earlier = earlier_namespace(run, call.area, &permit);
        let page =
            paging::list_entries_of_both(run, &list, earlier.as_deref(), call.cursor.as_deref(), call.limit).await?;
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

    async fn handle(run: &Arc<Run>, call: StorageNameCall, permit: CallPermit) -> Result<bool, ApiError> {
        let StorageNameCall { area, name } = call;
        let namespaces = [Some(area_namespace(run, area, &permit)), earlier_namespace(run, area, &permit)];
        let _change_permit = paging::lock_changes(run).await?;
        let mut was_there = false;
        for namespace in namespaces.into_iter().flatten() {
            let change = StorageChange { area, name: name.clone(), bytes: None };
            let at = run.environment.options.clock.now();
            was_there |= commit_change(run, &namespace, change, |before: &[KeyValueRecord]| {
                let Some(record) = find_by_name(before, &name) else { return Ok(Vec::new()) };
                let removal = Fact::RemoveKeyValue { namespace: namespace.clone(), key: name.clone(), removed_at: at };
                Ok(std::iter::once(removal).chain(ContentLocation::removal_fact(record)).collect())
            })
            .await?;
        }
        Ok(was_there)
    }
}

/// Namespace of an area, by its owner.
fn area_namespace(run: &Run, area: StorageArea, permit: &CallPermit) -> String {
    let owner = match area {
        StorageArea::Plugin => {
            let descriptor = &run.runner.descriptor;
            match (&permit.storage_owner, &descriptor.plugin) {
                (Some(owner), _) => owner.clone(),
                (None, Some(plugin)) => json!([plugin.author, plugin.name]),
                (None, None) => json!(descriptor.id),
            }
        }
        StorageArea::Workspace => json!(run.environment.workspace_id),
        StorageArea::Binding => json!(run.context.trigger.binding_id),
    };
    RunnerNamespace::Storage { area, owner }.stored_name()
}

/// Namespace in which earlier versions stored the contents of a tool: that of the runner which called it. Contents are
/// still read there, and written to the tool's own namespace only. Applies to runners of the host, which store nothing
/// themselves, and to the tool's own plugin: the contents of another plugin's runner stay its own.
fn earlier_namespace(run: &Run, area: StorageArea, permit: &CallPermit) -> Option<String> {
    let owner = permit.storage_owner.as_ref().filter(|_| area == StorageArea::Plugin)?;
    let runner = &run.runner.descriptor;
    let id_prefix = format!("plugin:{}/{}/", owner.get(0)?.as_str()?, owner.get(1)?.as_str()?);
    let is_earlier_owner = runner.source == RunnerSource::HostAdapter || runner.id.as_str().starts_with(&id_prefix);
    (is_earlier_owner && runner.plugin.is_none())
        .then(|| RunnerNamespace::Storage { area, owner: json!(runner.id) }.stored_name())
}

/// Commits the facts that `derive_facts` returns for the records of a namespace, and the event of the change. Returns
/// false if there is nothing to change.
async fn commit_change(
    run: &Run,
    namespace: &str,
    change: StorageChange,
    derive_facts: impl Fn(&[KeyValueRecord]) -> Result<Vec<Fact>, ApiError> + Sync,
) -> Result<bool, ApiError> {
    let max_items = usize::try_from(MAX_STORAGE_ITEMS).unwrap_or(usize::MAX);
    let mut entry = None;
    for _ in 0..STATE_CONFLICT_RETRIES {
        let revision = commit::namespace_revision(run, namespace).await?;
        let before = run.environment.tapes.store().key_value_page(namespace, None, max_items).await;
        let mut facts = derive_facts(&before.map_err(|error| store_api_error(&error))?)?;
        if facts.is_empty() {
            return Ok(false);
        }
        let build_entry = || run.journal.stamped_entry_fact(run.id(), TapeEvent::StorageChanged(change.clone()).into());
        facts.push(entry.get_or_insert_with(build_entry).clone());
        if commit::commit_if_unchanged(run, namespace, revision, facts).await? {
            return Ok(true);
        }
    }
    Err(conflict_error())
}

/// Record of a name.
fn find_by_name<'a>(records: &'a [KeyValueRecord], name: &str) -> Option<&'a KeyValueRecord> {
    records.iter().find(|record| record.key == name)
}

/// Rejects a content that exceeds the quota. The content that it replaces does not count.
fn check_quota(before: &[KeyValueRecord], name: &str, bytes: u64) -> Result<(), ApiError> {
    let too_large = |message: String| Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    let others = || before.iter().filter(|record| record.key != name);
    if others().count() as u64 >= MAX_STORAGE_ITEMS {
        return too_large(format!("the area has {MAX_STORAGE_ITEMS} contents already, which is the limit"));
    }
    let total: u64 = others().filter_map(ContentLocation::from_record).map(|location| location.bytes).sum();
    if total + bytes > MAX_STORAGE_AREA_BYTES {
        return too_large(format!("all contents together have at most {MAX_STORAGE_AREA_BYTES} bytes"));
    }
    Ok(())
}

/// Description of a stored content, if it can be read.
fn storage_item(record: KeyValueRecord) -> Option<StorageEntry> {
    let location = ContentLocation::from_record(&record)?;
    Some(StorageEntry { name: record.key, bytes: location.bytes, hash: location.hash, at: record.at })
}

fn not_found_error(area: StorageArea) -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, format!("there is no content with this name in storage of {}", json!(area)))
}

/// Rejects a name that is empty, too long or not a plain file name.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_name_char = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if !name.is_empty()
        && name.len() <= MAX_STORAGE_NAME_LEN
        && !name.starts_with('.')
        && name.chars().all(is_name_char)
    {
        return Ok(());
    }
    let message = format!(
        "a name has 1 to {MAX_STORAGE_NAME_LEN} bytes, without slashes or control characters, and does not begin with a dot"
    );
    Err(ApiError::new(ApiErrorCode::InvalidArgument, message))
}
