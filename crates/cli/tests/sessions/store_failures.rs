//! A store that refuses for a while, or because another process was faster: what was begun is brought to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan::hooks::args::ErrorReport;
use capstan::hooks::contracts::{DebounceOptions, IntakeOptions, ResultStream, RunApi, Runner};
use capstan::hooks::points::{OnError, ProvideRunners};
use capstan::protocol::{
    Binding, Descriptor, Event, EventKey, JsonObject, Outcome, PermissionSet, ResultBody, RunContext, RunResult,
    StatePolicy, StateScope, Timestamp,
};
use capstan::tape::{Fact, OwnerLiveness, StoreError};
use capstan_policy::default_binding;
use capstan_testing::ReplyBarrier;
use futures::{StreamExt as _, stream};
use serde_json::json;

use crate::faulty_store::FaultyStore;
use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome, gated_echo_plugin, serve_in_background, submit};
use crate::orphaned_events::{
    OrphanedSession, phone_channel, session_message, start_listening_host, wait_until_settled,
};
use crate::test_channel::TestChannel;

fn is_settle(fact: &Fact) -> bool {
    matches!(fact, Fact::SettleEvent { .. })
}

#[tokio::test(start_paused = true)]
async fn x01_the_end_of_a_turn_is_tried_again_although_the_host_stops() {
    let (barrier, store, phone) = (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::new("phone")));
    let fixture = HostFixture::with_store(store.clone());
    let host = fixture.host_builder().channel(&phone).plugin(gated_echo_plugin(&barrier)).start().await;
    let event = Event::message("phone", "1", "one");
    submit(&host, &event).await;
    barrier.reached().await;
    store.refuse_first(3, is_settle);
    let stopping = tokio::spawn(host.stop());
    tokio::time::sleep(Duration::from_millis(1)).await;
    barrier.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(fixture.outcome(&event).await.as_ref().map(format_outcome).as_deref(), Some("replied: re: one"));
    assert_eq!(phone.sent(), ["1: re: one"]);
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x01_a_store_that_never_takes_the_end_of_a_turn_does_not_keep_the_host_from_stopping() {
    let (barrier, store, phone) = (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::new("phone")));
    let fixture = HostFixture::with_store(store.clone());
    let host = fixture.host_builder().channel(&phone).plugin(gated_echo_plugin(&barrier)).start().await;
    let event = Event::message("phone", "1", "one");
    submit(&host, &event).await;
    barrier.reached().await;
    store.refuse_first(usize::MAX, is_settle);
    barrier.release();
    host.stop().await.unwrap();
    assert_eq!(fixture.outcome(&event).await, None, "it is in flight, for the next start");
}

#[tokio::test(start_paused = true)]
async fn x01_who_waits_hears_once_that_the_store_fails_and_is_answered_when_it_works_again() {
    let (barrier, store, desk) =
        (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let fixture = HostFixture::with_store(store.clone());
    let host = fixture.host_builder().channel(&desk).plugin(gated_echo_plugin(&barrier)).start().await;
    let events = ["one", "two"].map(|text| Event::message("desk", "1", text));
    for event in &events {
        submit(&host, event).await;
    }
    barrier.reached().await;
    store.refuse_first(5, is_settle);
    barrier.release();
    let told = desk.wait_until_delayed(2).await;
    let ids: Vec<_> = told.iter().map(|(event, _)| event).collect();
    assert_eq!(ids, [&events[0].event_id, &events[1].event_id], "the one that has ended, and the one behind it");
    assert!(told.iter().all(|(_, why)| why.code == "disk-full"), "{told:?}");
    for event in &events {
        assert!(matches!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Replied { .. }));
    }
    assert_eq!(desk.wait_until_delayed(2).await.len(), 2, "however often it was tried");
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn c03_an_event_that_is_let_go_is_settled_when_the_store_works_again() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let phone = TestChannel::new("phone").with_intake(IntakeOptions { admission: None, debounce: Some(debounce) });
    let store = FaultyStore::new();
    let fixture = HostFixture::with_store(store.clone());
    let host = fixture.host_builder().channel(&Arc::new(phone)).start().await;
    store.refuse_first(3, is_settle);
    let mut overheard = Event::message("phone", "1", "nice weather");
    overheard.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    submit(&host, &overheard).await;
    while fixture.outcome(&overheard).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fixture.outcome(&overheard).await, Some(Outcome::Dropped));
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn t11_observers_are_told_once_why_an_event_is_given_up_although_another_process_was_faster_with_one() {
    let (store, told) = (FaultyStore::new(), Arc::new(AtomicUsize::new(0)));
    let fixture = HostFixture::with_store(store.clone());
    let left = OrphanedSession::new(&fixture);
    let event = session_message("phone", "one");
    left.accept_event(&event, 0, json!({})).await;
    left.open_run(&event, true).await;
    let mut races = 2;
    store.refuse(move |batch| {
        let key = batch.facts.iter().find_map(|fact| match fact {
            Fact::SettleEvent { key, .. } => Some(key.clone()),
            _ => None,
        })?;
        races = usize::checked_sub(races, 1)?;
        Some(StoreError::EventNotInFlight { key })
    });
    let counts = Arc::clone(&told);
    let observer = boxed_plugin("observer", move |hooks| {
        let counts = Arc::clone(&counts);
        hooks.on(OnError, move |_: ErrorReport| {
            counts.fetch_add(1, Ordering::SeqCst);
            async { Ok(Some(())) }
        });
    });
    let host = fixture.host_builder().channel(&phone_channel()).plugin(observer).start().await;
    host.listen(&["phone".into()]).await;
    let outcome = format_outcome(&wait_until_settled(&fixture, &event).await);
    assert!(outcome.contains("cannot tell what was done"), "{outcome}");
    assert_eq!(told.load(Ordering::SeqCst), 1);
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn g06_a_run_whose_state_cannot_be_written_ends_and_does_not_go_on_as_if_it_were_kept() {
    let store = FaultyStore::new();
    let fixture = HostFixture::with_store(store.clone());
    let host = fixture.host_builder().channel(&phone_channel()).plugin(boxed_plugin("forgetful", |hooks| {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(StateWritingRunner) as Arc<dyn Runner>])));
    }));
    let host = host.start().await;
    let state_policy = StatePolicy { enabled: true, ..StatePolicy::default() };
    let binding = Binding { state_policy, ..default_binding() };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    store.refuse_first(1, |fact| matches!(fact, Fact::UpdateWithinQuota(_)));
    let served = host.serve(Event::message("phone", "1", "remember this")).await.unwrap();
    assert_eq!(served.error.unwrap().code(), "disk-full");
    let served = host.serve(Event::message("phone", "1", "remember this")).await.unwrap();
    assert_eq!(served.output, "I will remember", "{:?}", served.error);
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

