//! T7: stream events of a model stage, and the time at which a channel sees them.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::{BoundRunner, ModelText};
use capstan_hooks::points::{RenderOutbound, RenderedOutbound, RunModel, RunModelStream, SaveState};
use capstan_hooks::{HookRegistrar, InboundEvent};
use capstan_protocol::{ErrorCode, OutboundMessage, Outcome, ResultBody, StreamEvent};
use capstan_testing::LogRecorder;
use futures::StreamExt as _;
use futures::stream;

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{RecordingChannel, register_channel, register_quiet_runner, register_runner};

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

/// Events that a channel is shown, as JSON, and the text of the reply.
async fn shown_events(register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> (Vec<String>, Option<Outcome>) {
    let scenario = TurnScenario::new();
    let recorder = scenario.recorder.clone();
    let screen = RecordingChannel::new(&recorder);
    let trace = scenario.plugin("screen", register_channel(screen)).plugin("stage", register).serve_hello().await;
    let lines = recorder.lines();
    let shown = lines.iter().filter_map(|line| line.trim().strip_prefix("channel shows"));
    (shown.map(|event| event.trim().to_owned()).collect(), trace.served.outcome)
}

fn final_event(text: &str) -> StreamEvent {
    StreamEvent::Final { text: text.to_owned(), ok: true }
}

fn register_stream(events: Vec<StreamEvent>) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    move |hooks| {
        let events = events.clone();
        hooks.on(RunModelStream, move || {
            let events = stream::iter(events.clone()).boxed();
            async { Ok(Some(events)) }
        });
    }
}

