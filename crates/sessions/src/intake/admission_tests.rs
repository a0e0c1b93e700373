use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_delivery::ChannelDirectory;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, IntakeOptions};
use capstan_hooks::points::ResolveSession;
use capstan_hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, InboundEvent, Plugin, Registry};
use capstan_policy::{BindingStore, default_binding};
use capstan_protocol::{AdmissionMode, ChannelName, Clock, Descriptor, OutboundMessage, TapeName};
use capstan_runs::ToolCatalog;
use capstan_tape::{MemoryStore, TapeAddress, TapeRepository, tape_name};
use capstan_turn::EventArrival;

use super::{AcceptancePlan, AdmissionPlanner};
use crate::accepted_event::AcceptedEvent;
use crate::intake_policy::IntakePolicy;
use crate::lease::LeaseOwner;
use crate::lease_keeper::LeaseKeeper;
use crate::test_support::accepted_event;

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
fn admission_planner(options: IntakeOptions) -> AdmissionPlanner {
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
        bindings: Arc::new(bindings),
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
fn agent_descriptor() -> Descriptor {
    Descriptor::new("builtin:agent", "agent")
}

/// Tape of the session of an event.
fn session_tape(event: &AcceptedEvent) -> TapeName {
    tape_name(&TapeAddress { workspace: "/workspace".into(), session: event.session.clone() })
}

/// Admission mode of a message whose channel wants it dropped, with these modes in configuration and binding.
async fn admitted_mode(configured: Option<AdmissionMode>, bound: Option<AdmissionMode>) -> AdmissionMode {
    let planner = admission_planner(IntakeOptions { admission: configured, debounce: None });
    let mut binding = default_binding();
    binding.delivery_policy.admission = bound;
    planner.bindings.save(&binding, &[agent_descriptor()]).await.unwrap();
    let mut event = accepted_event(EventArrival::follow_up());
    let tape = session_tape(&event);
    match planner.plan_admission(&mut event, &tape, Some(true)).await.unwrap() {
        AcceptancePlan::Turn(arrival) => arrival.mode,
        AcceptancePlan::Drop => AdmissionMode::Drop,
        AcceptancePlan::Refuse(_) => panic!("the event is admitted"),
    }
}

#[tokio::test]
async fn c04_binding_takes_precedence_over_configuration_and_that_over_the_channel() {
    assert_eq!(admitted_mode(None, None).await, AdmissionMode::Drop);
    assert_eq!(admitted_mode(Some(AdmissionMode::Steer), None).await, AdmissionMode::Steer);
    assert_eq!(admitted_mode(Some(AdmissionMode::Steer), Some(AdmissionMode::Collect)).await, AdmissionMode::Collect);
    assert_eq!(admitted_mode(None, Some(AdmissionMode::FollowUp)).await, AdmissionMode::FollowUp);
}
