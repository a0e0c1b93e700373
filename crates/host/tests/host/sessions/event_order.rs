//! Order and ownership of the events of one session across two hosts on one database, like two processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::args::PromptContent;
use capstan_hooks::points::{BuildPrompt, RunModel};
use capstan_host::LeaseOwner;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{Event, EventKey, Outcome};
use capstan_tape::{Batch, EntryKind, Fact, MemoryStore, Store, StoreError, TapeSlice};
use capstan_testing::ReplyBarrier;
use serde_json::json;

use crate::sessions::faulty_store::FaultyStore;
use crate::sessions::orphaned_events::{OrphanedSession, session_message};
use crate::sessions::support::{blocking_echo_plugin, format_outcome};
use crate::sessions::test_channel::TestChannel;

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

/// Plugin whose model stage echoes the prompt and counts its calls.
fn counting_echo_plugin(calls: &Arc<AtomicUsize>) -> ClosurePlugin {
    let calls = Arc::clone(calls);
    ClosurePlugin::new("echo", move |hooks| {
        let calls = Arc::clone(&calls);
        hooks.on(RunModel, move |prompt: PromptContent| {
            calls.fetch_add(1, Ordering::SeqCst);
            async move { Ok(Some(format!("re: {}", prompt.text()))) }
        });
    })
}

/// Moves an event in flight to another owner, as the recovery of that process does.
async fn adopt_event(store: &dyn Store, event: &Event, owner: &str) {
    let key = EventKey::from(event);
    let from = store.in_flight_event(&key).await.unwrap().expect("the event is in flight").owner;
    let mut batch = Batch::new();
    batch.push(Fact::AdoptEvent { key, from, owner: owner.to_owned(), was_in_progress: true });
    store.commit(batch).await.unwrap();
}

