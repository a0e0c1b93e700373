//! Platform actions: requests to the platform that an event came from.
//!
//! An action is performed if the runner requests it, the binding allows it and the channel offers it; a refusal is
//! recorded with its reason. An action is performed at most once: its start is durable before the channel is called,
//! and an action whose end was not recorded is never repeated.

mod recorded_actions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use capstan_hooks::contracts::{Channel, ChannelError, ChannelErrorKind, PlatformAction};
use capstan_protocol::{ActionId, ActionRequest, ActionSpec, ApiError, ApiErrorCode, ErrorCode, truncate_chars};
use capstan_tape::{ActionEnd, ActionEndRecord, ActionRefusal, ActionStart, ChildActions, EntryDraft, Fact, TapeEvent};
use futures::FutureExt as _;
use serde_json::Value;

pub use self::recorded_actions::{RecordedActions, collect_family_actions, read_recorded_actions};
use crate::action_registry::{self, ActionDenial, MAX_ACTION_NAME_LEN};
use crate::api_error::store_api_error;
use crate::run::Run;

/// Reason why this run may not perform an action, if it may not. The grant decides; the runner's permissions only
/// tell whether the runner or the binding is named as the reason.
pub(crate) fn action_denial(run: &Run, action: &str) -> Option<ActionDenial> {
    let runner = &run.runner.descriptor;
    if run.grant().may.platform_api.allows(action) {
        None
    } else if runner.permissions.platform_api.allows(action) {
        Some(ActionDenial::Binding(run.context.trigger.binding_id.clone()))
    } else {
        Some(ActionDenial::Runner(runner.id.clone()))
    }
}

/// Actions that the channel of the run's event offers and the grant covers.
pub(crate) fn permitted_actions(run: &Run) -> Vec<ActionSpec> {
    let offered = run.environment.actions.actions_of(&run.context.event.source);
    offered.filter(|action| run.grant().may.platform_api.allows(&action.name)).cloned().collect()
}

/// Performs an action on the platform, if it is allowed. The result or the refusal is recorded.
pub(crate) async fn perform_action(run: &Run, request: ActionRequest) -> Result<Value, ApiError> {
    let channel = match resolve_action_channel(run, &request) {
        Ok(channel) => channel,
        Err(denial) => {
            let name = truncate_chars(&request.action, MAX_ACTION_NAME_LEN, "");
            record_refused_action(run, &name, &denial);
            let message = format!("the action {name} was not performed: {denial}");
            return Err(ApiError::new(denial.code(), message));
        }
    };
    let action = begin_action(run, request);
    if let Err(error) = run.journal.flush().await {
        end_action(
            run,
            &action.id,
            ActionEnd::Failed { reason: "the store failed before the channel was asked".to_owned() },
        );
        return Err(store_api_error(&error));
    }
    let end = call_channel(run, channel.as_ref(), &action).await;
    end_action(run, &action.id, end.clone());
    run.journal.flush().await.map_err(|error| store_api_error(&error))?;
    let runtime_error = |message: String| ApiError::new(ApiErrorCode::RuntimeError, message);
    match end {
        ActionEnd::Done { output } => Ok(output),
        ActionEnd::Failed { reason } => Err(runtime_error(format!("the action {} failed: {reason}", action.name))),
        ActionEnd::Unknown { reason } => {
            let message = format!("it is not known whether the action {} was performed: {reason}", action.name);
            Err(runtime_error(message).with_cause(ErrorCode::ActionUnknown))
        }
    }
}

/// Channel that performs the action, if it is allowed.
fn resolve_action_channel(run: &Run, request: &ActionRequest) -> Result<Arc<dyn Channel>, ActionDenial> {
    if let Some(denial) = action_denial(run, &request.action) {
        return Err(denial);
    }
    let source = &run.context.event.source;
    run.environment.actions.resolve(source, &request.action, &request.arguments).cloned()
}

/// Records a refused request. If a runner sends many, only the first ones get entries of their own.
fn record_refused_action(run: &Run, action: &str, denial: &ActionDenial) {
    if run.progress().result_validator.should_record_drop() {
        let reason = denial.to_string();
        tracing::warn!(run_id = %run.id(), action, reason, "refused an action");
        let refusal = ActionRefusal { action: action.to_owned(), by: denial.denied_by(), reason };
        run.append(TapeEvent::ActionRefused(refusal).into());
    }
}

