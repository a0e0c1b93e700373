use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::IntakeOptions;
use capstan_policy::default_binding;
use capstan_protocol::{AdmissionMode, Event};
use capstan_tape::{MemoryStore, TapeAddress, tape_name};
use capstan_turn::EventArrival;

use super::AcceptancePlan;
use crate::services::Services;
use crate::sessions::accepted_event::AcceptedEvent;
use crate::test_host;

/// How a message is admitted whose channel wants it dropped, when configuration and binding say this.
async fn admitted_mode(set: Option<AdmissionMode>, binding: Option<AdmissionMode>) -> AdmissionMode {
    let mut settings = test_host::host_options();
    settings.intake_overrides.insert("phone".into(), IntakeOptions { admission: set, debounce: None });
    let services = Services::start(test_host::echo_hooks(), Arc::new(MemoryStore::new()), settings).await.unwrap();
    let mut bound = default_binding();
    bound.delivery_policy.admission = binding;
    services.bindings.save(&bound, &services.runners()).await.unwrap();
    let inbound = InboundEvent::new(Event::message("phone", "1", "hello"));
    let session = inbound.fallback_session();
    let tape = tape_name(&TapeAddress { workspace: services.workspace_id.clone(), session: session.clone() });
    let mut event = AcceptedEvent::new(inbound, session, EventArrival::follow_up());
    match services.plan_admission(&mut event, &tape, Some(true)).await.unwrap() {
        AcceptancePlan::Turn(arrival) => arrival.mode,
        AcceptancePlan::Drop => AdmissionMode::Drop,
        AcceptancePlan::Refuse(_) => panic!("it is not refused"),
    }
}

#[tokio::test]
async fn c04_the_binding_goes_before_the_configuration_and_that_before_the_channel() {
    assert_eq!(admitted_mode(None, None).await, AdmissionMode::Drop);
    assert_eq!(admitted_mode(Some(AdmissionMode::Steer), None).await, AdmissionMode::Steer);
    assert_eq!(admitted_mode(Some(AdmissionMode::Steer), Some(AdmissionMode::Collect)).await, AdmissionMode::Collect);
    assert_eq!(admitted_mode(None, Some(AdmissionMode::FollowUp)).await, AdmissionMode::FollowUp);
}
