//! T2: which session an event belongs to, before it is accepted; and whether it is admitted.

use capstan::hooks::InboundEvent;
use capstan::hooks::points::{AdmitMessage, LoadState, ResolveSession};
use capstan::protocol::{Event, JsonObject, SessionId};
use serde_json::json;

use crate::scenario::TurnScenario;
use crate::test_plugins::register_echo;

#[tokio::test]
async fn t02_the_builtin_takes_the_events_own_session_when_plugins_say_nothing() {
    let event = Event { session_id: Some("mine".into()), ..Event::message("cli", "local", "hello") };
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("shy", |hooks| {
            hooks.on(ResolveSession, || async { Ok(None) });
        })
        .serve(event)
        .await;
    insta::assert_snapshot!(story.to_text());
}

#[tokio::test]
async fn t02_a_plugin_decides_and_the_id_is_written_back_to_the_event() {
    let story = TurnScenario::new()
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
    assert_eq!(story.served.session, SessionId::new("room-5"));
    insta::assert_snapshot!(story.to_text());
}

#[tokio::test]
async fn t02_an_empty_session_id_is_no_session_id() {
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("blank", |hooks| {
            hooks.on(ResolveSession, || async { Ok(Some(SessionId::new(""))) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(story.to_text());
}

#[tokio::test]
async fn t02_when_it_fails_the_event_is_accepted_but_no_turn_runs() {
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(ResolveSession, || async { Err("no directory at /srv/rooms".into()) });
        })
        .serve_hello()
        .await;
    assert_eq!(story.runs, 0);
    insta::assert_snapshot!(story.to_text_with_tape());
}

#[tokio::test(start_paused = true)]
async fn t02_h07_when_it_hangs_past_its_deadline_no_turn_runs() {
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("stuck", |hooks| {
            hooks.on(ResolveSession, std::future::pending);
        })
        .serve_hello()
        .await;
    assert_eq!(story.runs, 0);
    insta::assert_snapshot!(story.to_text_with_tape());
}

#[tokio::test]
async fn h04_when_admit_message_fails_no_turn_runs() {
    let story = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(AdmitMessage, || async { Err("no list of guests".into()) });
        })
        .serve_hello()
        .await;
    assert_eq!(story.runs, 0);
    insta::assert_snapshot!(story.to_text_with_tape());
}
