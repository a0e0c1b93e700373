//! A host that must end whoever keeps it, and callers that take their time while it need not. On paused time.

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

/// What a stop takes beyond the time that is given to it.
const STOP_OVERHEAD: Duration = Duration::from_secs(5);

fn echo_plugin() -> Box<dyn Plugin> {
    boxed_plugin("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

/// A desk whose callers take no answer before the gate is open.
fn gated_channel(barrier: &ReplyBarrier) -> Arc<TestChannel> {
    let barrier = barrier.clone();
    Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(
        move |asked: &ChannelRequest| -> Option<ChannelFuture> {
            let barrier = barrier.clone();
            matches!(asked, ChannelRequest::Answer(_)).then(|| {
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
    rows.pop().expect("it has an answer").status
}

async fn wait_until_settled(fixture: &HostFixture, events: &[Event]) {
    for event in events {
        while fixture.outcome(event).await.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_caller_that_takes_its_time_gets_its_answer_and_nobody_else_waits_for_it() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk, phone) =
        (HostFixture::in_memory(), gated_channel(&barrier), Arc::new(TestChannel::new("phone")));
    let host = fixture.host_builder().channel(&desk).channel(&phone).plugin(echo_plugin()).start().await;
    let slow = Event::message("desk", "slow", "one");
    let served = serve_in_background(&host, slow.clone());
    barrier.reached().await;
    tokio::time::sleep(Duration::from_hours(3)).await;
    host.serve(Event::message("phone", "1", "meanwhile")).await.unwrap();
    assert_eq!(phone.sent(), ["1: re: meanwhile"]);
    assert!(matches!(outbox_status(&fixture, &slow).await, OutboxStatus::Waiting { .. }), "it is still there");
    barrier.release();
    assert_eq!(served.await.unwrap().delivery_errors, Vec::<String>::new());
    assert_eq!(outbox_status(&fixture, &slow).await, OutboxStatus::sent());
    assert_eq!(desk.wait_for_answer(&slow.event_id).await.outcome, Outcome::Replied { text: "re: one".to_owned() });
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x03_however_many_answers_nobody_takes_a_stop_has_its_time_and_their_fate_is_on_record() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk) = (HostFixture::in_memory(), gated_channel(&barrier));
    let host = fixture.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    let events: Vec<Event> = (0..40).map(|n| Event::message("desk", (n % 2).to_string(), format!("{n}"))).collect();
    for event in &events {
        submit(&host, event).await;
    }
    wait_until_settled(&fixture, &events).await;
    let begun = Instant::now();
    host.stop_within(Duration::from_secs(2)).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(2) + STOP_OVERHEAD, "{:?}", begun.elapsed());
    for event in &events {
        assert!(matches!(fixture.outcome(event).await, Some(Outcome::Replied { .. })));
        let OutboxStatus::Undelivered { reason } = outbox_status(&fixture, event).await else {
            panic!("nobody took it")
        };
        assert!(reason.contains("before the host stopped"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn x03_an_answer_that_nobody_took_is_on_record_as_given_when_the_event_is_sent_again() {
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = Arc::clone(&is_gone);
    let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(
        move |asked: &ChannelRequest| -> Option<ChannelFuture> {
            let hung_up = || async { Err(ChannelError::permanent("desk".into(), "hung up")) }.boxed();
            (matches!(asked, ChannelRequest::Answer(_)) && gone.load(Ordering::SeqCst)).then(hung_up)
        },
    ));
    let fixture = HostFixture::in_memory();
    let host = fixture.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "1", "one");
    host.serve(event.clone()).await.unwrap();
    let undelivered = OutboxStatus::Undelivered { reason: "hung up".to_owned() };
    assert_eq!(outbox_status(&fixture, &event).await, undelivered);
    host.serve(event.clone()).await.unwrap();
    assert_eq!(outbox_status(&fixture, &event).await, undelivered, "whoever asked again hung up too");
    is_gone.store(false, Ordering::SeqCst);
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!((served.is_duplicate, served.outbounds.len()), (true, 1));
    assert_eq!(desk.wait_for_answer(&event.event_id).await.messages.len(), 1);
    host.stop().await.unwrap();
    assert_eq!(outbox_status(&fixture, &event).await, OutboxStatus::sent());
}

#[tokio::test(start_paused = true)]
async fn x02_a_forced_stop_cancels_what_runs_and_what_waits_is_taken_up_by_the_next_host() {
    let barrier = ReplyBarrier::new();
    let (fixture, desk) = (HostFixture::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = fixture.host_builder().channel(&desk).plugin(hold_tool_plugin(&barrier)).start().await;
    host.listen(&["desk".into()]).await;
    let running = Event::message("desk", "1", "[[tool:hold]]");
    submit(&host, &running).await;
    barrier.reached().await;
    let waiting: Vec<Event> = (0..3).map(|n| Event::message("desk", "1", format!("waits {n}"))).collect();
    for event in &waiting {
        submit(&host, event).await;
    }
    let begun = Instant::now();
    host.stop_within(Duration::ZERO).await.unwrap();
    assert!(begun.elapsed() <= STOP_OVERHEAD, "{:?}", begun.elapsed());
    assert_eq!(fixture.outcome(&running).await, Some(Outcome::Cancelled));
    assert_eq!(
        desk.wait_for_answer(&running.event_id).await.outcome,
        Outcome::Cancelled,
        "and whoever waited was told"
    );
    assert_eq!(fixture.store().in_flight_events(None).collect().await.unwrap().len(), 3);

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = fixture.host_builder().channel(&desk).start().await;
    host.listen(&["desk".into()]).await;
    host.wait_until_idle().await;
    for event in &waiting {
        assert!(matches!(fixture.outcome(event).await, Some(Outcome::Replied { .. })));
        submit(&host, event).await;
        assert!(desk.wait_for_answer(&event.event_id).await.is_duplicate, "whoever asks again gets it");
    }
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn c02_a_host_can_be_stopped_while_somebody_waits_for_its_channels_to_end() {
    let (fixture, phone) = (HostFixture::in_memory(), Arc::new(TestChannel::new("phone")));
    let host = fixture.host_builder().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    let waiting = host.clone();
    let ended = tokio::spawn(async move { waiting.wait_for_channels().await });
    tokio::task::yield_now().await;
    host.stop().await.unwrap();
    assert_eq!(ended.await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_goes_on_after_it_was_stopped_is_ended_with_its_host() {
    let deaf = TestChannel::new("deaf").with_behaviour(|asked| {
        matches!(asked, ChannelRequest::Stop)
            .then(|| async { Err(ChannelError::new("deaf".into(), "I do not hear")) }.boxed())
    });
    let (fixture, deaf) = (HostFixture::in_memory(), Arc::new(deaf));
    let host = fixture.host_builder().channel(&deaf).start().await;
    host.listen(&["deaf".into()]).await;
    let begun = Instant::now();
    let waiting = host.clone();
    host.stop_within(Duration::from_secs(1)).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(1) + STOP_OVERHEAD, "{:?}", begun.elapsed());
    // It does not go on after its host.
    waiting.wait_for_channels().await;
}
