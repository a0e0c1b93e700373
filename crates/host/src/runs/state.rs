//! Stored state of runners, by scope.

use capstan_protocol::{ApiError, ApiErrorCode, JsonObject, StateScope};
use capstan_tape::{
    EntryDraft, Fact, FactOutput, KeyValueRecord, NamespaceRecord, QuotaUpdate, StateChange, StateKeyChange,
    StoreError, TapeEvent,
};
use serde_json::{Value, json};

use super::run::Run;
use crate::api::payload_size::json_size;
use crate::api::store_api_error;
use crate::nesting;
use crate::results::dropped_result_entry;
use crate::state_admin::{MAX_STATE_KEY_LEN, RunnerNamespace};

impl Run {
    /// The namespace of this run's state in a scope; `None` if the event has no owner of that scope. Every runner has
    /// namespaces of its own.
    pub(crate) fn state_namespace(&self, scope: StateScope) -> Option<String> {
        let context = &self.context;
        let event = &context.event;
        let at_source = |id: &str| json!([event.source, event.bot_id, id]);
        let owner = match scope {
            // A child run shares the namespace of its session.
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
        Some(RunnerNamespace::State { runner: self.runner.descriptor().id, scope, owner }.stored_name())
    }

    /// The namespace, if the grant covers the scope.
    pub(crate) fn granted_namespace(&self, scope: StateScope) -> Result<String, ApiError> {
        let space = self.state_namespace(scope).filter(|_| self.grant().may.state.contains(&scope));
        space.ok_or_else(|| {
            let message = format!("the grant of this run does not cover state of scope {}", json!(scope));
            ApiError::new(ApiErrorCode::Unauthorized, message)
        })
    }

    /// Sets keys of a scope and records the change: durable on return. `null` removes a key.
    pub(crate) async fn set_state(&self, scope: StateScope, values: &JsonObject) -> Result<(), ApiError> {
        let mut change = self.build_state_change(scope, values)?;
        change.accepted_entry = self.journal.next_entry(self.id(), change.accepted_entry);
        let assigned = self.journal.flush_with(vec![Fact::UpdateWithinQuota(Box::new(change))]).await;
        match assigned.map_err(|error| store_api_error(&error))?.as_slice() {
            [FactOutput::WithinQuota(false)] => Err(self.state_quota_error(scope)),
            _ => Ok(()),
        }
    }

    /// Sets keys of a scope with the next commit, at the latest the one that ends the run. If other runs have used up
    /// the quota by then, no key is set and the tape records the refusal.
    pub(crate) async fn set_state_deferred(&self, scope: StateScope, values: &JsonObject) -> Result<(), ApiError> {
        let mut change = self.build_state_change(scope, values)?;
        let failed = |error: StoreError| store_api_error(&error);
        if self.journal.has_pending_change(&change.namespace) {
            // The quota check below needs the present totals.
            self.flush().await.map_err(failed)?;
        }
        let store = self.services.tapes.store();
        let record = store.namespace(&change.namespace).await.map_err(failed)?;
        let mut totals =
            record.unwrap_or_else(|| NamespaceRecord::empty(&*change.namespace, self.services.options.clock.now()));
        for record in &change.changes {
            let before = store.key_value(&change.namespace, &record.key).await.map_err(failed)?;
            totals.update_totals(before.as_ref(), record.unless_removed());
        }
        if !change.is_within_quota(&totals) {
            return Err(self.state_quota_error(scope));
        }
        let refusal = self.state_quota_error(scope).to_string();
        change.accepted_entry = self.journal.next_entry(self.id(), change.accepted_entry);
        change.rejected_entry = Some(EntryDraft {
            payload: dropped_result_entry("state.updated", &refusal).payload,
            ..change.accepted_entry.clone()
        });
        self.journal.push(Fact::UpdateWithinQuota(Box::new(change)));
        Ok(())
    }

    /// The change that sets keys of a scope. Rejects keys and values that are never valid, regardless of the quota.
    fn build_state_change(&self, scope: StateScope, values: &JsonObject) -> Result<QuotaUpdate, ApiError> {
        let space = self.granted_namespace(scope)?;
        let limits = self.grant().state_limits;
        let (at, by) = (self.services.options.clock.now(), Some(self.id().clone()));
        let (mut changes, mut key_changes) = (Vec::new(), Vec::new());
        for (key, value) in values {
            if key.is_empty() || key.len() > MAX_STATE_KEY_LEN {
                let message = format!("a state key has 1 to {MAX_STATE_KEY_LEN} bytes");
                return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
            }
            nesting::check_nesting(value)?;
            let (size, max_bytes) = (json_size(value), limits.value_bytes);
            if size > max_bytes {
                let message = format!("the value of {key} has {size} bytes, more than the {max_bytes} allowed");
                return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
            }
            key_changes.push(StateKeyChange { key: key.clone(), bytes: (!value.is_null()).then_some(size) });
            let (space, key, value, by) = (space.clone(), key.clone(), value.clone(), by.clone());
            changes.push(KeyValueRecord { space, key, value, at, by });
        }
        let accepted_entry = TapeEvent::StateChanged(StateChange { scope, changes: key_changes }).into();
        Ok(QuotaUpdate {
            namespace: space,
            changes,
            max_rows: limits.keys,
            max_bytes: limits.total_bytes,
            tape: self.journal.tape().clone(),
            accepted_entry,
            rejected_entry: None,
        })
    }

    fn state_quota_error(&self, scope: StateScope) -> ApiError {
        let (scope, limits) = (json!(scope), self.grant().state_limits);
        let message = format!(
            "state of scope {scope} would have more than the {} keys and {} bytes allowed",
            limits.keys, limits.total_bytes
        );
        ApiError::new(ApiErrorCode::PayloadTooLarge, message)
    }
}
