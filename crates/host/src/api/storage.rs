//! Contents by name, as a run may keep them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, Page, StorageApi, Stored};
use capstan_protocol::{ApiError, ApiErrorCode, StorageArea};
use capstan_tape::{Draft, Fact, Kept};
use serde_json::json;

use super::cursor::List;
use super::{parts, store_failed};
use crate::keeping::{Place, Space};
use crate::runs::kept::{RACES, contested};
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

#[async_trait]
impl StorageApi for Storage {
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<Stored, ApiError> {
        check_name(name)?;
        if content.len() as u64 > MOST_BYTES {
            let message = format!("a content has at most {MOST_BYTES} bytes");
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        let (run, space) = (&self.0, self.space(area));
        let _alone = parts::change(run).await?;
        let (place, content) = Place::of(content);
        let at = run.services.settings.clock.now();
        let stored = Stored { name: name.to_owned(), bytes: place.bytes, hash: place.hash.clone(), at };
        let kept = Kept { space, key: name.to_owned(), value: json!(place), at, by: Some(run.id().clone()) };
        let told = Told { area, name, bytes: Some(stored.bytes) };
        self.change(&kept.space, told, |before: &[Kept]| {
            check_room(before, name, stored.bytes)?;
            let mut facts = vec![content.clone(), Fact::Keep(kept.clone())];
            facts.extend(named(before, name).and_then(Place::removal));
            Ok(facts)
        })
        .await?;
        Ok(stored)
    }

    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError> {
        let (store, space) = (self.0.services.tapes.store(), self.space(area));
        for _ in 0..RACES {
            let kept = store.kept(&space, name).await.map_err(|error| store_failed(&error))?;
            let place = kept.as_ref().and_then(Place::read).ok_or_else(|| not_there(area))?;
            if let Some(blob) = store.blob(place.blob()).await.map_err(|error| store_failed(&error))? {
                return Ok(place.content(blob));
            }
            // Another content stands there by now, and the old one is gone.
        }
        Err(contested())
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
        let told = Told { area, name, bytes: None };
        let at = run.services.settings.clock.now();
        self.change(&space, told, |before: &[Kept]| {
            let Some(kept) = named(before, name) else { return Ok(Vec::new()) };
            let forget = Fact::Forget { space: space.clone(), key: name.to_owned(), at };
            Ok(std::iter::once(forget).chain(Place::removal(kept)).collect())
        })
        .await
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

    /// Changes a space by what `change` makes of what is kept in it, and tells of it. Says whether there was anything to
    /// change.
    async fn change(
        &self,
        space: &str,
        told: Told<'_>,
        change: impl Fn(&[Kept]) -> Result<Vec<Fact>, ApiError> + Sync,
    ) -> Result<bool, ApiError> {
        let run = &self.0;
        let most = usize::try_from(MOST_NAMES).unwrap_or(usize::MAX);
        let mut entry = None;
        for _ in 0..RACES {
            let revision = run.revision(space).await?;
            let before = run.services.tapes.store().kept_in(space, None, most).await;
            let mut facts = change(&before.map_err(|error| store_failed(&error))?)?;
            if facts.is_empty() {
                return Ok(false);
            }
            facts.push(entry.get_or_insert_with(|| run.journal.last_entry(run.id(), told.entry())).clone());
            if run.keep(space, revision, facts).await? {
                return Ok(true);
            }
        }
        Err(contested())
    }
}

/// What is told of a change.
struct Told<'a> {
    area: StorageArea,
    name: &'a str,
    /// How large the content is; none: it is gone.
    bytes: Option<u64>,
}

impl Told<'_> {
    fn entry(&self) -> Draft {
        Draft::event(CHANGED, json!({ "area": self.area, "name": self.name, "bytes": self.bytes })).hidden()
    }
}

/// What stands under a name.
fn named<'a>(kept: &'a [Kept], name: &str) -> Option<&'a Kept> {
    kept.iter().find(|kept| kept.key == name)
}

/// Refuses what there is no room for. What stood under the name goes.
fn check_room(before: &[Kept], name: &str, bytes: u64) -> Result<(), ApiError> {
    let too_large = |message: String| Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
    let others = || before.iter().filter(|kept| kept.key != name);
    if others().count() as u64 >= MOST_NAMES {
        return too_large(format!("there are {MOST_NAMES} contents already, and no more are kept"));
    }
    let in_all: u64 = others().filter_map(Place::read).map(|place| place.bytes).sum();
    if in_all + bytes > MOST_IN_ALL {
        return too_large(format!("all contents together have at most {MOST_IN_ALL} bytes"));
    }
    Ok(())
}

/// What is known about a content, if it can be read.
fn stored(kept: Kept) -> Option<Stored> {
    let place = Place::read(&kept)?;
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
