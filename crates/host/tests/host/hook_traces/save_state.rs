//! T8: `save_state` runs in every turn that had a prompt.

use capstan_hooks::HookRegistrar;
use capstan_hooks::args::{ModelText, TurnFailure};
use capstan_hooks::points::{RunModel, SaveState};
use capstan_protocol::ResultBody;

use crate::hook_traces::recorder::HookRecorder;
use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{register_echo, register_runner};

/// Plugin that logs the arguments of `save_state`.
fn recording_save_state(recorder: &HookRecorder) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    let recorder = recorder.clone();
    move |hooks| {
        let recorder = recorder.clone();
        hooks.on(SaveState, move |output: ModelText, failure: TurnFailure| {
            recorder.note("  keeper receives", format!("output {:?}, failure {:?}", &*output, failure.0));
            async { Ok(Some(())) }
        });
    }
}

#[tokio::test]
async fn t08_save_state_runs_after_success_with_the_output() {
    let scenario = TurnScenario::new();
    let keeper = recording_save_state(&scenario.recorder);
    let trace = scenario.plugin("echo", register_echo).plugin("keeper", keeper).serve_hello().await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t08_save_state_runs_after_a_failed_run_with_the_partial_output() {
    let scenario = TurnScenario::new();
    let keeper = recording_save_state(&scenario.recorder);
    let trace = scenario
        .agent_plugin(
            "runner",
            register_runner(vec![
                ResultBody::MessageDelta { delta: "half an ans".to_owned() },
                ResultBody::RunFailed { message: "the model hung up".to_owned(), code: Some("model-broken".into()) },
            ]),
        )
        .plugin("keeper", keeper)
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h04_t08_save_state_runs_after_a_failing_model_hook() {
    let scenario = TurnScenario::new();
    let keeper = recording_save_state(&scenario.recorder);
    let trace = scenario
        .plugin("keeper", keeper)
        .plugin("broken", |hooks| {
            hooks.on(RunModel, || async { Err("no model".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t08_a_failing_save_state_fails_the_turn_after_all_others_ran() {
    let scenario = TurnScenario::new();
    let keeper = recording_save_state(&scenario.recorder);
    let trace = scenario
        .plugin("echo", register_echo)
        .plugin("keeper", keeper)
        .plugin("broken", |hooks| {
            hooks.on(SaveState, || async { Err("disk full".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h04_t08_a_failing_save_state_does_not_hide_an_earlier_error() {
    let trace = TurnScenario::new()
        .plugin("full", |hooks| {
            hooks.on(SaveState, || async { Err("disk full".into()) });
        })
        .plugin("broken", |hooks| {
            hooks.on(RunModel, || async { Err("no model".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}