/// Wants something kept, and says so.
struct StateWritingRunner;

impl Runner for StateWritingRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "remembers") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let state = JsonObject::from_iter([("k".to_owned(), json!(1))]);
        let said = ResultBody::MessageCompleted { content: "I will remember".into(), provider_meta: JsonObject::new() };
        let update = ResultBody::StateUpdated { scope: StateScope::Conversation, state };
        let results = [
            update.clone(),
            // How much there is must be known for it, so what came before is written now.
            update,
            said,
            ResultBody::RunCompleted { silent: false },
        ];
        stream::iter(results.map(RunResult::from)).boxed()
    }
}

#[tokio::test]
async fn c03_an_event_that_was_refused_a_turn_opens_no_window_after_a_crash() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    let asked = session_message("phone", "bot, what is this?");
    let mut muttered = session_message("phone", "the blue one");
    muttered.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    left.accept_event(&asked, 1000, json!({ "without_turn": "too many wait" })).await;
    left.accept_event(&muttered, 1010, json!({})).await;
    let host = start_listening_host(&fixture, &Arc::new(TestChannel::new("phone").with_intake(intake)), "phone").await;
    assert_eq!(format_outcome(&wait_until_settled(&fixture, &muttered).await), "dropped");
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x03_messages_of_a_dead_process_are_sent_although_one_behind_them_cannot_be_taken_over() {
    let store = FaultyStore::new();
    let fixture = HostFixture::with_store(store.clone());
    let left = OrphanedSession::new(&fixture);
    for text in ["one", "two"] {
        let event = session_message("phone", text);
        left.accept_event(&event, 0, json!({})).await;
        left.enqueue_unsent(&event, text).await;
    }
    let mut taken_over = 0;
    store.refuse(move |batch| {
        taken_over += usize::from(batch.facts.iter().any(|fact| matches!(fact, Fact::AdoptOutbound { .. })));
        (taken_over == 2).then(|| StoreError::DiskFull { what: "the store of a test".to_owned() })
    });
    let channel = phone_channel();
    let host = start_listening_host(&fixture, &channel, "phone").await;
    channel.wait_until_sent(1).await;
    assert_eq!(channel.sent(), ["1: one"]);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x04_a_session_that_lost_its_lease_takes_it_again_for_the_next_turn() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::in_memory();
    let host = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let [first, second] = ["one", "two"].map(|text| session_message("phone", text));
    let turn = serve_in_background(&host, first);
    barrier.reached().await;
    // It waits in the same session, so that the lease is kept for it.
    let next = serve_in_background(&host, second.clone());
    while fixture.store().inbox_record(&EventKey::from(&second)).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let left = OrphanedSession::new(&fixture);
    let lease = fixture.store().lease(&left.tape).await.unwrap().unwrap();
    let judged = lease.owner.map(|owner| OwnerLiveness { owner, is_alive: false });
    let (now, until) = (Timestamp::from_millis(0), lease.expires_at);
    left.commit(vec![Fact::TakeLease {
        tape: left.tape.clone(),
        owner: "other/1".into(),
        now,
        expires_at: until,
        owner_liveness: judged,
    }])
    .await;
    barrier.release();
    assert_eq!(turn.await.unwrap().error.unwrap().code(), "session-busy");
    assert_eq!(next.await.unwrap().outcome.as_ref().map(format_outcome).as_deref(), Some("replied: re: two"));
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}
