//! Stop deadline of a host with slow callers and channels, and slow callers of a running host. On a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan::hooks::Plugin;
use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::ChannelError;
use capstan::hooks::points::RunModel;
use capstan::protocol::{Event, EventKey, Outcome};
use capstan::tape::OutboxStatus;
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::host_fixture::{HostFixture, boxed_plugin, hold_tool_plugin, serve_in_background, submit};
use crate::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

/// Time that a stop may take beyond its deadline.
const STOP_OVERHEAD: Duration = Duration::from_secs(5);

fn echo_plugin() -> Box<dyn Plugin> {
    boxed_plugin("echo", |hooks| {
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

async fn outbox_status(fixture: &HostFixture, event: &Event) -> OutboxStatus {
    let mut rows = fixture.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.pop().expect("the event has an answer").status
}

async fn wait_until_settled(fixture: &HostFixture, events: &[Event]) {
    for event in events {
        while fixture.outcome(event).await.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_slow_caller_gets_its_answer_without_delaying_others() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk, phone) =
        (HostFixture::in_memory(), blocking_channel(&barrier), Arc::new(TestChannel::new("phone")));
    let host = fixture.host_builder().channel(&desk).channel(&phone).plugin(echo_plugin()).start().await;
    let slow = Event::message("desk", "slow", "one");
    let served = serve_in_background(&host, slow.clone());
    barrier.reached().await;
    tokio::time::sleep(Duration::from_hours(3)).await;
    host.serve(Event::message("phone", "1", "meanwhile")).await.unwrap();
    assert_eq!(phone.sent(), ["1: re: meanwhile"]);
    assert!(matches!(outbox_status(&fixture, &slow).await, OutboxStatus::Waiting { .. }), "the answer is pending");
    barrier.release();
    assert_eq!(served.await.unwrap().delivery_errors, Vec::<String>::new());
    assert_eq!(outbox_status(&fixture, &slow).await, OutboxStatus::sent());
    assert_eq!(desk.wait_for_answer(&slow.event_id).await.outcome, Outcome::Replied { text: "re: one".to_owned() });
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x03_a_stop_keeps_its_deadline_and_records_answers_that_were_not_taken() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk) = (HostFixture::in_memory(), blocking_channel(&barrier));
    let host = fixture.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    let events: Vec<Event> = (0..40).map(|n| Event::message("desk", (n % 2).to_string(), format!("{n}"))).collect();
    for event in &events {
        submit(&host, event).await;
    }
    wait_until_settled(&fixture, &events).await;
    let started = Instant::now();
    host.stop_within(Duration::from_secs(2)).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(2) + STOP_OVERHEAD, "{:?}", started.elapsed());
    for event in &events {
        assert!(matches!(fixture.outcome(event).await, Some(Outcome::Replied { .. })));
        let OutboxStatus::Undelivered { reason } = outbox_status(&fixture, event).await else {
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
    let fixture = HostFixture::in_memory();
    let host = fixture.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "1", "one");
    host.serve(event.clone()).await.unwrap();
    let undelivered = OutboxStatus::Undelivered { reason: "hung up".to_owned() };
    assert_eq!(outbox_status(&fixture, &event).await, undelivered);
    host.serve(event.clone()).await.unwrap();
    assert_eq!(outbox_status(&fixture, &event).await, undelivered, "the second caller disconnected too");
    is_disconnected.store(false, Ordering::SeqCst);
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!((served.is_duplicate, served.outbounds.len()), (true, 1));
    assert_eq!(desk.wait_for_answer(&event.event_id).await.messages.len(), 1);
    host.stop().await.unwrap();
    assert_eq!(outbox_status(&fixture, &event).await, OutboxStatus::sent());
}

#[tokio::test(start_paused = true)]
async fn x02_a_forced_stop_cancels_turns_and_leaves_queued_events_to_the_next_host() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk) = (HostFixture::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = fixture.host_builder().channel(&desk).plugin(hold_tool_plugin(&barrier)).start().await;
    host.listen(&["desk".into()]).await;
    let running = Event::message("desk", "1", "[[tool:hold]]");
    submit(&host, &running).await;
    barrier.reached().await;
    let queued: Vec<Event> = (0..3).map(|n| Event::message("desk", "1", format!("waits {n}"))).collect();
    for event in &queued {
        submit(&host, event).await;
    }
    let started = Instant::now();
    host.stop_within(Duration::ZERO).await.unwrap();
    assert!(started.elapsed() <= STOP_OVERHEAD, "{:?}", started.elapsed());
    assert_eq!(fixture.outcome(&running).await, Some(Outcome::Cancelled));
    assert_eq!(
        desk.wait_for_answer(&running.event_id).await.outcome,
        Outcome::Cancelled,
        "the waiting caller gets the outcome"
    );
    assert_eq!(fixture.store().in_flight_events(None).collect().await.unwrap().len(), 3);

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = fixture.host_builder().channel(&desk).start().await;
    host.listen(&["desk".into()]).await;
    host.wait_until_idle().await;
    for event in &queued {
        assert!(matches!(fixture.outcome(event).await, Some(Outcome::Replied { .. })));
        submit(&host, event).await;
        assert!(desk.wait_for_answer(&event.event_id).await.is_duplicate, "a repeated event gets its outcome");
    }
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn c02_a_host_stops_while_a_task_waits_for_its_channels() {
    let (fixture, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = fixture.host_builder().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    let waiting_host = host.clone();
    let ended = tokio::spawn(async move { waiting_host.wait_for_channels().await });
    tokio::task::yield_now().await;
    host.stop().await.unwrap();
    assert_eq!(ended.await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_ignores_its_stop_ends_with_its_host() {
    let channel = TestChannel::new("unstoppable").with_behaviour(|request| {
        matches!(request, ChannelRequest::Stop)
            .then(|| async { Err(ChannelError::new("unstoppable".into(), "stop ignored")) }.boxed())
    });
    let (fixture, channel) = (HostFixture::in_memory(), Arc::new(channel));
    let host = fixture.host_builder().channel(&channel).start().await;
    host.listen(&["unstoppable".into()]).await;
    let started = Instant::now();
    let waiting_host = host.clone();
    host.stop_within(Duration::from_secs(1)).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(1) + STOP_OVERHEAD, "{:?}", started.elapsed());
    // The channel does not outlive its host.
    waiting_host.wait_for_channels().await;
}
