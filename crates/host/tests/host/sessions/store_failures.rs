//! Store failures, temporary or caused by a faster process: started work is completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::args::ErrorReport;
use capstan_hooks::contracts::{DebounceOptions, IntakeOptions, ResultStream, RunApi, Runner};
use capstan_hooks::points::{OnError, ProvideRunners};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_policy::default_binding;
use capstan_protocol::{
    Binding, Descriptor, Event, EventKey, JsonObject, Outcome, PermissionSet, ResultBody, RunContext, RunResult,
    StatePolicy, StateScope, Timestamp,
};
use capstan_tape::{Fact, OwnerLiveness, StoreError};
use capstan_testing::ReplyBarrier;
use futures::{StreamExt as _, stream};
use serde_json::json;

use crate::sessions::faulty_store::FaultyStore;
use crate::sessions::orphaned_events::{OrphanedSession, phone_channel, session_message, start_listening_host};
use crate::sessions::support::{blocking_echo_plugin, format_outcome};
use crate::sessions::test_channel::TestChannel;

fn is_settle(fact: &Fact) -> bool {
    matches!(fact, Fact::SettleEvent { .. })
}

#[tokio::test(start_paused = true)]
async fn x01_settling_a_turn_is_retried_while_the_host_stops() {
    let (barrier, store, phone) = (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::new("phone")));
    let environment = TestEnvironment::with_store(store.clone());
    let host = environment.host().channel(&phone).plugin(blocking_echo_plugin(&barrier)).start().await;
    let event = Event::message("phone", "1", "one");
    host.submit_and_wait(&event).await;
    barrier.reached().await;
    store.refuse_first(3, is_settle);
    let stopping = tokio::spawn(host.stop());
    tokio::time::sleep(Duration::from_millis(1)).await;
    barrier.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(environment.outcome(&event).await.as_ref().map(format_outcome).as_deref(), Some("replied: re: one"));
    assert_eq!(phone.sent(), ["1: re: one"]);
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x01_a_store_that_never_settles_a_turn_does_not_block_the_stop() {
    let (barrier, store, phone) = (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::new("phone")));
    let environment = TestEnvironment::with_store(store.clone());
    let host = environment.host().channel(&phone).plugin(blocking_echo_plugin(&barrier)).start().await;
    let event = Event::message("phone", "1", "one");
    host.submit_and_wait(&event).await;
    barrier.reached().await;
    store.refuse_first(usize::MAX, is_settle);
    barrier.release();
    host.stop().await.unwrap();
    assert_eq!(environment.outcome(&event).await, None, "the event stays in flight for the next start");
}

#[tokio::test(start_paused = true)]
async fn x01_waiting_callers_are_notified_once_of_a_failing_store_and_answered_later() {
    let (barrier, store, desk) =
        (ReplyBarrier::new(), FaultyStore::new(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let environment = TestEnvironment::with_store(store.clone());
    let host = environment.host().channel(&desk).plugin(blocking_echo_plugin(&barrier)).start().await;
    let events = ["one", "two"].map(|text| Event::message("desk", "1", text));
    for event in &events {
        host.submit_and_wait(event).await;
    }
    barrier.reached().await;
    store.refuse_first(5, is_settle);
    barrier.release();
    let delayed = desk.wait_until_delayed(2).await;
    let ids: Vec<_> = delayed.iter().map(|(event, _)| event).collect();
    assert_eq!(ids, [&events[0].event_id, &events[1].event_id], "the finished event, and the one queued behind it");
    assert!(delayed.iter().all(|(_, reason)| reason.code == "disk-full"), "{delayed:?}");
    for event in &events {
        assert!(matches!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Replied { .. }));
    }
    assert_eq!(desk.wait_until_delayed(2).await.len(), 2, "retries give no further notice");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn c03_a_dropped_event_is_settled_when_the_store_recovers() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let phone = TestChannel::new("phone").with_intake(IntakeOptions { admission: None, debounce: Some(debounce) });
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(store.clone());
    let host = environment.host().channel(&Arc::new(phone)).start().await;
    store.refuse_first(3, is_settle);
    let mut unaddressed = Event::message("phone", "1", "nice weather");
    unaddressed.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    host.submit_and_wait(&unaddressed).await;
    while environment.outcome(&unaddressed).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(environment.outcome(&unaddressed).await, Some(Outcome::Dropped));
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn t11_observers_are_notified_once_of_a_given_up_event_despite_conflicts() {
    let (store, notified) = (FaultyStore::new(), Arc::new(AtomicUsize::new(0)));
    let environment = TestEnvironment::with_store(store.clone());
    let orphaned = OrphanedSession::new(&environment);
    let event = session_message("phone", "one");
    orphaned.accept_event(&event, 0, json!({})).await;
    orphaned.open_run(&event, true).await;
    let mut conflicts = 2;
    store.refuse(move |batch| {
        let key = batch.facts.iter().find_map(|fact| match fact {
            Fact::SettleEvent { key, .. } => Some(key.clone()),
            _ => None,
        })?;
        conflicts = usize::checked_sub(conflicts, 1)?;
        Some(StoreError::EventNotInFlight { key })
    });
    let observer_count = Arc::clone(&notified);
    let observer = ClosurePlugin::new("observer", move |hooks| {
        let observer_count = Arc::clone(&observer_count);
        hooks.on(OnError, move |_: ErrorReport| {
            observer_count.fetch_add(1, Ordering::SeqCst);
            async { Ok(Some(())) }
        });
    });
    let host = environment.host().channel(&phone_channel()).plugin(observer).start().await;
    host.listen(&["phone".into()]).await;
    let outcome = format_outcome(&environment.wait_until_settled(&event).await);
    assert!(outcome.contains("cannot tell what was done"), "{outcome}");
    assert_eq!(notified.load(Ordering::SeqCst), 1);
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn g06_a_run_fails_if_its_state_cannot_be_written() {
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(store.clone());
    let builder = environment.host().channel(&phone_channel()).agent_plugin(ClosurePlugin::new("state", |hooks| {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(StateWritingRunner) as Arc<dyn Runner>])));
    }));
    let host = builder.start().await;
    let state_policy = StatePolicy { enabled: true, ..StatePolicy::default() };
    let binding = Binding { state_policy, ..default_binding() };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    store.refuse_first(1, |fact| matches!(fact, Fact::UpdateWithinQuota(_)));
    let served = host.serve(Event::message("phone", "1", "remember this")).await.unwrap();
    assert_eq!(served.error.unwrap().code(), "disk-full");
    let served = host.serve(Event::message("phone", "1", "remember this")).await.unwrap();
    assert_eq!(served.output, "I will remember", "{:?}", served.error);
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

