//! Admission: decides before the commit of an event whether it gets a turn.

use std::sync::Arc;

use capstan_delivery::ChannelDirectory;
use capstan_hooks::HookRuntime;
use capstan_hooks::args::{AdmitMessageArgs, SessionBusy};
use capstan_hooks::points::{AdmissionDecision, AdmitMessage, BuildPrompt};
use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::{AdmissionMode, TapeName};
use capstan_runs::ToolCatalog;
use capstan_tape::{StoreError, TapeRepository};
use capstan_turn::{ArrivalKind, EventArrival, TurnError};

use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use crate::intake_policy::IntakePolicy;
use crate::lease_keeper::LeaseKeeper;
use crate::split_by_binding::binding_turn_error;

/// Plan for an event after its acceptance.
pub(crate) enum AcceptancePlan {
    /// A turn, with this arrival in the mailbox of the session.
    Turn(EventArrival),
    /// Dropped by admission.
    Drop,
    /// No turn but a notice to the user: the queue is full, or a hook failed. An event whose session could not be resolved
    /// must not run in the fallback session, which may be shared.
    Refuse(TurnError),
}

/// Plans the acceptance of events.
pub(crate) struct AdmissionPlanner {
    pub(crate) hooks: HookRuntime,
    pub(crate) tapes: TapeRepository,
    pub(crate) channels: ChannelDirectory,
    pub(crate) bindings: Arc<BindingStore>,
    pub(crate) intake_policy: IntakePolicy,
    pub(crate) tools: Arc<ToolCatalog>,
    pub(crate) leases: LeaseKeeper,
    /// True if a plugin may replace the model stage.
    pub(crate) has_model_stage_override: bool,
}

impl AdmissionPlanner {
    /// Plans the admission of an event. The hooks decide first, then the binding, the configuration and the channel.
    pub(crate) async fn plan_admission(
        &self,
        event: &mut AcceptedEvent,
        tape: &TapeName,
        is_busy: Option<bool>,
    ) -> Result<AcceptancePlan, StoreError> {
        match self.bindings.resolve(&event.inbound, event.own_binding.as_ref()).await {
            Ok(binding) => event.binding = binding,
            Err(BindingError::Store(error)) => return Err(error),
            Err(error) => return Ok(AcceptancePlan::Refuse(binding_turn_error(&error))),
        }
        let inbound = &event.inbound;
        let intake = self.intake_policy.options_for(inbound);
        let bound_mode = event.binding.as_ref().and_then(|binding| binding.delivery_policy.admission);
        let configured_mode = bound_mode.or(intake.admission).unwrap_or_default();
        // The lease is read only if a hook or the mode depends on it.
        let needs_lease = self.hooks.is_implemented::<AdmitMessage>() || configured_mode == AdmissionMode::Drop;
        let is_busy = match is_busy {
            Some(is_busy) => is_busy,
            None => needs_lease && self.leases.is_held(tape).await?,
        };
        let (message, session_id) = (inbound.clone(), event.session.clone());
        let args = AdmitMessageArgs { message, session_id, busy: SessionBusy(is_busy) };
        let decision = match self.hooks.call_first::<AdmitMessage>(&args).await {
            Err(failure) => return Ok(AcceptancePlan::Refuse(failure.into())),
            Ok(decided) => decided.map(|decided| decided.value),
        };
        let mode = match decision {
            Some(AdmissionDecision::WithMode(mode)) => mode,
            Some(AdmissionDecision::Process | AdmissionDecision::Concurrent) => AdmissionMode::FollowUp,
            // Modes apply to messages. All other events get turns of their own.
            None if !inbound.is_message() => AdmissionMode::FollowUp,
            None => configured_mode,
        };
        // The authority of a binding that came with the event must not extend to other events.
        let is_standalone = !inbound.is_message() || event.own_binding.is_some();
        let kind = match (decision, inbound.command_line()) {
            // Only commands run concurrently: messages get one turn at a time, regardless of the hooks. A plugin that
            // replaces the prompt or the model stage may not treat this line as a command.
            (_, Some(_)) if self.hooks.is_overridden::<BuildPrompt>() || self.has_model_stage_override => {
                ArrivalKind::Command
            }
            (Some(AdmissionDecision::Concurrent), Some(_)) => ArrivalKind::ConcurrentCommand,
            (None, Some(line)) if self.is_read_only_command(line) => ArrivalKind::ConcurrentCommand,
            (_, Some(_)) => ArrivalKind::Command,
            (_, None) if is_standalone => ArrivalKind::Standalone,
            (_, None) => ArrivalKind::Message { addressed: inbound.is_addressed() },
        };
        if is_busy && mode == AdmissionMode::Drop && kind != ArrivalKind::ConcurrentCommand {
            return Ok(AcceptancePlan::Drop);
        }
        let debounce = intake.debounce.filter(|_| !is_standalone);
        Ok(AcceptancePlan::Turn(EventArrival { mode, kind, debounce }))
    }

    /// Plans an event that meets a full queue. A waiting caller gets an error, nothing is stored, and it may submit the event
    /// again. Other sources would submit it again at once, so their events are accepted and refused with a notice.
    pub(crate) async fn plan_without_slot(
        &self,
        event: &AcceptedEvent,
        arrival: EventArrival,
    ) -> Result<AcceptancePlan, HostError> {
        let is_message = matches!(arrival.kind, ArrivalKind::Message { .. } | ArrivalKind::Standalone);
        if is_message && !event.inbound.is_addressed() {
            // A notice in reply to a message that is not addressed to the bot would be noise.
            return Ok(AcceptancePlan::Drop);
        }
        if event.caller.is_none() && !self.channels.has_waiting_caller(&event.inbound.source) {
            return Ok(AcceptancePlan::Refuse(TurnError::QueueFull));
        }
        match self.tapes.store().inbox_record(&event.key).await? {
            // A duplicate, which its commit will detect.
            Some(_) => Ok(AcceptancePlan::Turn(arrival)),
            None => Err(HostError::QueueFull),
        }
    }

    /// Returns true for a command that only reads, and may run concurrently with a turn.
    fn is_read_only_command(&self, line: &str) -> bool {
        let name = line.split_whitespace().next().unwrap_or_default();
        self.tools.get(name).is_some_and(|tool| tool.is_read_only() && tool.spec().name.as_str() == name)
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
