//! T5: choice of the model stage among `run_model` and `run_model_stream` of several plugins.

use capstan_hooks::args::PromptContent;
use capstan_hooks::points::{RunModel, RunModelStream};
use capstan_protocol::StreamEvent;
use futures::StreamExt as _;
use futures::stream;

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{RecordingChannel, register_channel};

#[tokio::test]
async fn t05_a_text_takes_precedence_over_the_builtin_and_becomes_a_stream_of_one_event() {
    let scenario = TurnScenario::new();
    let screen = RecordingChannel::new(&scenario.recorder);
    let trace = scenario
        .plugin("screen", register_channel(screen))
        .plugin("loud", |hooks| {
            hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text().to_uppercase())) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t05_a_stream_is_collected_and_takes_precedence_over_the_text_of_a_lower_plugin() {
    let trace = TurnScenario::new()
        .plugin("lower", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("never said".to_owned())) });
        })
        .plugin("higher", |hooks| {
            hooks.on(RunModelStream, || async {
                Ok(Some(stream::iter([StreamEvent::text("hello, "), StreamEvent::text("stream")]).boxed()))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t05_a_text_takes_precedence_over_the_stream_of_a_lower_plugin() {
    let trace = TurnScenario::new()
        .plugin("lower", |hooks| {
            hooks.on(RunModelStream, || async { Ok(Some(stream::iter([StreamEvent::text("never said")]).boxed())) });
        })
        .plugin("higher", |hooks| {
            hooks.on(RunModel, || async { Ok(Some("said".to_owned())) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t05_no_answer_from_either_hook_falls_through_within_the_same_run() {
    let trace = TurnScenario::new()
        .plugin("no text", |hooks| {
            hooks.on(RunModel, || async { Ok(None) });
        })
        .plugin("no stream", |hooks| {
            hooks.on(RunModelStream, || async { Ok(None) });
        })
        .plugin("neither", |hooks| {
            hooks.on(RunModel, || async { Ok(None) }).on(RunModelStream, || async { Ok(None) });
        })
        .serve_hello()
        .await;
    assert_eq!(trace.runs, 1);
    insta::assert_snapshot!(trace.to_text());
}
