//! Actions on the platform that an event came from.
//!
//! An action is performed if the runner requests it, the binding allows it and the channel offers it; a refusal is
//! recorded with its reason. An action is performed at most once: its start is durable before the channel is called,
//! and an action whose end was not recorded is never repeated.

mod action_registry;
mod recorded_actions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use capstan_hooks::contracts::{Channel, ChannelError, ChannelErrorKind, PlatformAction};
use capstan_protocol::{ActionId, ActionRequest, ApiError, ApiErrorCode, BindingId, ChannelName, ErrorCode, RunnerId};
use capstan_tape::{
    ActionDenier, ActionEnd, ActionEndRecord, ActionRefusal, ActionStart, ChildActions, EntryDraft, Fact, TapeEvent,
};
use futures::FutureExt as _;
use serde_json::Value;

pub(crate) use self::action_registry::ActionRegistry;
pub(crate) use self::recorded_actions::{RecordedActions, collect_family_actions, read_recorded_actions};
use crate::api::store_api_error;
use crate::runs::run::Run;

/// Maximum length of the name of an action, in bytes.
const MAX_ACTION_NAME_LEN: usize = 128;

/// Reason why an action is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionDenial {
    /// The runner's permissions do not include the action.
    #[error("the runner {0} does not ask for it")]
    Runner(RunnerId),
    /// The binding's policy does not include the action.
    #[error("the binding {0} does not allow it")]
    Binding(BindingId),
    /// The channel of the event does not offer the action.
    #[error("the channel {0} has no such action")]
    Channel(ChannelName),
    /// The arguments do not match the schema of the action.
    #[error("its arguments are not valid: {0}")]
    Arguments(String),
}

impl ActionDenial {
    fn denied_by(&self) -> ActionDenier {
        match self {
            Self::Runner(_) => ActionDenier::Runner,
            Self::Binding(_) => ActionDenier::Binding,
            Self::Channel(_) => ActionDenier::Channel,
            Self::Arguments(_) => ActionDenier::Arguments,
        }
    }

    fn code(&self) -> ApiErrorCode {
        match self {
            Self::Runner(_) | Self::Binding(_) => ApiErrorCode::Unauthorized,
            Self::Channel(_) => ApiErrorCode::NotFound,
            Self::Arguments(_) => ApiErrorCode::InvalidArgument,
        }
    }
}

/// The actions of a run: those that are still open, and the names of all that were started.
#[derive(Default)]
pub(crate) struct RunActions {
    open: Vec<(ActionId, String)>,
    /// Names of all started actions, in order.
    started: Vec<String>,
}

impl Run {
    /// Reason why this run may not perform an action, if it may not. The grant decides; the runner's permissions only
    /// tell whether the runner or the binding is named as the reason.
    pub(crate) fn action_denial(&self, action: &str) -> Option<ActionDenial> {
        let runner = self.runner.descriptor();
        if self.grant().may.platform_api.allows(action) {
            None
        } else if runner.permissions.platform_api.allows(action) {
            Some(ActionDenial::Binding(self.context.trigger.binding_id.clone()))
        } else {
            Some(ActionDenial::Runner(runner.id))
        }
    }

    /// Performs an action on the platform, if it is allowed. The result or the refusal is recorded.
    pub(crate) async fn perform_action(&self, request: ActionRequest) -> Result<Value, ApiError> {
        let channel = match self.resolve_action_channel(&request) {
            Ok(channel) => channel,
            Err(denial) => {
                let name: String = request.action.chars().take(MAX_ACTION_NAME_LEN).collect();
                self.record_refused_action(&name, &denial);
                let message = format!("the action {name} was not performed: {denial}");
                return Err(ApiError::new(denial.code(), message));
            }
        };
        let action = self.begin_action(request);
        if let Err(error) = self.flush().await {
            self.end_action(
                &action.id,
                ActionEnd::Failed { reason: "the store failed before the channel was called".to_owned() },
            );
            return Err(store_api_error(&error));
        }
        let end = self.call_channel(channel.as_ref(), &action).await;
        self.end_action(&action.id, end.clone());
        self.flush().await.map_err(|error| store_api_error(&error))?;
        let failed = |message: String| ApiError::new(ApiErrorCode::RuntimeError, message);
        match end {
            ActionEnd::Done { output } => Ok(output),
            ActionEnd::Failed { reason } => Err(failed(format!("the action {} failed: {reason}", action.name))),
            ActionEnd::Unknown { reason } => {
                let message = format!("it is not known whether the action {} was performed: {reason}", action.name);
                Err(failed(message).with_cause(ErrorCode::ActionUnknown))
            }
        }
    }

