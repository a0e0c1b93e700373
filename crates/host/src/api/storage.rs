//! Contents by name, as a run may keep them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, Page, StorageApi, Stored};
use capstan_protocol::{ApiError, ApiErrorCode, BlobHash, StorageArea};
use capstan_tape::{Draft, Fact, Kept, blob_hash};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cursor::List;
use super::{parts, store_failed};
use crate::keeping::Space;
use crate::runs::run::Run;

/// The event that tells of what was kept.
const CHANGED: &str = "storage.changed";
/// How long a name may be.
const LONGEST_NAME: usize = 255;
/// The largest content that is kept.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// How many names an area has.
const MOST_NAMES: u64 = 1_000;
/// How much all contents of an area count for together.
const MOST_IN_ALL: u64 = 256 * 1024 * 1024;

pub(super) struct Storage(pub(super) Arc<Run>);

/// What stands under a name: the content is kept apart, once.
#[derive(Serialize, Deserialize)]
struct Place {
    hash: BlobHash,
    bytes: u64,
}

#[async_trait]
impl StorageApi for Storage {
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<Stored, ApiError> {
        check_name(name)?;
        let (run, space) = (&self.0, self.space(area));
        let _alone = parts::change(run).await?;
        let place = Place { hash: blob_hash(&content), bytes: content.len() as u64 };
        self.check_room(&space, name, place.bytes).await?;
        let at = run.services.settings.clock.now();
        let stored = Stored { name: name.to_owned(), bytes: place.bytes, hash: place.hash.clone(), at };
        let kept = Kept { space, key: name.to_owned(), value: json!(place), at, by: Some(run.id().clone()) };
        let content = Fact::PutBlob { hash: stored.hash.clone(), bytes: content.into() };
        self.write(vec![content, Fact::Keep(kept)], area, name, Some(stored.bytes)).await?;
        Ok(stored)
    }

    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError> {
        let store = self.0.services.tapes.store();
        let kept = store.kept(&self.space(area), name).await.map_err(|error| store_failed(&error))?;
        let hash = kept.and_then(stored).map(|stored| stored.hash).ok_or_else(|| not_there(area))?;
        let content = store.blob(&hash).await.map_err(|error| store_failed(&error))?;
        content.ok_or_else(|| not_there(area))
    }

    async fn list(&self, area: StorageArea, cursor: Option<&str>, limit: usize) -> Result<Page<Stored>, ApiError> {
        let space = self.space(area);
        let list = List { method: ApiMethod::StorageList, of: &space };
        let page = parts::kept(&self.0, &list, cursor, limit).await?;
        Ok(Page { items: page.items.into_iter().filter_map(stored).collect(), next: page.next })
    }

    async fn delete(&self, area: StorageArea, name: &str) -> Result<bool, ApiError> {
        let (run, space) = (&self.0, self.space(area));
        let _alone = parts::change(run).await?;
        let kept = run.services.tapes.store().kept(&space, name).await.map_err(|error| store_failed(&error))?;
        if kept.is_none() {
            return Ok(false);
        }
        let at = run.services.settings.clock.now();
        self.write(vec![Fact::Forget { space, key: name.to_owned(), at }], area, name, None).await?;
        Ok(true)
    }
}

impl Storage {
    /// The space of an area, by whom it belongs to.
    fn space(&self, area: StorageArea) -> String {
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
        Space::Storage { area, owner }.name()
    }

    /// Refuses what there is no room for. What stood under the name goes.
    async fn check_room(&self, space: &str, name: &str, bytes: u64) -> Result<(), ApiError> {
        let too_large = |message: String| Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        if bytes > MOST_BYTES {
            return too_large(format!("a content has at most {MOST_BYTES} bytes"));
        }
        let store = self.0.services.tapes.store();
        let most = usize::try_from(MOST_NAMES).unwrap_or(usize::MAX);
        let kept = store.kept_in(space, None, most).await.map_err(|error| store_failed(&error))?;
        let others = || kept.iter().filter(|kept| kept.key != name);
        if others().count() as u64 >= MOST_NAMES {
            return too_large(format!("there are {MOST_NAMES} contents already, and no more are kept"));
        }
        let in_all: u64 = others().cloned().filter_map(stored).map(|stored| stored.bytes).sum();
        if in_all + bytes > MOST_IN_ALL {
            return too_large(format!("all contents together have at most {MOST_IN_ALL} bytes"));
        }
        Ok(())
    }

    async fn write(&self, facts: Vec<Fact>, area: StorageArea, name: &str, bytes: Option<u64>) -> Result<(), ApiError> {
        let told = Draft::event(CHANGED, json!({ "area": area, "name": name, "bytes": bytes })).hidden();
        let did_nothing_else = None;
        self.0.append_together(facts, vec![told], did_nothing_else);
        self.0.flush().await.map_err(|error| store_failed(&error))
    }
}

/// What is known about a content, if it can be read.
fn stored(kept: Kept) -> Option<Stored> {
    let place = Place::deserialize(&kept.value).ok()?;
    Some(Stored { name: kept.key, bytes: place.bytes, hash: place.hash, at: kept.at })
}

fn not_there(area: StorageArea) -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, format!("nothing is kept under this name in storage of {}", json!(area)))
}

/// Refuses what is more than a name.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_name = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.chars().all(is_name) {
        return Ok(());
    }
    let message = format!(
        "a name has 1 to {LONGEST_NAME} bytes, without slashes or control characters, and does not begin with a dot"
    );
    Err(ApiError::new(ApiErrorCode::InvalidArgument, message))
}
