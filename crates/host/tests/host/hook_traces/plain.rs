//! T1: the order of the stages, with and without the built-in plugin.

use capstan_hooks::points::DispatchOutbound;
use capstan_protocol::Event;

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{RecordingChannel, register_channel, register_runner};

#[tokio::test]
async fn t01_a_plain_turn_runs_every_stage_in_order() {
    let trace = TurnScenario::new().serve_hello().await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t02_t04_t06_t09_every_stage_has_a_fallback_when_no_plugin_answers() {
    let scenario = TurnScenario::new();
    let screen = RecordingChannel::new(&scenario.recorder);
    let trace = scenario
        .agent_plugin("bare", move |hooks| register_runner(Vec::new())(hooks))
        .plugin("screen", register_channel(screen))
        .serve_without_builtin(Event::message("cli", "local", "hello"))
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h01_a_plugin_may_dispatch_in_place_of_the_builtin() {
    let scenario = TurnScenario::new();
    let (recorder, screen) = (scenario.recorder.clone(), RecordingChannel::new(&scenario.recorder));
    let trace = scenario
        .agent_plugin("bare", register_runner(Vec::new()))
        .plugin("screen", register_channel(screen))
        .plugin("courier", move |hooks| {
            let recorder = recorder.clone();
            hooks.on(DispatchOutbound, move |message: capstan_hooks::args::DispatchMessage| {
                recorder.note("  courier sends", format!("{:?}", message.content.text()));
                async { Ok(Some(true)) }
            });
        })
        .serve_without_builtin(Event::message("cli", "local", "hello"))
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}