fn begin_action(run: &Run, request: ActionRequest) -> PlatformAction {
    let event = run.context.event.clone();
    let mut progress = run.progress();
    let id = ActionId::new(format!("{}.{}", run.id(), progress.actions.started.len() + 1));
    progress.actions.open.push((id.clone(), request.action.clone()));
    progress.actions.started.push(request.action.clone());
    let start = ActionStart {
        action_id: id.clone(),
        action: request.action.clone(),
        channel: event.source.clone(),
        arguments: request.arguments.clone(),
    };
    run.append(TapeEvent::ActionStarted(start).into());
    PlatformAction { id, name: request.action, arguments: request.arguments, event }
}

/// Calls the channel, with a timeout. A panic of the channel is caught.
async fn call_channel(run: &Run, channel: &dyn Channel, action: &PlatformAction) -> ActionEnd {
    let limits = &run.environment.options.limits;
    let call = AssertUnwindSafe(async { channel.perform_action(action).await }).catch_unwind();
    match tokio::time::timeout(limits.action_timeout, call).await {
        Ok(Ok(Ok(mut answer))) => {
            run.environment.options.secret_masker.mask_value(&mut answer);
            ActionEnd::Done { output: action_registry::limit_answer(answer, limits.results.tool_bytes) }
        }
        Ok(Ok(Err(ChannelError { kind: ChannelErrorKind::Unknown, message, .. }))) => {
            ActionEnd::Unknown { reason: mask_message(run, message) }
        }
        Ok(Ok(Err(error))) => ActionEnd::Failed { reason: mask_message(run, error.message) },
        Ok(Err(_)) => ActionEnd::Unknown { reason: "the channel crashed".to_owned() },
        Err(_) => {
            let seconds = limits.action_timeout.as_secs();
            ActionEnd::Unknown { reason: format!("the channel did not answer within {seconds} seconds") }
        }
    }
}

fn mask_message(run: &Run, mut message: String) -> String {
    let max_bytes = usize::try_from(run.environment.options.limits.results.error_bytes).unwrap_or(usize::MAX);
    let masker = &run.environment.options.secret_masker;
    message.truncate(masker.safe_cut(&message, max_bytes));
    masker.mask_text(&mut message);
    message
}

/// Records the end of an action, once: after the end of the run the action is closed already.
fn end_action(run: &Run, id: &ActionId, end: ActionEnd) {
    let mut progress = run.progress();
    let Some(position) = progress.actions.open.iter().position(|(open, _)| open == id) else { return };
    let (id, name) = progress.actions.open.remove(position);
    // Under the lock, so that the run cannot end in between.
    run.append_atomic(Vec::new(), vec![action_ended_entry(id, name.clone(), end)], Some(name));
}

/// Closes the actions that are still open when the run ends: their result is unknown.
pub(crate) fn end_open_actions(run: &Run) {
    let mut progress = run.progress();
    for (id, name) in std::mem::take(&mut progress.actions.open) {
        let reason = "the run was broken off before the channel had answered".to_owned();
        run.append(action_ended_entry(id, name, ActionEnd::Unknown { reason }));
    }
}

/// Adds the actions of this run to those of its parent. Returns the fact that records them on the parent's tape, to
/// be committed with the end of this run, so that neither run is repeated.
pub(crate) fn report_actions_to_parent(run: &Run, parent: &Run) -> Option<Fact> {
    let actions = run.progress().actions.started.clone();
    if actions.is_empty() {
        return None;
    }
    parent.progress().actions.started.extend(actions.iter().cloned());
    let event = TapeEvent::ActionByChild(ChildActions { run_id: run.id().clone(), actions });
    Some(parent.journal.stamped_entry_fact(parent.id(), event.into()))
}

/// Entry that records the end of an action.
fn action_ended_entry(action_id: ActionId, action: String, end: ActionEnd) -> EntryDraft {
    TapeEvent::ActionEnded(ActionEndRecord { action_id, action, end }).into()
}
