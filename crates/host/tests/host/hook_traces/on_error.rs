//! H4 and T11: failures, their observers, and the single notice to the user.

use capstan_hooks::HookResult;
use capstan_hooks::points::{DispatchOutbound, OnError, RunModel, RunModelStream, SaveState};
use capstan_protocol::{Event, OutboundKind, StreamEvent};
use futures::StreamExt as _;
use futures::stream;

use crate::hook_traces::scenario::TurnScenario;

async fn panicking_observer() -> HookResult<()> {
    panic!("an observer without nerves")
}

#[tokio::test]
async fn h04_a_failing_or_panicking_observer_neither_stops_the_others_nor_hides_the_error() {
    let trace = TurnScenario::new()
        .plugin("calm observer", |hooks| {
            hooks.on(OnError, || async { Ok(Some(())) });
        })
        .plugin("failing observer", |hooks| {
            hooks.on(OnError, || async { Err("the log is full".into()) });
        })
        .plugin("panicking observer", |hooks| {
            hooks.on(OnError, panicking_observer);
        })
        .plugin("broken", |hooks| {
            hooks.on(RunModel, || async { Err("no model".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t11_several_failed_stages_give_one_notice_without_paths_or_secrets() {
    const LEAKED_KEY: &str = "sk-live-1234";
    const LEAKED_PATH: &str = "/srv/capstan/keys.pem";
    let fail = || format!("cannot read {LEAKED_PATH} with {LEAKED_KEY}");
    let trace = TurnScenario::new()
        .plugin("keeper", move |hooks| {
            hooks.on(SaveState, move || async move { Err(fail().into()) });
        })
        .plugin("courier", move |hooks| {
            hooks.on(DispatchOutbound, move || async move { Err(fail().into()) });
        })
        .plugin("model", move |hooks| {
            hooks.on(RunModel, move || async move { Err(fail().into()) });
        })
        .serve_hello()
        .await;
    let notices = trace.served.outbounds.iter().filter(|outbound| outbound.kind == OutboundKind::Notice).count();
    assert_eq!((notices, trace.served.outbounds.len()), (1, 1));
    let recorded = serde_json::to_string(&(&trace.served.outbounds, &trace.served.outcome, &trace.tape)).unwrap();
    assert!(!recorded.contains(LEAKED_KEY) && !recorded.contains(LEAKED_PATH), "{recorded}");
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t11_errors_of_the_stream_and_of_the_turn_give_one_notice() {
    let trace = TurnScenario::new()
        .plugin("keeper", |hooks| {
            hooks.on(SaveState, || async { Err("disk full".into()) });
        })
        .plugin("shaky", |hooks| {
            hooks.on(RunModelStream, || async {
                let events = [StreamEvent::error("first"), StreamEvent::text("said"), StreamEvent::error("second")];
                Ok(Some(stream::iter(events).boxed()))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

async fn panicking_model() -> HookResult<String> {
    panic!("index out of bounds in /home/dev/model.rs")
}

#[tokio::test]
async fn h04_a_panicking_hook_fails_its_turn_and_nothing_else() {
    let trace = TurnScenario::new()
        .plugin("reckless", |hooks| {
            hooks.on(RunModel, panicking_model);
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
    let again = trace.host.serve(Event::message("cli", "local", "hello again")).await.unwrap();
    assert!(again.error.is_some(), "the session is free, and the plugin panics again");
}

#[tokio::test]
async fn h04_t08_a_stream_that_panics_fails_its_turn_after_save_state() {
    let trace = TurnScenario::new()
        .plugin("reckless", |hooks| {
            hooks.on(RunModelStream, || async {
                let rest = stream::once(async { panic!("index out of bounds in /home/dev/model.rs") });
                Ok(Some(stream::iter([StreamEvent::text("half")]).chain(rest).boxed()))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
    let again = trace.host.serve(Event::message("cli", "local", "hello again")).await.unwrap();
    assert!(again.error.is_some(), "the session is free, and the plugin panics again");
}

#[tokio::test(start_paused = true)]
async fn h07_t08_a_stream_that_exceeds_the_run_timeout_fails_its_turn_after_save_state() {
    let trace = TurnScenario::new()
        .plugin("stuck", |hooks| {
            hooks.on(RunModelStream, || async {
                Ok(Some(stream::iter([StreamEvent::text("half")]).chain(stream::pending()).boxed()))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}
