//! T7: stream events of a model stage, and the time at which a channel sees them.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::ModelText;
use capstan_hooks::points::{RunModelStream, SaveState};
use capstan_protocol::StreamEvent;
use futures::StreamExt as _;
use futures::stream;

use crate::scenario::TurnScenario;
use crate::test_plugins::{RecordingChannel, register_channel};

#[tokio::test]
async fn t07_each_error_event_is_reported_and_the_turn_continues_with_the_text() {
    let scenario = TurnScenario::new();
    let screen = RecordingChannel::new(&scenario.recorder);
    let trace = scenario
        .plugin("screen", register_channel(screen))
        .plugin("shaky", |hooks| {
            hooks.on(RunModelStream, || async {
                let events = [
                    StreamEvent::text("half, "),
                    StreamEvent::error("the line broke"),
                    StreamEvent::error("and again"),
                    StreamEvent::text("and whole"),
                ];
                Ok(Some(stream::iter(events).boxed()))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t07_t08_error_events_without_text_fail_the_turn_after_save_state() {
    let trace = TurnScenario::new()
        .plugin("keeper", |hooks| {
            hooks.on(SaveState, |_: ModelText| async { Ok(Some(())) });
        })
        .plugin("mute", |hooks| {
            hooks.on(RunModelStream, || async { Ok(Some(stream::iter([StreamEvent::error("no voice")]).boxed())) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

/// The stream continues only after the channel has been shown its first event. On a paused clock, a channel that is
/// shown nothing before the end makes the run time out at once.
#[tokio::test(start_paused = true)]
async fn t07_events_reach_the_channel_while_the_model_is_still_running() {
    let scenario = TurnScenario::new();
    let recorder = scenario.recorder.clone();
    let (screen, first_shown) = RecordingChannel::with_first_event_signal(&scenario.recorder);
    let first_shown = Arc::new(Mutex::new(Some(first_shown)));
    let trace = scenario
        .plugin("screen", register_channel(screen))
        .plugin("slow", move |hooks| {
            let (first_shown, recorder) = (Arc::clone(&first_shown), recorder.clone());
            hooks.on(RunModelStream, move || {
                let (first_shown, recorder) = (first_shown.lock().unwrap().take().unwrap(), recorder.clone());
                let rest = stream::once(async move {
                    first_shown.await.unwrap();
                    recorder.note("  model continues", "after its first word was shown");
                    StreamEvent::text("second")
                });
                let events = stream::iter([StreamEvent::text("first ")]).chain(rest).boxed();
                async { Ok(Some(events)) }
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}
