//! The spaces as they are kept.

use std::sync::Arc;

use capstan_protocol::{StateLimits, Timestamp};
use capstan_tape::{
    Batch, Draft, Expect, Fact, Kept, NewTape, SpaceRecord, Store, StoreError, TapeAddress, Tapes, tape_name,
};
use serde_json::{Value, json};

use super::{KeepingError, LONGEST_KEY, Place, Space};
use crate::Clock;
use crate::nesting::{self, Nested as _};

/// How often a change is tried again that a run or another process came before.
const RACES: usize = 16;
/// How many letters of a space's id are enough to name it.
const FEWEST_LETTERS: usize = 4;

/// The spaces of a host, in its store.
pub struct Spaces {
    store: Arc<dyn Store>,
    tapes: Tapes,
    clock: Clock,
    /// Where changes are told of.
    system: TapeAddress,
}

/// A space that something is kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The space.
    pub space: Space,
    /// How many keys it has.
    pub keys: u64,
    /// How much they and their values count for together.
    pub bytes: u64,
    /// When it changed last.
    pub at: Timestamp,
    /// How often it has changed.
    revision: u64,
}

impl Spaces {
    /// The spaces beneath these tapes. Changes are told of on this one.
    pub fn new(tapes: Tapes, clock: Clock, system: TapeAddress) -> Self {
        Self { store: Arc::clone(tapes.store()), tapes, clock, system }
    }

    /// Every space that something is kept in, by name.
    pub async fn all(&self) -> Result<Vec<Held>, StoreError> {
        let mut records = self.store.spaces("state:").await?;
        records.extend(self.store.spaces("storage:").await?);
        let held = |record: SpaceRecord| {
            let SpaceRecord { space, rows, bytes, at, revision } = record;
            Some(Held { space: Space::parse(&space)?, keys: rows, bytes, at, revision })
        };
        Ok(records.into_iter().filter(|record| record.rows > 0).filter_map(held).collect())
    }

    /// The space of an id, or of the beginning of one.
    pub async fn find(&self, wanted: &str) -> Result<Held, KeepingError> {
        let unknown = || KeepingError::UnknownSpace { wanted: wanted.to_owned() };
        if wanted.len() < FEWEST_LETTERS {
            return Err(unknown());
        }
        let mut found: Vec<Held> = self.all().await?;
        found.retain(|held| held.space.id().starts_with(wanted));
        match (found.len(), found.pop()) {
            (1, Some(held)) => Ok(held),
            (0, _) => Err(unknown()),
            (count, _) => Err(KeepingError::Ambiguous { wanted: wanted.to_owned(), count }),
        }
    }

    /// What is kept in a space, by key.
    pub async fn values(&self, space: &Space) -> Result<Vec<Kept>, StoreError> {
        self.store.kept_in(&space.name(), None, usize::MAX).await
    }

    /// What is kept under a key.
    pub async fn get(&self, space: &Space, key: &str) -> Result<Kept, KeepingError> {
        let kept = self.store.kept(&space.name(), key).await?;
        kept.ok_or_else(|| KeepingError::UnknownKey { space: space.id(), key: key.to_owned() })
    }

    /// Keeps a value under a key, within these limits.
    pub async fn set(&self, space: &Space, key: &str, value: Value, limits: StateLimits) -> Result<(), KeepingError> {
        check(space, key, &value, limits)?;
        let size = value.to_string().len();
        self.change("state.set", space, json!({ "key": key, "bytes": size }), |before| {
            let (name, at) = (space.name(), self.clock.now());
            let kept = Kept { space: name, key: key.to_owned(), value: value.clone(), at, by: None };
            let others = || before.iter().filter(|kept| kept.key != key);
            let (keys, bytes) = (others().count() as u64 + 1, others().map(Kept::bytes).sum::<u64>() + kept.bytes());
            if keys > limits.keys || bytes > limits.total_bytes {
                let (most, most_bytes) = (limits.keys, limits.total_bytes);
                let detail = format!("the space would have {keys} of {most} keys and {bytes} of {most_bytes} bytes");
                return Err(KeepingError::TooLarge { detail });
            }
            Ok(vec![Fact::Keep(kept)])
        })
        .await
        .map(drop)
    }

    /// Removes a key.
    pub async fn remove(&self, space: &Space, key: &str) -> Result<(), KeepingError> {
        self.change("state.removed", space, json!({ "key": key }), |before| {
            if !before.iter().any(|kept| kept.key == key) {
                return Err(KeepingError::UnknownKey { space: space.id(), key: key.to_owned() });
            }
            Ok(self.forget(space, before.iter().filter(|kept| kept.key == key)))
        })
        .await
        .map(drop)
    }

