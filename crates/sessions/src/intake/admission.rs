//! Admission: decides what becomes of an event before it is committed.

use std::sync::Arc;

use capstan_delivery::ChannelDirectory;
use capstan_hooks::HookRuntime;
use capstan_hooks::args::{AdmitMessageArgs, SessionBusy};
use capstan_hooks::points::{AdmissionDecision, AdmitMessage, BuildPrompt};
use capstan_protocol::{AdmissionMode, TapeName};
use capstan_runs::{BindingResolver, ToolCatalog};
use capstan_tape::{StoreError, TapeRepository};
use capstan_turn::{ArrivalKind, EventArrival, TurnError};

use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use crate::intake_policy::IntakePolicy;
use crate::lease_keeper::LeaseKeeper;

/// What comes after acceptance.
pub(crate) enum AcceptancePlan {
    /// A turn, taken in like this.
    Turn(EventArrival),
    /// Nothing: admission lets it go.
    Drop,
    /// No turn, and the user is told: too many wait already, or a hook failed before it. An event whose session could
    /// not be resolved must not run on one that may be shared.
    Refuse(TurnError),
}

/// Plans the acceptance of events.
pub(crate) struct AdmissionPlanner {
    pub(crate) hooks: HookRuntime,
    pub(crate) tapes: TapeRepository,
    pub(crate) channels: ChannelDirectory,
    pub(crate) bindings: BindingResolver,
    pub(crate) intake_policy: IntakePolicy,
    pub(crate) tools: Arc<ToolCatalog>,
    pub(crate) leases: LeaseKeeper,
    /// True if a plugin may replace the model stage.
    pub(crate) has_model_stage_override: bool,
}

impl AdmissionPlanner {
    /// What the hooks want done with the event; where they say nothing, what the binding, the configuration and the
    /// channel say, in this order.
    pub(crate) async fn plan_admission(
        &self,
        event: &mut AcceptedEvent,
        tape: &TapeName,
        is_busy: Option<bool>,
    ) -> Result<AcceptancePlan, StoreError> {
        let binding = match event.resolve_binding(&self.bindings).await {
            Ok(binding) => binding,
            Err(TurnError::Store(error)) => return Err(error),
            Err(error) => return Ok(AcceptancePlan::Refuse(error)),
        };
        let inbound = &event.inbound;
        let intake = self.intake_policy.options_for(inbound);
        let set = binding.and_then(|binding| binding.delivery_policy.admission);
        let set = set.or(intake.admission).unwrap_or_default();
        // Whether another process works on the session is only looked up for whoever wants to know.
        let asks = self.hooks.is_implemented::<AdmitMessage>() || set == AdmissionMode::Drop;
        let is_busy = match is_busy {
            Some(is_busy) => is_busy,
            None => asks && self.leases.is_held(tape).await?,
        };
        let (message, session_id) = (inbound.clone(), event.session.clone());
        let args = AdmitMessageArgs { message, session_id, busy: SessionBusy(is_busy) };
        let answer = match self.hooks.call_first::<AdmitMessage>(&args).await {
            Err(failure) => return Ok(AcceptancePlan::Refuse(failure.into())),
            Ok(decided) => decided.map(|decided| decided.value),
        };
        let mode = match answer {
            Some(AdmissionDecision::WithMode(mode)) => mode,
            Some(AdmissionDecision::Process | AdmissionDecision::Concurrent) => AdmissionMode::FollowUp,
            // Modes are about what people say. Whatever else happens has a turn of its own.
            None if !inbound.is_message() => AdmissionMode::FollowUp,
            None => set,
        };
        // Nobody else has the authority that came with it.
        let is_alone = !inbound.is_message() || event.own_binding.is_some();
        let kind = match (answer, inbound.command_line()) {
            // Of messages there is one turn at a time, whatever a hook says.
            // What is a command here must be one for the runner too.
            (_, Some(_)) if self.hooks.is_overridden::<BuildPrompt>() || self.has_model_stage_override => {
                ArrivalKind::Command
            }
            (Some(AdmissionDecision::Concurrent), Some(_)) => ArrivalKind::ConcurrentCommand,
            (None, Some(line)) if self.is_read_only_command(line) => ArrivalKind::ConcurrentCommand,
            (_, Some(_)) => ArrivalKind::Command,
            (_, None) if is_alone => ArrivalKind::Standalone,
            (_, None) => ArrivalKind::Message { addressed: inbound.is_addressed() },
        };
        if is_busy && mode == AdmissionMode::Drop && kind != ArrivalKind::ConcurrentCommand {
            return Ok(AcceptancePlan::Drop);
        }
        let debounce = intake.debounce.filter(|_| !is_alone);
        Ok(AcceptancePlan::Turn(EventArrival { mode, kind, debounce }))
    }

    /// What becomes of an event for which there is no place among those that wait. Whoever waits for it can be refused:
    /// then nothing is kept, and the same event may come again. Others would only send it again at once.
    pub(crate) async fn plan_without_slot(
        &self,
        event: &AcceptedEvent,
        arrival: EventArrival,
    ) -> Result<AcceptancePlan, HostError> {
        let is_said = matches!(arrival.kind, ArrivalKind::Message { .. } | ArrivalKind::Standalone);
        if is_said && !event.inbound.is_addressed() {
            // It was not said to the bot, which had better not answer that it is too busy to listen.
            return Ok(AcceptancePlan::Drop);
        }
        if event.caller.is_none() && !self.channels.has_waiting_caller(&event.inbound.source) {
            return Ok(AcceptancePlan::Refuse(TurnError::QueueFull));
        }
        match self.tapes.store().inbox_record(&event.key).await? {
            // It is no event more: its commit will say so.
            Some(_) => Ok(AcceptancePlan::Turn(arrival)),
            None => Err(HostError::QueueFull),
        }
    }

    /// Whether a command only looks, and may run beside a turn.
    fn is_read_only_command(&self, line: &str) -> bool {
        let name = line.split_whitespace().next().unwrap_or_default();
        self.tools.get(name).is_some_and(|tool| tool.is_read_only() && tool.spec().name.as_str() == name)
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
