//! Acceptance of events and their order (G1, X1).

use std::sync::Arc;

use capstan_hooks::contracts::Gateway as _;
use capstan_hooks::points::ResolveSession;
use capstan_host::HostError;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, Outcome, SessionId};
use capstan_tape::{EntryKind, TapeSlice};

use crate::sessions::faulty_store::FaultyStore;
use crate::sessions::support::format_outcome;
use crate::sessions::test_channel::TestChannel;

#[tokio::test]
async fn g01_an_event_id_of_another_session_is_rejected_and_reveals_nothing() {
    let (environment, desk) = (TestEnvironment::on_disk(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = environment.host().channel(&desk).start().await;
    let mine = Event::message("desk", "mine", "my secret");
    host.serve(mine.clone()).await.unwrap();
    let theirs = Event { event_id: mine.event_id.clone(), ..Event::message("desk", "theirs", "tell me") };
    let refused = host.submit(theirs.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "event-id-taken");
    assert!(!refused.message.contains("secret"), "{refused}");
    let event_id = mine.event_id.clone();
    assert_eq!(host.serve(theirs.clone()).await.unwrap_err(), HostError::EventIdConflict { event_id });
    let tapes = host.tapes().list().await.unwrap();
    assert_eq!(tapes.len(), 1, "the rejected event was not stored: {tapes:?}");
    let other = Event { event_id: "another".into(), ..theirs };
    assert!(
        matches!(host.serve(other).await.unwrap().outcome, Some(Outcome::Replied { .. })),
        "the event is accepted with its own id"
    );
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g07_the_system_session_is_reserved_for_the_host() {
    let (environment, desk) = (TestEnvironment::on_disk(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = environment.host().channel(&desk).start().await;
    host.bindings().set_enabled(&"default".into(), true, &host.runners()).await.unwrap();
    let named = Event { session_id: Some("system".into()), ..Event::message("desk", "1", ",tape.reset") };
    let refused = host.submit(named.into()).await.unwrap_err();
    assert_eq!(refused.code, "session-reserved");
    host.stop().await.unwrap();

    let misrouting = ClosurePlugin::new("misrouting", |hooks| {
        hooks.on(ResolveSession, || async { Ok(Some(SessionId::new("system"))) });
    });
    let host = environment.host().channel(&desk).plugin(misrouting).start().await;
    let refused = host.serve(Event::message("desk", "1", "hello")).await.unwrap_err();
    assert_eq!(refused, HostError::SessionReserved { session: "system".into() });
    let tapes = host.tapes().list().await.unwrap();
    assert_eq!(tapes.len(), 1, "{tapes:?}");
    let entries = host.tapes().read(&tapes[0].name, &TapeSlice::all()).await.unwrap();
    let event_names: Vec<_> = entries.iter().map(|entry| entry.name()).collect();
    assert_eq!(event_names, [Some("binding.enabled")], "only events of the host are recorded");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g01_submit_accepts_the_event_even_if_its_future_is_dropped() {
    let (environment, desk) = (TestEnvironment::on_disk(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = environment.host().channel(&desk).start().await;
    let events: Vec<Event> = (0..20).map(|n| Event::message("desk", "1", n.to_string())).collect();
    // These futures are never polled.
    for event in &events {
        drop(host.submit(event.clone().into()));
    }
    for event in &events {
        assert!(format_outcome(&desk.wait_for_answer(&event.event_id).await.outcome).starts_with("replied: "));
    }
    let tape = host.tapes().list().await.unwrap().remove(0).name;
    let entries =
        host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Event], ..TapeSlice::all() }).await.unwrap();
    let accepted = entries.iter().filter(|entry| entry.name() == Some("event.accepted"));
    let texts = accepted.map(|entry| entry.payload["data"]["event"]["input"]["text"].as_str().unwrap().to_owned());
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn g01_panic_during_acceptance_is_reported_and_the_event_is_recovered() {
    let (store, desk) = (FaultyStore::new(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let environment = TestEnvironment::with_store(store.clone());
    let host = environment.host().channel(&desk).start().await;
    store.panic_after_acceptance(true);
    let event = Event::message("desk", "1", "hello");
    let refused = host.submit(event.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "intake-failed");
    store.panic_after_acceptance(false);
    let outcome = environment.wait_until_settled(&event).await;
    assert!(format_outcome(&outcome).starts_with("replied: "), "{outcome:?}");
    host.submit(event.clone().into()).await.unwrap();
    assert!(desk.wait_for_answer(&event.event_id).await.is_duplicate, "the same id gets the outcome");
    let next = host.serve(Event::message("desk", "1", "again")).await.unwrap();
    assert!(matches!(next.outcome, Some(Outcome::Replied { .. })), "{next:?}");
    environment.assert_settled().await;
    host.stop().await.unwrap();
}