/// Texts of the user messages of the only tape, in order.
async fn served_texts(host: &TestHost) -> Vec<String> {
    let tape = host.tapes().list().await.unwrap().remove(0).name;
    let messages = TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::all() };
    let messages = host.tapes().read(&tape, &messages).await.unwrap();
    let users = messages.iter().filter(|entry| entry.payload["role"] == "user");
    users.map(|entry| entry.payload["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn x04_a_queued_event_that_another_process_adopted_is_not_served_here() {
    let (barrier, environment) = (ReplyBarrier::new(), TestEnvironment::on_disk());
    let host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let (one, two) = (Event::message("phone", "1", "one"), Event::message("phone", "1", "two"));
    let (first, second) = (host.serve_in_background(one), host.serve_in_background(two.clone()));
    barrier.reached().await;
    while environment.store().in_flight_event(&EventKey::from(&two)).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let other = LeaseOwner::open(environment.workspace().join("owners")).unwrap();
    adopt_event(environment.store(), &two, other.name()).await;
    barrier.release();
    assert_eq!(first.await.unwrap().output, "re: one");
    assert_eq!(
        host.serve(Event::message("phone", "2", "another session")).await.unwrap().output,
        "re: another session"
    );
    assert_eq!(environment.outcome(&two).await, None, "the event is left to its new owner");
    drop(other);
    host.listen(&["phone".into()]).await;
    assert_eq!(second.await.unwrap().output, "re: two", "the caller gets the recorded outcome");
    let runs = environment.store().run_page(None, 10).await.unwrap();
    let runs = runs.iter().filter(|run| run.event == EventKey::from(&two)).count();
    assert_eq!(runs, 1, "only the recovery serves it");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x04_the_commit_that_opens_a_run_fails_if_another_process_owns_the_event() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let environment = TestEnvironment::with_store(Arc::clone(&store));
    let other = LeaseOwner::open(environment.workspace().join("owners")).unwrap();
    let (calls, event) = (Arc::new(AtomicUsize::new(0)), Event::message("phone", "1", "one"));
    // After the host has begun the turn, and before it opens the run.
    let adopting = {
        let (event, other) = (event.clone(), other.name().to_owned());
        ClosurePlugin::new("adopting", move |hooks| {
            let (store, event, other) = (Arc::clone(&store), event.clone(), other.clone());
            hooks.on(BuildPrompt, move |_: InboundEvent| {
                let (store, event, other) = (Arc::clone(&store), event.clone(), other.clone());
                async move {
                    adopt_event(store.as_ref(), &event, &other).await;
                    Ok(None)
                }
            });
        })
    };
    let host = environment
        .host()
        .channel(&phone_channel())
        .plugin(adopting)
        .plugin(counting_echo_plugin(&calls))
        .start()
        .await;
    let served = host.serve_in_background(event.clone());
    let in_flight = async || environment.store().in_flight_event(&EventKey::from(&event)).await.unwrap();
    while in_flight().await.and_then(|event| event.owner).as_deref() != Some(other.name()) {
        tokio::task::yield_now().await;
    }
    let mut settle = Batch::new();
    let outcome = Outcome::Replied { text: "from the other".to_owned() };
    settle.push(Fact::SettleEvent { key: EventKey::from(&event), outcome, run_id: None });
    environment.store().commit(settle).await.unwrap();
    assert_eq!(served.await.unwrap().output, "from the other");
    assert_eq!(environment.store().run_page(None, 10).await.unwrap(), [], "no run was opened");
    assert_eq!(calls.load(Ordering::SeqCst), 0, "the model stage did not begin");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x04_a_turn_waits_for_an_earlier_event_of_another_host() {
    let (barrier, environment) = (ReplyBarrier::new(), TestEnvironment::on_disk());
    let first_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let second_host = environment
        .host_with_own_connection()
        .channel(&phone_channel())
        .plugin(blocking_echo_plugin(&barrier))
        .start()
        .await;
    let events: Vec<Event> = (0..9).map(|n| Event::message("phone", "1", format!("{n}"))).collect();
    first_host.submit_and_wait(&events[0]).await;
    barrier.reached().await;
    for (number, event) in events.iter().enumerate().skip(1) {
        let host = if number % 4 < 2 { &first_host } else { &second_host };
        host.submit_and_wait(event).await;
    }
    barrier.release();
    for event in &events {
        environment.wait_until_settled(event).await;
    }
    let expected: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    assert_eq!(served_texts(&first_host).await, expected, "in the order of acceptance");
    first_host.stop().await.unwrap();
    second_host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x04_recovered_events_keep_their_order_among_the_events_of_the_host() {
    let (barrier, environment) = (ReplyBarrier::new(), TestEnvironment::on_disk());
    let dead_host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let host = environment
        .host_with_own_connection()
        .channel(&phone_channel())
        .plugin(blocking_echo_plugin(&barrier))
        .start()
        .await;
    host.listen(&["phone".into()]).await;
    let events: Vec<Event> = (0..4).map(|n| Event::message("phone", "1", format!("{n}"))).collect();
    dead_host.submit_and_wait(&events[0]).await;
    barrier.reached().await;
    for (number, event) in events.iter().enumerate().skip(1) {
        (if number == 2 { &dead_host } else { &host }).submit_and_wait(event).await;
    }
    // A stopped host ends its turn, and leaves its queued events.
    let stopping = tokio::spawn(dead_host.stop());
    barrier.release();
    stopping.await.unwrap().unwrap();
    for event in &events {
        environment.wait_until_settled(event).await;
    }
    assert_eq!(served_texts(&host).await, ["0", "1", "2", "3"], "in the order of acceptance");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_the_recovery_of_a_session_is_retried_after_a_store_error() {
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(store.clone());
    let orphaned = OrphanedSession::new(&environment);
    let event = session_message("phone", "one");
    orphaned.accept_event(&event, 0, json!({})).await;
    let mut failures = 3;
    store.refuse(move |batch| {
        batch.facts.iter().find(|fact| matches!(fact, Fact::AdoptEvent { .. }))?;
        failures = usize::checked_sub(failures, 1)?;
        Some(StoreError::DiskFull { what: "the disk".to_owned() })
    });
    let host = environment.host().channel(&phone_channel()).start().await;
    // One sweep only: the host does not sweep again within the time of the retries.
    host.listen(&["phone".into()]).await;
    let started = tokio::time::Instant::now();
    while environment.outcome(&event).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let outcome = environment.wait_until_settled(&event).await;
    assert!(format_outcome(&outcome).starts_with("replied"), "{outcome:?}");
    assert!(started.elapsed().as_secs() < 30, "before the next sweep");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_the_recovery_of_a_session_is_left_to_the_next_sweep_after_several_errors() {
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(store.clone());
    let orphaned = OrphanedSession::new(&environment);
    let event = session_message("phone", "one");
    orphaned.accept_event(&event, 0, json!({})).await;
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    store.refuse(move |batch| {
        batch.facts.iter().find(|fact| matches!(fact, Fact::AdoptEvent { .. }))?;
        counted.fetch_add(1, Ordering::SeqCst);
        Some(StoreError::DiskFull { what: "the disk".to_owned() })
    });
    let host = environment.host().channel(&phone_channel()).start().await;
    host.listen(&["phone".into()]).await;
    let idle = tokio::time::timeout(Duration::from_mins(10), host.wait_until_idle());
    idle.await.expect("a session whose recovery fails does not stay active");
    assert_eq!(environment.outcome(&event).await, None, "the event stays in the store");
    assert!((2..20).contains(&attempts.load(Ordering::SeqCst)), "{attempts:?}");
    store.refuse(|_| None);
    while environment.outcome(&event).await.is_none() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    host.stop().await.unwrap();
    environment.assert_settled().await;
}
