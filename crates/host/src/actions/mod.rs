//! Actions on the platform that an event came from.
//!
//! An action is done if the runner asks for such, the binding allows it and the channel can do it; whatever is not done is
//! on record with the reason. One that is done is so at most once: that it begins is on disk before the channel is asked,
//! and one whose end nobody saw is never asked for again.

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

/// How long the name of an action may be.
const MAX_ACTION_NAME_LEN: usize = 128;

/// Who does not let an action be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionDenial {
    /// The runner's permissions do not name it.
    #[error("the runner {0} does not ask for it")]
    Runner(RunnerId),
    /// The binding's policy does not name it.
    #[error("the binding {0} does not allow it")]
    Binding(BindingId),
    /// The event came from where no such thing can be done.
    #[error("the channel {0} has no such action")]
    Channel(ChannelName),
    /// It cannot be done with these arguments.
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

/// The actions of a run that have begun and not ended, and how many there were.
#[derive(Default)]
pub(crate) struct RunActions {
    open: Vec<(ActionId, String)>,
    /// What was asked for, by name.
    started: Vec<String>,
}

impl Run {
    /// Who withholds an action from this run, if somebody does. The grant decides; the runner's permissions only say on
    /// whose account it is.
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

    /// Has something done on the platform, if everybody allows it. Whatever becomes of it is on record.
    pub(crate) async fn perform_action(&self, request: ActionRequest) -> Result<Value, ApiError> {
        let channel = match self.resolve_action_channel(&request) {
            Ok(channel) => channel,
            Err(denial) => {
                let name: String = request.action.chars().take(MAX_ACTION_NAME_LEN).collect();
                self.record_refused_action(&name, &denial);
                let message = format!("the action {name} was not done: {denial}");
                return Err(ApiError::new(denial.code(), message));
            }
        };
        let action = self.begin_action(request);
        if let Err(error) = self.flush().await {
            self.end_action(
                &action.id,
                ActionEnd::Failed { reason: "the store failed before the channel was asked".to_owned() },
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
                let message = format!("whether the action {} was done is not known: {reason}", action.name);
                Err(failed(message).with_cause(ErrorCode::ActionUnknown))
            }
        }
    }

    /// The channel that does it, if everybody allows it.
    fn resolve_action_channel(&self, request: &ActionRequest) -> Result<Arc<dyn Channel>, ActionDenial> {
        if let Some(denial) = self.action_denial(&request.action) {
            return Err(denial);
        }
        let source = &self.context.event.source;
        self.services.actions.check(source, &request.action, &request.arguments)?;
        self.services.channels.get(source).cloned().ok_or_else(|| ActionDenial::Channel(source.clone()))
    }

    /// A request that is not heeded. Of a runner that sends many only the first are told by themselves.
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

    /// Asks the channel. One that hangs is waited for no longer; one that crashes crashes alone.
    async fn call_channel(&self, channel: &dyn Channel, action: &PlatformAction) -> ActionEnd {
        let limits = &self.services.options.limits;
        let asked = AssertUnwindSafe(async { channel.perform_action(action).await }).catch_unwind();
        match tokio::time::timeout(limits.action_timeout, asked).await {
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
        let most = usize::try_from(self.services.options.limits.results.error_bytes).unwrap_or(usize::MAX);
        let secrets = &self.services.options.secret_masker;
        message.truncate(secrets.safe_cut(&message, most));
        secrets.mask_text(&mut message);
        message
    }

    /// Tells how an action ended, once: who comes later than the end of the run finds it told.
    fn end_action(&self, id: &ActionId, end: ActionEnd) {
        let mut progress = self.progress();
        let Some(position) = progress.actions.open.iter().position(|(open, _)| open == id) else { return };
        let (id, name) = progress.actions.open.remove(position);
        // Under the lock, so that the run cannot end in between.
        self.append_atomic(Vec::new(), vec![action_ended_entry(id, name.clone(), end)], Some(name));
    }

    /// The run ends: of what it had asked for and not heard of nobody knows whether it was done.
    pub(crate) fn end_open_actions(&self) {
        let mut progress = self.progress();
        for (id, name) in std::mem::take(&mut progress.actions.open) {
            let reason = "the run was broken off before the channel had answered".to_owned();
            self.append(action_ended_entry(id, name, ActionEnd::Unknown { reason }));
        }
    }

    /// What the run above this one must know of it, with its end: that it acted, so that nobody runs either again.
    pub(crate) fn report_actions_to_parent(&self, parent: &Self) -> Option<Fact> {
        let actions = self.progress().actions.started.clone();
        if actions.is_empty() {
            return None;
        }
        parent.progress().actions.started.extend(actions.iter().cloned());
        let told = TapeEvent::ActionByChild(ChildActions { run_id: self.id().clone(), actions });
        Some(parent.journal.final_entry(parent.id(), told.into()))
    }
}

/// The entry that tells how an action ended.
fn action_ended_entry(action_id: ActionId, action: String, end: ActionEnd) -> EntryDraft {
    TapeEvent::ActionEnded(ActionEndRecord { action_id, action, end }).into()
}
