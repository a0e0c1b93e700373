//! Stored state of runners, by scope.

pub(crate) mod commit;

use capstan_protocol::{ApiError, ApiErrorCode, JsonObject, StateScope};
use capstan_tape::{
    CommitDurability, EntryDraft, Fact, FactOutput, KeyValueRecord, NamespaceRecord, QuotaUpdate, StateChange,
    StateKeyChange, StoreError, TapeEvent,
};
use serde_json::{Value, json};

use crate::api_error::store_api_error;
use crate::nesting;
use crate::payload_size::json_size;
use crate::run::{Run, dropped_result_entry};
use crate::state_admin::{MAX_STATE_KEY_LEN, RunnerNamespace};

/// Namespace of this run's state in a scope; `None` if the event has no owner of that scope. Every runner has
/// namespaces of its own.
pub(crate) fn state_namespace(run: &Run, scope: StateScope) -> Option<String> {
    let context = &run.context;
    let event = &context.event;
    let at_source = |id: &str| json!([event.source, event.bot_id, id]);
    let owner = match scope {
        // A child run shares the namespace of its session.
        StateScope::Conversation => json!(run.journal.session_tape()),
        StateScope::Actor => at_source(&context.actor.as_ref()?.id),
        StateScope::Subject => {
            let subject = context.subject.as_ref()?;
            json!([event.source, event.bot_id, subject.kind, subject.id])
        }
        StateScope::Binding => json!(context.trigger.binding_id),
        StateScope::Runner => Value::Null,
        StateScope::Workspace => json!(run.environment.workspace_id),
    };
    Some(RunnerNamespace::State { runner: run.runner.descriptor.id.clone(), scope, owner }.stored_name())
}

/// Namespace of a scope, if the grant covers the scope.
pub(crate) fn granted_namespace(run: &Run, scope: StateScope) -> Result<String, ApiError> {
    let namespace = state_namespace(run, scope).filter(|_| run.grant().may.state.contains(&scope));
    namespace.ok_or_else(|| {
        let message = format!("the grant of this run does not cover state of scope {}", json!(scope));
        ApiError::new(ApiErrorCode::Unauthorized, message)
    })
}

/// Stored state of the runner in every scope that the grant covers, by scope.
pub(crate) async fn state_snapshot(run: &Run) -> Result<JsonObject, StoreError> {
    let mut snapshot = JsonObject::new();
    let scopes = [
        StateScope::Conversation,
        StateScope::Actor,
        StateScope::Subject,
        StateScope::Binding,
        StateScope::Runner,
        StateScope::Workspace,
    ];
    for scope in scopes.into_iter().filter(|scope| run.grant().may.state.contains(scope)) {
        let Some(namespace) = state_namespace(run, scope) else { continue };
        let records = run.environment.tapes.store().key_values(&namespace).collect().await?;
        let values: JsonObject = records.into_iter().map(|record| (record.key, record.value)).collect();
        if let Value::String(name) = json!(scope) {
            snapshot.insert(name, Value::Object(values));
        }
    }
    Ok(snapshot)
}

/// Sets keys of a scope and records the change: durable on return. `null` removes a key.
pub(crate) async fn set_state(run: &Run, scope: StateScope, values: &JsonObject) -> Result<(), ApiError> {
    let mut change = build_state_change(run, scope, values)?;
    change.accepted_entry = run.journal.stamped_entry(run.id(), change.accepted_entry);
    let facts = vec![Fact::UpdateWithinQuota(Box::new(change))];
    let outputs = run.journal.flush_with(CommitDurability::Durable, Vec::new(), facts).await;
    match outputs.map_err(|error| store_api_error(&error))?.as_slice() {
        [FactOutput::WithinQuota(false)] => Err(state_quota_error(run, scope)),
        _ => Ok(()),
    }
}

/// Sets keys of a scope with the next commit, at the latest the one that ends the run. If other runs have used up
/// the quota by then, no key is set and the tape records the refusal.
pub(crate) async fn set_state_deferred(run: &Run, scope: StateScope, values: &JsonObject) -> Result<(), ApiError> {
    let mut change = build_state_change(run, scope, values)?;
    let to_api_error = |error: StoreError| store_api_error(&error);
    if run.journal.has_pending_change(&change.namespace) {
        // The quota check below needs the present totals.
        run.journal.flush().await.map_err(to_api_error)?;
    }
    let store = run.environment.tapes.store();
    let record = store.namespace(&change.namespace).await.map_err(to_api_error)?;
    let mut totals =
        record.unwrap_or_else(|| NamespaceRecord::empty(&*change.namespace, run.environment.options.clock.now()));
    for record in &change.changes {
        let before = store.key_value(&change.namespace, &record.key).await.map_err(to_api_error)?;
        totals.update_totals(before.as_ref(), record.unless_removed());
    }
    if !change.is_within_quota(&totals) {
        return Err(state_quota_error(run, scope));
    }
    let refusal = state_quota_error(run, scope).to_string();
    change.accepted_entry = run.journal.stamped_entry(run.id(), change.accepted_entry);
    change.rejected_entry = Some(EntryDraft {
        payload: dropped_result_entry("state.updated", &refusal).payload,
        ..change.accepted_entry.clone()
    });
    run.journal.push(Fact::UpdateWithinQuota(Box::new(change)));
    Ok(())
}

/// Builds the change that sets keys of a scope. Rejects keys and values that are never valid, regardless of the quota.
fn build_state_change(run: &Run, scope: StateScope, values: &JsonObject) -> Result<QuotaUpdate, ApiError> {
    let namespace = granted_namespace(run, scope)?;
    let limits = run.grant().state_limits;
    let (at, by) = (run.environment.options.clock.now(), Some(run.id().clone()));
    let (mut changes, mut key_changes) = (Vec::new(), Vec::new());
    for (key, value) in values {
        if key.is_empty() || key.len() > MAX_STATE_KEY_LEN {
            let message = format!("a key of state has 1 to {MAX_STATE_KEY_LEN} bytes");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        nesting::check_nesting(value)?;
        let (size, max_bytes) = (json_size(value), limits.value_bytes);
        if size > max_bytes {
            let message = format!("the value of {key} has {size} bytes, more than the {max_bytes} allowed");
            return Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message));
        }
        key_changes.push(StateKeyChange { key: key.clone(), bytes: (!value.is_null()).then_some(size) });
        let (key, value, by) = (key.clone(), value.clone(), by.clone());
        changes.push(KeyValueRecord { space: namespace.clone(), key, value, at, by });
    }
    let accepted_entry = TapeEvent::StateChanged(StateChange { scope, changes: key_changes }).into();
    Ok(QuotaUpdate {
        namespace,
        changes,
        max_rows: limits.keys,
        max_bytes: limits.total_bytes,
        tape: run.journal.tape().clone(),
        accepted_entry,
        rejected_entry: None,
    })
}

fn state_quota_error(run: &Run, scope: StateScope) -> ApiError {
    let (scope, limits) = (json!(scope), run.grant().state_limits);
    let message = format!(
        "state of scope {scope} would have more than the {} keys and {} bytes allowed",
        limits.keys, limits.total_bytes
    );
    ApiError::new(ApiErrorCode::PayloadTooLarge, message)
}