    /// Removes everything that is kept in a space, and says how many keys that were.
    pub async fn clear(&self, space: &Space, why: &str) -> Result<usize, KeepingError> {
        let told = json!({ "reason": why });
        self.change("state.cleared", space, told, |before| Ok(self.forget(space, before))).await
    }

    /// Removes the same if the space has not changed since it was found, and says whether that is so.
    pub async fn clear_unchanged(&self, held: &Held, why: &str) -> Result<bool, KeepingError> {
        let facts = self.forget(&held.space, &self.values(&held.space).await?);
        let change = Change { name: "state.cleared", space: &held.space, told: &json!({ "reason": why }) };
        match self.commit(&change, held.revision, facts).await {
            Err(StoreError::Changed { .. }) => Ok(false),
            done => Ok(done.map(|_| true)?),
        }
    }

    /// What removes these, contents included.
    fn forget<'a>(&self, space: &Space, kept: impl IntoIterator<Item = &'a Kept>) -> Vec<Fact> {
        let (name, at) = (space.name(), self.clock.now());
        let forget = |kept: &'a Kept| {
            let content = Some(kept).filter(|_| matches!(space, Space::Storage { .. })).and_then(Place::removal);
            std::iter::once(Fact::Forget { space: name.clone(), key: kept.key.clone(), at }).chain(content)
        };
        kept.into_iter().flat_map(forget).collect()
    }

    /// Changes a space by what `change` makes of what is kept in it, and tells of it. Gives how many keys that were.
    async fn change(
        &self,
        name: &str,
        space: &Space,
        told: Value,
        change: impl Fn(&[Kept]) -> Result<Vec<Fact>, KeepingError>,
    ) -> Result<usize, KeepingError> {
        let stored = space.name();
        for _ in 0..RACES {
            let revision = self.store.space(&stored).await?.map_or(0, |space| space.revision);
            let facts = change(&self.values(space).await?)?;
            match self.commit(&Change { name, space, told: &told }, revision, facts).await {
                Err(StoreError::Changed { .. }) => {}
                done => return Ok(done?),
            }
        }
        Err(StoreError::Changed { space: stored }.into())
    }

    /// Changes a space that has changed so often before. Gives how many keys that were.
    async fn commit(&self, change: &Change<'_>, revision: u64, facts: Vec<Fact>) -> Result<usize, StoreError> {
        let count = facts.iter().filter(|fact| matches!(fact, Fact::Keep(_) | Fact::Forget { .. })).count();
        if count == 0 {
            return Ok(0);
        }
        let Change { name, space, told } = change;
        let mut batch = Batch { facts, ..Batch::new() };
        batch.expect.push(Expect::Space { space: space.name(), revision });
        let (tape, session) = (tape_name(&self.system), Some(self.system.session.clone()));
        let workspace = Some(self.system.workspace.clone());
        batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::named(tape.clone()) }));
        // Never the values: they are nobody else's business.
        let told = json!({ "space": space.id(), "name": space.name(), "keys": count, "change": told });
        batch.append(&tape, Draft { date: Some(self.clock.now().into()), ..Draft::event(name, told) });
        self.tapes.commit(batch).await.map(|_| count)
    }
}

/// A change of a space, as it is told.
struct Change<'a> {
    name: &'a str,
    space: &'a Space,
    told: &'a Value,
}

/// Refuses what no runner could have kept there.
fn check(space: &Space, key: &str, value: &Value, limits: StateLimits) -> Result<(), KeepingError> {
    let invalid = |detail: String| Err(KeepingError::Invalid { detail });
    if let Space::Storage { .. } = space {
        return invalid("contents are put into storage by runners alone".to_owned());
    }
    if key.is_empty() || key.len() > LONGEST_KEY {
        return invalid(format!("a key of state has 1 to {LONGEST_KEY} bytes"));
    }
    if value.is_null() {
        return invalid("null is no value; `capstan state remove` removes a key".to_owned());
    }
    if value.is_too_deep() {
        return invalid(nesting::reason());
    }
    let size = value.to_string().len() as u64;
    if size > limits.value_bytes {
        return Err(KeepingError::TooLarge { detail: format!("the value has {size} of {} bytes", limits.value_bytes) });
    }
    Ok(())
}