/// Runner that yields two state updates and a message.
struct StateWritingRunner;

impl Runner for StateWritingRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "remembers") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let state = JsonObject::from_iter([("k".to_owned(), json!(1))]);
        let message =
            ResultBody::MessageCompleted { content: "I will remember".into(), provider_meta: JsonObject::new() };
        let update = ResultBody::StateUpdated { scope: StateScope::Conversation, state };
        let results = [
            update.clone(),
            // The quota check of this update needs the stored size, which forces the first update to be written.
            update,
            message,
            ResultBody::RunCompleted { silent: false },
        ];
        stream::iter(results.map(RunResult::from)).boxed()
    }
}

#[tokio::test]
async fn c03_an_event_refused_a_turn_opens_no_active_window_after_a_crash() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    let question = session_message("phone", "bot, what is this?");
    let mut unaddressed = session_message("phone", "the blue one");
    unaddressed.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    orphaned.accept_event(&question, 1000, json!({ "without_turn": "too many wait" })).await;
    orphaned.accept_event(&unaddressed, 1010, json!({})).await;
    let host =
        start_listening_host(&environment, &Arc::new(TestChannel::new("phone").with_intake(intake)), "phone").await;
    assert_eq!(format_outcome(&environment.wait_until_settled(&unaddressed).await), "dropped");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x03_orphaned_messages_are_sent_although_a_later_one_cannot_be_adopted() {
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(store.clone());
    let orphaned = OrphanedSession::new(&environment);
    for text in ["one", "two"] {
        let event = session_message("phone", text);
        orphaned.accept_event(&event, 0, json!({})).await;
        orphaned.enqueue_unsent(&event, text).await;
    }
    let mut adoptions = 0;
    store.refuse(move |batch| {
        adoptions += usize::from(batch.facts.iter().any(|fact| matches!(fact, Fact::AdoptOutbound { .. })));
        (adoptions == 2).then(|| StoreError::DiskFull { what: "the store of a test".to_owned() })
    });
    let channel = phone_channel();
    let host = start_listening_host(&environment, &channel, "phone").await;
    channel.wait_until_sent(1).await;
    assert_eq!(channel.sent(), ["1: one"]);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x04_a_session_that_lost_its_lease_acquires_it_again_for_the_next_turn() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let [first, second] = ["one", "two"].map(|text| session_message("phone", text));
    let turn = host.serve_in_background(first);
    barrier.reached().await;
    // The second event is queued in the same session, so that the host keeps the lease for it.
    let next = host.serve_in_background(second.clone());
    while environment.store().inbox_record(&EventKey::from(&second)).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let orphaned = OrphanedSession::new(&environment);
    let lease = environment.store().lease(&orphaned.tape).await.unwrap().unwrap();
    let owner_liveness = lease.owner.map(|owner| OwnerLiveness { owner, is_alive: false });
    let (now, expires_at) = (Timestamp::from_millis(0), lease.expires_at);
    orphaned
        .commit(vec![Fact::TakeLease {
            tape: orphaned.tape.clone(),
            owner: "other/1".into(),
            now,
            expires_at,
            owner_liveness,
        }])
        .await;
    barrier.release();
    let interrupted = turn.await.unwrap().outcome.as_ref().map(format_outcome).unwrap_or_default();
    assert!(interrupted.starts_with("failed: ") && interrupted.contains("I was interrupted"), "{interrupted}");
    assert_eq!(next.await.unwrap().outcome.as_ref().map(format_outcome).as_deref(), Some("replied: re: two"));
    host.stop().await.unwrap();
    environment.assert_settled().await;
}
