//! T2: choice of the session before an event is accepted, and admission of the event.

use capstan_hooks::InboundEvent;
use capstan_hooks::points::{AdmitMessage, LoadState, ResolveSession};
use capstan_protocol::{Event, JsonObject, SessionId};
use serde_json::json;

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::register_echo;

#[tokio::test]
async fn t02_the_builtin_uses_the_events_own_session_when_no_plugin_answers() {
    let event = Event { session_id: Some("mine".into()), ..Event::message("cli", "local", "hello") };
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("shy", |hooks| {
            hooks.on(ResolveSession, || async { Ok(None) });
        })
        .serve(event)
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t02_a_plugin_chooses_the_session_and_the_id_is_written_back_to_the_event() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("rooms", |hooks| {
            hooks.on(ResolveSession, |message: InboundEvent| async move {
                Ok(Some(SessionId::new(format!("room-{}", message.input.plain_text().len()))))
            });
            hooks.on(LoadState, |message: InboundEvent| async move {
                Ok(Some(JsonObject::from_iter([("on_event".to_owned(), json!(message.session_id))])))
            });
        })
        .serve_hello()
        .await;
    assert_eq!(trace.served.session, SessionId::new("room-5"));
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t02_an_empty_session_id_counts_as_no_answer() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("blank", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new(""))) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t02_when_resolve_session_fails_the_event_is_accepted_but_no_turn_runs() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(ResolveSession, || async { Err("no directory at /srv/rooms".into()) });
        })
        .serve_hello()
        .await;
    assert_eq!(trace.runs, 0);
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test(start_paused = true)]
async fn t02_h07_when_resolve_session_exceeds_its_deadline_no_turn_runs() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("stuck", |hooks| {
            hooks.on(ResolveSession, std::future::pending);
        })
        .serve_hello()
        .await;
    assert_eq!(trace.runs, 0);
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h04_when_admit_message_fails_no_turn_runs() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(AdmitMessage, || async { Err("no list of guests".into()) });
        })
        .serve_hello()
        .await;
    assert_eq!(trace.runs, 0);
    insta::assert_snapshot!(trace.to_text_with_tape());
}
