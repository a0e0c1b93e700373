//! Stop deadline of a host with slow callers and channels, and slow callers of a running host. On a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::ChannelError;
use capstan_hooks::points::RunModel;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, EventKey, Outcome};
use capstan_tape::OutboxStatus;
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::sessions::support::hold_tool_plugin;
use crate::sessions::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

/// Time that a stop may take beyond its deadline.
const STOP_OVERHEAD: Duration = Duration::from_secs(5);

fn echo_plugin() -> ClosurePlugin {
    ClosurePlugin::new("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

/// Channel whose callers take no answer before the release of `barrier`.
fn blocking_channel(barrier: &ReplyBarrier) -> Arc<TestChannel> {
    let barrier = barrier.clone();
    Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(
        move |request: &ChannelRequest| -> Option<ChannelFuture> {
            let barrier = barrier.clone();
            matches!(request, ChannelRequest::Answer(_)).then(|| {
                async move {
                    barrier.wait_for_release().await;
                    Ok(())
                }
                .boxed()
            })
        },
    ))
}

async fn outbox_status(environment: &TestEnvironment, event: &Event) -> OutboxStatus {
    let mut rows = environment.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.pop().expect("the event has an answer").status
}

async fn wait_until_settled(environment: &TestEnvironment, events: &[Event]) {
    for event in events {
        while environment.outcome(event).await.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_slow_caller_gets_its_answer_without_delaying_others() {
    let barrier = ReplyBarrier::new();
    let (environment, desk, phone) =
        (TestEnvironment::in_memory(), blocking_channel(&barrier), Arc::new(TestChannel::new("phone")));
    let host = environment.host().channel(&desk).channel(&phone).plugin(echo_plugin()).start().await;
    let slow = Event::message("desk", "slow", "one");
    let served = host.serve_in_background(slow.clone());
    barrier.reached().await;
    tokio::time::sleep(Duration::from_hours(3)).await;
    host.serve(Event::message("phone", "1", "meanwhile")).await.unwrap();
    assert_eq!(phone.sent(), ["1: re: meanwhile"]);
    assert!(matches!(outbox_status(&environment, &slow).await, OutboxStatus::Waiting { .. }), "the answer is pending");
    barrier.release();
    assert_eq!(served.await.unwrap().delivery_errors, Vec::<String>::new());
    assert_eq!(outbox_status(&environment, &slow).await, OutboxStatus::sent());
    assert_eq!(desk.wait_for_answer(&slow.event_id).await.outcome, Outcome::Replied { text: "re: one".to_owned() });
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x03_a_stop_keeps_its_deadline_and_records_answers_that_were_not_taken() {
    let barrier = ReplyBarrier::new();
    let (environment, desk) = (TestEnvironment::in_memory(), blocking_channel(&barrier));
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    let events: Vec<Event> = (0..40).map(|n| Event::message("desk", (n % 2).to_string(), format!("{n}"))).collect();
    for event in &events {
        host.submit_and_wait(event).await;
    }
    wait_until_settled(&environment, &events).await;
    let started = Instant::now();
    host.stop_within(Duration::from_secs(2)).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(2) + STOP_OVERHEAD, "{:?}", started.elapsed());
    for event in &events {
        assert!(matches!(environment.outcome(event).await, Some(Outcome::Replied { .. })));
        let OutboxStatus::Undelivered { reason } = outbox_status(&environment, event).await else {
            panic!("the answer was not taken")
        };
        assert!(reason.contains("before the host stopped"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn x03_an_undelivered_answer_becomes_sent_when_the_event_is_repeated() {
    let is_disconnected = Arc::new(AtomicBool::new(true));
    let disconnected = Arc::clone(&is_disconnected);
    let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(
        move |request: &ChannelRequest| -> Option<ChannelFuture> {
            let hung_up = || async { Err(ChannelError::permanent("desk".into(), "hung up")) }.boxed();
            (matches!(request, ChannelRequest::Answer(_)) && disconnected.load(Ordering::SeqCst)).then(hung_up)
        },
    ));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "1", "one");
    host.serve(event.clone()).await.unwrap();
    let undelivered = OutboxStatus::Undelivered { reason: "hung up".to_owned() };
    assert_eq!(outbox_status(&environment, &event).await, undelivered);
    host.serve(event.clone()).await.unwrap();
    assert_eq!(outbox_status(&environment, &event).await, undelivered, "the second caller disconnected too");
    is_disconnected.store(false, Ordering::SeqCst);
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!((served.is_duplicate, served.outbounds.len()), (true, 1));
    assert_eq!(desk.wait_for_answer(&event.event_id).await.messages.len(), 1);
    host.stop().await.unwrap();
    assert_eq!(outbox_status(&environment, &event).await, OutboxStatus::sent());
}

#[tokio::test(start_paused = true)]
async fn x02_a_forced_stop_cancels_turns_and_leaves_queued_events_to_the_next_host() {
    let barrier = ReplyBarrier::new();
    let (environment, desk) = (TestEnvironment::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = environment.host().channel(&desk).plugin(hold_tool_plugin(&barrier)).start().await;
    host.listen(&["desk".into()]).await;
    let running = Event::message("desk", "1", "[[tool:hold]]");
    host.submit_and_wait(&running).await;
    barrier.reached().await;
    let queued: Vec<Event> = (0..3).map(|n| Event::message("desk", "1", format!("waits {n}"))).collect();
    for event in &queued {
        host.submit_and_wait(event).await;
    }
    let started = Instant::now();
    host.stop_within(Duration::ZERO).await.unwrap();
    assert!(started.elapsed() <= STOP_OVERHEAD, "{:?}", started.elapsed());
    assert_eq!(environment.outcome(&running).await, Some(Outcome::Cancelled));
    assert_eq!(
        desk.wait_for_answer(&running.event_id).await.outcome,
        Outcome::Cancelled,
        "the waiting caller gets the outcome"
    );
    assert_eq!(environment.store().in_flight_events(None).collect().await.unwrap().len(), 3);

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = environment.host().channel(&desk).start().await;
    host.listen(&["desk".into()]).await;
    host.wait_until_idle().await;
    for event in &queued {
        assert!(matches!(environment.outcome(event).await, Some(Outcome::Replied { .. })));
        host.submit_and_wait(event).await;
        assert!(desk.wait_for_answer(&event.event_id).await.is_duplicate, "a repeated event gets its outcome");
    }
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn c02_a_host_stops_while_a_task_waits_for_its_channels() {
    let (environment, phone) = (TestEnvironment::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = environment.host().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    let waiting_host = host.clone();
    let ended = tokio::spawn(async move { waiting_host.wait_for_channels().await });
    tokio::task::yield_now().await;
    let started_at = Instant::now();
    host.stop().await.unwrap();
    assert_eq!(started_at.elapsed(), Duration::ZERO, "the channel stops at once, not at the deadline");
    assert_eq!(ended.await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_ignores_its_stop_ends_with_its_host() {
    let channel = TestChannel::new("unstoppable").with_behaviour(|request| {
        matches!(request, ChannelRequest::Stop)
            .then(|| async { Err(ChannelError::new("unstoppable".into(), "stop ignored")) }.boxed())
    });
    let (environment, channel) = (TestEnvironment::in_memory(), Arc::new(channel));
    let host = environment.host().channel(&channel).start().await;
    host.listen(&["unstoppable".into()]).await;
    let started = Instant::now();
    let waiting_host = host.clone();
    host.stop_within(Duration::from_secs(1)).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(1) + STOP_OVERHEAD, "{:?}", started.elapsed());
    // The channel does not outlive its host.
    waiting_host.wait_for_channels().await;
}
