use capstan_hooks::contracts::IntakeOptions;
use capstan_policy::default_binding;
use capstan_protocol::AdmissionMode;
use capstan_turn::EventArrival;

use super::AcceptancePlan;
use crate::test_support::{accepted_event, admission_planner, agent_descriptor, session_tape};

/// Admission mode of a message whose channel wants it dropped, with these modes in configuration and binding.
async fn admitted_mode(configured: Option<AdmissionMode>, bound: Option<AdmissionMode>) -> AdmissionMode {
    let planner = admission_planner(IntakeOptions { admission: configured, debounce: None });
    let mut binding = default_binding();
    binding.delivery_policy.admission = bound;
    planner.bindings.store().save(&binding, &[agent_descriptor()]).await.unwrap();
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
