//! Fixtures for the tests of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_delivery::ChannelDirectory;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, IntakeOptions};
use capstan_hooks::points::ResolveSession;
use capstan_hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, InboundEvent, Plugin, Registry};
use capstan_policy::BindingStore;
use capstan_protocol::{AdmissionMode, ChannelName, Clock, Descriptor, EntryId, Event, OutboundMessage, TapeName};
use capstan_runs::{BindingResolver, ToolCatalog};
use capstan_tape::{MemoryStore, TapeAddress, TapeRepository, tape_name};
use capstan_turn::EventArrival;

use crate::LeaseOwner;
use crate::accepted_event::AcceptedEvent;
use crate::intake::AdmissionPlanner;
use crate::intake_policy::IntakePolicy;
use crate::lease_keeper::LeaseKeeper;

/// Plugin that resolves sessions and nothing else.
struct SessionPlugin;

impl Plugin for SessionPlugin {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on(ResolveSession, |message: InboundEvent| async move { Ok(Some(message.fallback_session())) });
        Ok(())
    }
}

/// Channel that wants messages dropped during a turn.
struct DroppingChannel;

#[async_trait]
impl Channel for DroppingChannel {
    fn name(&self) -> ChannelName {
        "phone".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions { admission: Some(AdmissionMode::Drop), debounce: None }
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }
}

/// Planner for events of the channel `phone`, with these options for it in the configuration.
pub(crate) fn admission_planner(options: IntakeOptions) -> AdmissionPlanner {
    let mut registry = Registry::new();
    registry.register(&SessionPlugin);
    let hooks = HookRuntime::new(registry, HookDeadlines::default());
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let channels = ChannelDirectory::new(vec![Arc::new(DroppingChannel)]);
    let system_tape = TapeAddress { workspace: "/workspace".into(), session: crate::SYSTEM_SESSION.into() };
    let bindings = BindingStore::new(tapes.clone(), Clock::system(), system_tape).with_channels(vec!["phone".into()]);
    AdmissionPlanner {
        tools: Arc::new(ToolCatalog::from_hooks(&hooks, false)),
        has_model_stage_override: false,
        hooks,
        bindings: BindingResolver::new(bindings),
        intake_policy: IntakePolicy {
            channels: channels.clone(),
            overrides: Arc::new(BTreeMap::from([("phone".into(), options)])),
        },
        channels,
        leases: LeaseKeeper {
            tapes: tapes.clone(),
            owner: LeaseOwner::anonymous(),
            clock: Clock::system(),
            run_timeout: Duration::from_mins(1),
            session_wait_timeout: Duration::from_secs(1),
        },
        tapes,
    }
}

/// Descriptor of the runner that the default binding names.
pub(crate) fn agent_descriptor() -> Descriptor {
    Descriptor::new("builtin:agent", "agent")
}

/// An event of the channel `phone` that arrives like this.
pub(crate) fn accepted_event(arrival: EventArrival) -> AcceptedEvent {
    let inbound = InboundEvent::new(Event::message("phone", "1", "hello"));
    let session = inbound.fallback_session();
    AcceptedEvent { entry: EntryId(1), ..AcceptedEvent::new(inbound, session, arrival) }
}

/// Tape of the session of an event.
pub(crate) fn session_tape(event: &AcceptedEvent) -> TapeName {
    tape_name(&TapeAddress { workspace: "/workspace".into(), session: event.session.clone() })
}
