use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, IntakeOptions};
use capstan_hooks::points::RunModel;
use capstan_protocol::{AdmissionMode, ChannelName, Clock, Event, EventKey, OutboundMessage, Outcome, WorkspaceId};
use capstan_tape::{Batch, Fact, NewTape, TapeAddress, tape_name};

use crate::testing::{TestEnvironment, TestHost};

/// Channel `phone`, which wants messages dropped during a turn.
struct PhoneTestChannel;

#[async_trait]
impl Channel for PhoneTestChannel {
    fn name(&self) -> ChannelName {
        "phone".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions { admission: Some(AdmissionMode::Drop), debounce: None }
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }
}

/// Starts a host with the channel `phone` and a model stage that echoes its prompt.
async fn start_echo_host(environment: &TestEnvironment) -> TestHost {
    let builder = environment.host().channel(&Arc::new(PhoneTestChannel)).register("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text())) });
    });
    builder.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_many_turns_of_many_sessions_leave_no_actor_queue_or_run_behind() {
    let environment = TestEnvironment::in_memory();
    let (store, host) = (environment.store(), start_echo_host(&environment).await);
    let events = |turn: usize| (0..200).map(move |chat| Event::message("phone", chat.to_string(), turn.to_string()));
    for turn in 0..5 {
        let turns = events(turn).map(|event| host.serve(event));
        for served in futures::future::join_all(turns).await {
            assert!(served.unwrap().outcome.is_some());
        }
        // The same events again, from sources that do not wait.
        for accepted in futures::future::join_all(events(turn).map(|event| host.submit(event.into()))).await {
            accepted.unwrap();
        }
    }
    while !store.in_flight_events(None).collect().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let stopped = host.clone();
    host.stop().await.unwrap();
    let (_, conversations, chats) = stopped.sessions.active_counts();
    assert_eq!((conversations, chats), (0, 0));
    assert!(stopped.environment.active_runs().is_empty());
    assert_eq!(stopped.lifecycle().tasks.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn t13_a_session_is_passivated_when_it_is_idle() {
    let host = start_echo_host(&TestEnvironment::in_memory()).await;
    for chat in 0..50 {
        host.serve(Event::message("phone", chat.to_string(), "hello")).await.unwrap();
    }
    // Paused time advances only while every task waits.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(host.sessions.active_counts(), (0, 0, 0));
    assert!(host.environment.active_runs().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_the_outcome_of_an_event_is_polled_only_for_a_waiting_caller() {
    let environment = TestEnvironment::in_memory();
    let (store, host) = (environment.store(), start_echo_host(&environment).await);
    // An event that another process may be serving: its owner is unknown here.
    let event = Event::message("phone", "1", "hello");
    let (session, workspace) = (event.fallback_session(), WorkspaceId::new(environment.workspace().to_string_lossy()));
    let tape = tape_name(&TapeAddress { workspace, session: session.clone() });
    let (key, at) = (EventKey::from(&event), Clock::system().now());
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    let entry =
        batch.append(&tape, capstan_tape::EntryDraft::event("event.accepted", serde_json::json!({ "event": event })));
    batch.push(Fact::AcceptEvent {
        key: key.clone(),
        session,
        tape,
        entry,
        accepted_at: at,
        owner: "elsewhere".to_owned(),
    });
    store.commit(batch).await.unwrap();

    let before = host.lifecycle().tasks.len();
    host.submit(event.clone().into()).await.unwrap();
    // Paused time advances only while every task waits.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(host.lifecycle().tasks.len(), before, "no caller waits for a reply, and no task polls for one");
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { host.serve(event).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(host.lifecycle().tasks.len(), before + 1, "a task polls for the waiting caller");
    let settle = Fact::SettleEvent { key, outcome: Outcome::Silent, run_id: None };
    store.commit(Batch { facts: vec![settle], ..Batch::new() }).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().outcome, Some(Outcome::Silent));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_repeated_listen_calls_start_one_recovery_task() {
    let host = start_echo_host(&TestEnvironment::in_memory()).await;
    host.listen(&["phone".into()]).await;
    let tasks = host.lifecycle().tasks.len();
    host.listen(&["phone".into()]).await;
    assert_eq!(host.lifecycle().tasks.len(), tasks);
    host.stop().await.unwrap();
}
