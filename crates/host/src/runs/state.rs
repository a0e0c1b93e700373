//! What runners want remembered, by whom it is about.

use capstan_protocol::{ApiError, ApiErrorCode, Map, StateScope};
use capstan_tape::{Assigned, Draft, Fact, KeepWithin, Kept, SpaceRecord, StoreError};
use serde_json::{Value, json};

use super::run::Run;
use crate::api::size::of_json;
use crate::api::store_failed;
use crate::keeping::{LONGEST_KEY, Space};
use crate::nesting;
use crate::results::dropped;

/// The event that tells of what was kept, without the values.
const CHANGED: &str = "state.changed";

impl Run {
    /// The space in which this run keeps what it remembers about somebody; none if the event does not tell of such a one.
    /// Every runner has its own.
    pub(crate) fn state_space(&self, scope: StateScope) -> Option<String> {
        let context = &self.context;
        let event = &context.event;
        let at_source = |id: &str| json!([event.source, event.bot_id, id]);
        let owner = match scope {
            // A child has its session's.
            StateScope::Conversation => json!(self.journal.session_tape()),
            StateScope::Actor => at_source(&context.actor.as_ref()?.id),
            StateScope::Subject => {
                let subject = context.subject.as_ref()?;
                json!([event.source, event.bot_id, subject.kind, subject.id])
            }
            StateScope::Binding => json!(context.trigger.binding_id),
            StateScope::Runner => Value::Null,
            StateScope::Workspace => json!(self.services.workspace_id),
        };
        Some(Space::State { runner: self.runner.descriptor().id, scope, owner }.name())
    }

    /// The space, if the grant covers it.
    pub(crate) fn granted_space(&self, scope: StateScope) -> Result<String, ApiError> {
        let space = self.state_space(scope).filter(|_| self.grant().may.state.contains(&scope));
        space.ok_or_else(|| {
            let message = format!("the grant of this run does not cover state of scope {}", json!(scope));
            ApiError::new(ApiErrorCode::Unauthorized, message)
        })
    }

    /// Sets keys of a scope, and tells of it: on disk when this returns. `null` removes a key.
    pub(crate) async fn keep_state(&self, scope: StateScope, values: &Map) -> Result<(), ApiError> {
        let mut change = self.change(scope, values)?;
        change.kept = self.journal.next_entry(self.id(), change.kept);
        let assigned = self.journal.flush_with(vec![Fact::KeepWithin(Box::new(change))]).await;
        match assigned.map_err(|error| store_failed(&error))?.as_slice() {
            [Assigned::Kept(false)] => Err(self.no_room(scope)),
            _ => Ok(()),
        }
    }

    /// Sets keys of a scope with the next commit: where nothing comes between, with the one that ends the run. If others have
    /// taken the room by then nothing is set, and the tape tells so.
    pub(crate) async fn keep_state_later(&self, scope: StateScope, values: &Map) -> Result<(), ApiError> {
        let mut change = self.change(scope, values)?;
        let failed = |error: StoreError| store_failed(&error);
        if self.journal.changes(&change.space) {
            // How much there is must be known.
            self.flush().await.map_err(failed)?;
        }
        let store = self.services.tapes.store();
        let known = store.space(&change.space).await.map_err(failed)?;
        let mut space = known.unwrap_or_else(|| SpaceRecord::empty(&*change.space, self.services.settings.clock.now()));
        for kept in &change.changes {
            let before = store.kept(&change.space, &kept.key).await.map_err(failed)?;
            space.count(before.as_ref(), kept.remains());
        }
        if !change.fits(&space) {
            return Err(self.no_room(scope));
        }
        let refusal = self.no_room(scope).to_string();
        change.kept = self.journal.next_entry(self.id(), change.kept);
        change.refused = Some(Draft { payload: dropped("state.updated", &refusal).payload, ..change.kept.clone() });
        self.journal.push(Fact::KeepWithin(Box::new(change)));
        Ok(())
    }

    /// The change that sets keys of a scope. Refuses what is never kept, whatever is there.
    fn change(&self, scope: StateScope, values: &Map) -> Result<KeepWithin, ApiError> {
        let space = self.granted_space(scope)?;
        let limits = self.grant().state_limits;
        let (at, by) = (self.services.settings.clock.now(), Some(self.id().clone()));
        let (mut changes, mut told) = (Vec::new(), Vec::new());
        for (key, value) in values {
            if key.is_empty() || key.len() > LONGEST_KEY {
                let message = format!("a key of state has 1 to {LONGEST_KEY} bytes");
                return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
            }
            nesting::check(value)?;
            let (size, most) = (of_json(value), limits.value_bytes);
            if size > most {
                let message = format!("the value of {key} has {size} bytes, more than the {most} allowed");
                return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
            }
            told.push(json!({ "key": key, "bytes": if value.is_null() { Value::Null } else { json!(size) } }));
            let (space, key, value, by) = (space.clone(), key.clone(), value.clone(), by.clone());
            changes.push(Kept { space, key, value, at, by });
        }
        let told = Draft::event(CHANGED, json!({ "scope": scope, "changes": told })).hidden();
        Ok(KeepWithin {
            space,
            changes,
            most_rows: limits.keys,
            most_bytes: limits.total_bytes,
            tape: self.journal.tape().clone(),
            kept: told,
            refused: None,
        })
    }

    fn no_room(&self, scope: StateScope) -> ApiError {
        let (scope, limits) = (json!(scope), self.grant().state_limits);
        let message = format!(
            "state of scope {scope} would have more than the {} keys and {} bytes allowed",
            limits.keys, limits.total_bytes
        );
        ApiError::new(ApiErrorCode::PayloadTooLarge, message)
    }
}