#[tokio::test]
async fn t07_the_stream_of_a_plugin_ends_with_exactly_one_final_event() {
    let replied = |text: &str| Some(Outcome::Replied { text: text.to_owned() });
    let expected = [r#"{"type":"text","delta":"whole"}"#, r#"{"type":"final","text":"whole","ok":true}"#];
    let (shown, outcome) = shown_events(|hooks| {
        hooks.on(RunModel, || async { Ok(Some("whole".to_owned())) });
    })
    .await;
    assert_eq!((shown, outcome), (expected.map(str::to_owned).to_vec(), replied("whole")), "run_model");
    let streams = [
        vec![StreamEvent::text("whole")],
        vec![StreamEvent::text("whole"), final_event("whole")],
        vec![final_event("whole")],
        vec![final_event("whole"), final_event("whole")],
    ];
    for events in streams {
        let (shown, outcome) = shown_events(register_stream(events.clone())).await;
        assert_eq!((shown, outcome), (expected.map(str::to_owned).to_vec(), replied("whole")), "{events:?}");
    }
}

#[tokio::test]
async fn t07_a_plugin_around_the_runner_cannot_repeat_or_drop_the_final_event() {
    for times in [0, 2] {
        let (shown, _) = shown_events(move |hooks| {
            hooks.on(RunModelStream, move |runner: BoundRunner| {
                let events = runner.start().map(|events| {
                    let repeat = move |event: StreamEvent| {
                        let count = if matches!(event, StreamEvent::Final { .. }) { times } else { 1 };
                        stream::iter(vec![event; count])
                    };
                    events.flat_map(repeat).boxed()
                });
                async { Ok(events) }
            });
        })
        .await;
        let finals = shown.iter().filter(|event| event.contains(r#""type":"final""#)).count();
        assert_eq!((finals, shown.last().is_some_and(|event| event.contains("final"))), (1, true), "{shown:?}");
    }
}

#[tokio::test]
async fn t07_a_final_event_of_a_plugin_that_reports_a_failure_fails_a_turn_without_text() {
    let failed = StreamEvent::Final { text: String::new(), ok: false };
    let (shown, outcome) = shown_events(register_stream(vec![failed])).await;
    assert!(matches!(outcome, Some(Outcome::Failed { .. })), "{outcome:?}");
    assert_eq!(shown, [r#"{"type":"final","text":"","ok":false}"#]);
}

/// Plugin that streams a text, and renders the reply with this function.
fn register_rendering(
    render: impl Fn(InboundEvent, ModelText) -> RenderedOutbound + Clone + Send + Sync + 'static,
) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    let events = vec![StreamEvent::text("my secret"), StreamEvent::Reasoning { delta: "the secret".to_owned() }];
    let stream = register_stream(events);
    move |hooks| {
        stream(hooks);
        let render = render.clone();
        hooks.on(RenderOutbound, move |message: InboundEvent, output: ModelText| {
            let rendered = render(message, output);
            async { Ok(Some(rendered)) }
        });
    }
}

#[tokio::test]
async fn t07_h01_a_channel_is_shown_no_raw_text_where_a_plugin_renders() {
    let redact = |message: InboundEvent, output: ModelText| {
        let text = output.replace("secret", "[redacted]");
        RenderedOutbound::Messages(vec![OutboundMessage::reply_to(&message, message.fallback_session(), text)])
    };
    let (shown, outcome) = shown_events(register_rendering(redact)).await;
    assert_eq!(shown, [r#"{"type":"final","text":"","ok":true}"#]);
    assert_eq!(outcome, Some(Outcome::Replied { text: "my [redacted]".to_owned() }));
}

#[tokio::test]
async fn t07_t09_a_channel_is_shown_no_raw_text_of_a_reply_that_a_plugin_silences() {
    let (shown, outcome) = shown_events(register_rendering(|_, _| RenderedOutbound::Silent)).await;
    assert_eq!(shown, [r#"{"type":"final","text":"","ok":true}"#]);
    assert_eq!(outcome, Some(Outcome::Silent));
}

#[tokio::test]
async fn t07_a_runner_that_streams_text_and_ends_silent_is_named_in_the_log() {
    let (log, _guard) = LogRecorder::install();
    let delta = |delta: &str| ResultBody::MessageDelta { delta: delta.to_owned() };
    for (results, warnings) in [
        (vec![delta("hm"), ResultBody::RunCompleted { silent: false }], 0),
        (vec![ResultBody::RunCompleted { silent: true }], 0),
        (vec![delta("hm"), ResultBody::RunCompleted { silent: true }], 1),
    ] {
        TurnScenario::new().agent_plugin("runner", register_runner(results)).serve_hello().await;
        let lines = log.lines_with("ended silent");
        assert_eq!(lines.len(), warnings, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("builtin:agent") && line.contains("`streaming`")), "{lines:?}");
    }
}

/// Events that a channel is shown of a runner without the capability to stream.
async fn shown_of_quiet_runner(end: ResultBody) -> (Vec<String>, Option<Outcome>) {
    let scenario = TurnScenario::new();
    let recorder = scenario.recorder.clone();
    let screen = RecordingChannel::new(&recorder);
    let delta = |delta: &str| ResultBody::MessageDelta { delta: delta.to_owned() };
    let message = ResultBody::MessageCompleted { content: "of mine".into(), provider_meta: Default::default() };
    let thought = ResultBody::ReasoningDelta { delta: "a thought".to_owned() };
    let results = vec![thought, delta("a "), delta("secret"), message, end];
    let scenario = scenario.agent_plugin("runner", register_quiet_runner(results));
    let trace = scenario.plugin("screen", register_channel(screen)).serve_hello().await;
    let lines = recorder.lines();
    let shown = lines.iter().filter_map(|line| line.trim().strip_prefix("channel shows"));
    (shown.map(|event| event.trim().to_owned()).collect(), trace.served.outcome)
}

#[tokio::test]
async fn t07_t09_text_of_a_runner_that_does_not_stream_is_shown_only_if_it_is_the_reply() {
    let (shown, outcome) = shown_of_quiet_runner(ResultBody::RunCompleted { silent: true }).await;
    assert_eq!((shown, outcome), (vec![r#"{"type":"final","text":"","ok":true}"#.to_owned()], Some(Outcome::Silent)));

    let (shown, outcome) = shown_of_quiet_runner(ResultBody::RunCompleted { silent: false }).await;
    let expected = [r#"{"type":"text","delta":"of mine"}"#, r#"{"type":"final","text":"of mine","ok":true}"#];
    assert_eq!(shown, expected);
    assert_eq!(outcome, Some(Outcome::Replied { text: "of mine".to_owned() }));

    let failed = ResultBody::RunFailed { message: "no more".to_owned(), code: Some(ErrorCode::RunFailed.into()) };
    let (shown, outcome) = shown_of_quiet_runner(failed).await;
    assert!(matches!(outcome, Some(Outcome::Failed { .. })), "{outcome:?}");
    let texts = shown.iter().filter(|event| event.contains(r#""type":"text""#)).count();
    assert_eq!((texts, shown.last().map(String::as_str)), (0, Some(r#"{"type":"final","text":"of mine","ok":false}"#)));
}
