//! What runners want remembered, by whom it is about.

use capstan_protocol::{ApiError, ApiErrorCode, Map, StateScope};
use capstan_tape::{Draft, Fact, Kept, StoreError};
use serde_json::{Value, json};

use super::run::Run;
use crate::keeping::{LONGEST_KEY, Space};

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
            StateScope::Conversation => json!(self.journal.tape()),
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

    /// The facts that set keys of a scope, and tell of it. `null` removes a key.
    pub(crate) async fn state_facts(&self, scope: StateScope, values: Map) -> Result<Vec<Fact>, ApiError> {
        let space = self.granted_space(scope)?;
        let limits = self.grant().state_limits;
        let store = self.services.tapes.store();
        let failed = |error: StoreError| crate::api::store_failed(&error);
        if self.journal.changes(&space) {
            // How much there is must be known.
            self.flush().await.map_err(failed)?;
        }
        let known = store.space(&space).await.map_err(failed)?;
        let (mut rows, mut bytes) = known.map_or((0, 0), |known| (known.rows, known.bytes));
        let at = self.services.settings.clock.now();
        let mut facts = Vec::new();
        let mut told = Vec::new();
        for (key, value) in values {
            if key.is_empty() || key.len() > LONGEST_KEY {
                let message = format!("a key of state has 1 to {LONGEST_KEY} bytes");
                return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
            }
            let size = value.to_string().len() as u64;
            if size > limits.value_bytes {
                let message =
                    format!("the value of {key} has {size} bytes, more than the {} allowed", limits.value_bytes);
                return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
            }
            let before = store.kept(&space, &key).await.map_err(failed)?;
            rows -= u64::from(before.is_some());
            bytes = bytes.saturating_sub(before.map_or(0, |before| before.bytes()));
            told.push(json!({ "key": key, "bytes": if value.is_null() { Value::Null } else { json!(size) } }));
            let space = space.clone();
            if value.is_null() {
                facts.push(Fact::Forget { space, key, at });
                continue;
            }
            let kept = Kept { space, key, value, at, by: Some(self.id().clone()) };
            rows += 1;
            bytes += kept.bytes();
            facts.push(Fact::Keep(kept));
        }
        if rows > limits.keys || bytes > limits.total_bytes {
            let message = format!(
                "state of scope {} would have {rows} keys and {bytes} bytes, more than the {} and {} allowed",
                json!(scope),
                limits.keys,
                limits.total_bytes
            );
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        let told = Draft::event(CHANGED, json!({ "scope": scope, "changes": told })).hidden();
        facts.push(self.journal.last_entry(self.id(), told));
        Ok(facts)
    }
}