    /// The channel that performs the action, if it is allowed.
    fn resolve_action_channel(&self, request: &ActionRequest) -> Result<Arc<dyn Channel>, ActionDenial> {
        if let Some(denial) = self.action_denial(&request.action) {
            return Err(denial);
        }
        let source = &self.context.event.source;
        self.services.actions.check(source, &request.action, &request.arguments)?;
        self.services.channels.get(source).cloned().ok_or_else(|| ActionDenial::Channel(source.clone()))
    }

    /// Records a refused request. If a runner sends many, only the first ones get entries of their own.
    fn record_refused_action(&self, action: &str, denial: &ActionDenial) {
        if self.progress().result_validator.should_record_drop() {
            let reason = denial.to_string();
            tracing::warn!(run_id = %self.id(), action, reason, "an action was refused");
            let refusal = ActionRefusal { action: action.to_owned(), by: denial.denied_by(), reason };
            self.append(TapeEvent::ActionRefused(refusal).into());
        }
    }

    fn begin_action(&self, request: ActionRequest) -> PlatformAction {
        let event = self.context.event.clone();
        let mut progress = self.progress();
        let id = ActionId::new(format!("{}.{}", self.id(), progress.actions.started.len() + 1));
        progress.actions.open.push((id.clone(), request.action.clone()));
        progress.actions.started.push(request.action.clone());
        let start = ActionStart {
            action_id: id.clone(),
            action: request.action.clone(),
            channel: event.source.clone(),
            arguments: request.arguments.clone(),
        };
        self.append(TapeEvent::ActionStarted(start).into());
        PlatformAction { id, name: request.action, arguments: request.arguments, event }
    }

    /// Calls the channel, with a timeout. A panic of the channel is caught.
    async fn call_channel(&self, channel: &dyn Channel, action: &PlatformAction) -> ActionEnd {
        let limits = &self.services.options.limits;
        let call = AssertUnwindSafe(async { channel.perform_action(action).await }).catch_unwind();
        match tokio::time::timeout(limits.action_timeout, call).await {
            Ok(Ok(Ok(mut answer))) => {
                self.services.options.secret_masker.mask_value(&mut answer);
                ActionEnd::Done { output: action_registry::limit_answer(answer, limits.results.tool_bytes) }
            }
            Ok(Ok(Err(ChannelError { kind: ChannelErrorKind::Unknown, message, .. }))) => {
                ActionEnd::Unknown { reason: self.mask_message(message) }
            }
            Ok(Ok(Err(error))) => ActionEnd::Failed { reason: self.mask_message(error.message) },
            Ok(Err(_)) => ActionEnd::Unknown { reason: "the channel crashed".to_owned() },
            Err(_) => {
                let seconds = limits.action_timeout.as_secs();
                ActionEnd::Unknown { reason: format!("the channel did not answer within {seconds} seconds") }
            }
        }
    }

    fn mask_message(&self, mut message: String) -> String {
        let max_bytes = usize::try_from(self.services.options.limits.results.error_bytes).unwrap_or(usize::MAX);
        let secrets = &self.services.options.secret_masker;
        message.truncate(secrets.safe_cut(&message, max_bytes));
        secrets.mask_text(&mut message);
        message
    }

    /// Records the end of an action, once: after the end of the run the action is closed already.
    fn end_action(&self, id: &ActionId, end: ActionEnd) {
        let mut progress = self.progress();
        let Some(position) = progress.actions.open.iter().position(|(open, _)| open == id) else { return };
        let (id, name) = progress.actions.open.remove(position);
        // Under the lock, so that the run cannot end in between.
        self.append_atomic(Vec::new(), vec![action_ended_entry(id, name.clone(), end)], Some(name));
    }

    /// Closes the actions that are still open when the run ends: their result is unknown.
    pub(crate) fn end_open_actions(&self) {
        let mut progress = self.progress();
        for (id, name) in std::mem::take(&mut progress.actions.open) {
            let reason = "the run was interrupted before the channel answered".to_owned();
            self.append(action_ended_entry(id, name, ActionEnd::Unknown { reason }));
        }
    }

    /// Adds the actions of this run to those of its parent. Returns the fact that records them on the parent's tape, to
    /// be committed with the end of this run, so that neither run is repeated.
    pub(crate) fn report_actions_to_parent(&self, parent: &Self) -> Option<Fact> {
        let actions = self.progress().actions.started.clone();
        if actions.is_empty() {
            return None;
        }
        parent.progress().actions.started.extend(actions.iter().cloned());
        let event = TapeEvent::ActionByChild(ChildActions { run_id: self.id().clone(), actions });
        Some(parent.journal.final_entry(parent.id(), event.into()))
    }
}

/// The entry that records the end of an action.
fn action_ended_entry(action_id: ActionId, action: String, end: ActionEnd) -> EntryDraft {
    TapeEvent::ActionEnded(ActionEndRecord { action_id, action, end }).into()
}
