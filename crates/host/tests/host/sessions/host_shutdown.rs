//! Stop of a host with running turns and queued events: nothing is lost, and the next host recovers the orphaned events. On
//! a paused clock.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookRegistrar;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::{DebounceOptions, Gateway as _, IntakeOptions};
use capstan_hooks::points::RunModelStream;
use capstan_host::HostError;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, EventKey, Outcome, StreamEvent};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::sessions::support::hold_tool_plugin;
use crate::sessions::test_channel::TestChannel;

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

/// Message that makes the demo model call the tool `hold`.
fn hold_message(chat: &str) -> Event {
    Event::message("phone", chat, "[[tool:hold]]")
}

async fn outcome_name(environment: &TestEnvironment, event: &Event) -> String {
    environment.outcome(event).await.map_or_else(|| "in flight".to_owned(), |outcome| outcome.name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn x02_running_turns_end_and_queued_events_are_recovered_by_the_next_host() {
    let barrier = ReplyBarrier::new();
    let (environment, first_phone) = (TestEnvironment::in_memory(), phone_channel());
    let host = environment.host().channel(&first_phone).plugin(hold_tool_plugin(&barrier)).start().await;
    let one = hold_message("1");
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    let queued: Vec<Event> = (0..5).map(|n| Event::message("phone", "1", format!("waits {n}"))).collect();
    for event in &queued[1..] {
        host.submit_and_wait(event).await;
    }
    // The caller of a queued event gets an error; the event stays accepted.
    let caller = host.clone();
    let first = queued[0].clone();
    let caller = tokio::spawn(async move { caller.serve(first).await });
    while environment.store().in_flight_events(None).collect().await.unwrap().len() < 6 {
        tokio::task::yield_now().await;
    }
    let late_host = host.clone();
    let stopping = tokio::spawn(host.stop());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = late_host.submit(Event::message("phone", "2", "too late").into()).await.unwrap_err();
    assert_eq!(refused.code, "host-stopping");
    barrier.release();
    stopping.await.unwrap().unwrap();
    drop(late_host);
    assert_eq!(caller.await.unwrap().unwrap_err(), HostError::Stopping);
    assert_eq!(outcome_name(&environment, &one).await, "replied", "the running turn ends");
    assert_eq!(first_phone.sent().len(), 1, "its reply was sent");
    for event in &queued {
        assert_eq!(outcome_name(&environment, event).await, "in flight");
    }

    let next_phone = phone_channel();
    let host = environment.host().channel(&next_phone).plugin(hold_tool_plugin(&barrier)).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(5).await;
    for event in &queued {
        assert_eq!(outcome_name(&environment, event).await, "replied");
    }
    assert_eq!(environment.store().run_page(None, 100).await.unwrap().len(), 6, "each event ran once");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x01_a_turn_that_exceeds_the_stop_deadline_is_cancelled() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone_channel()).plugin(hold_tool_plugin(&barrier)).start().await;
    let (one, two) = (hold_message("1"), Event::message("phone", "1", "two"));
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    host.submit_and_wait(&two).await;
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() <= Duration::from_secs(21), "{:?}", before.elapsed());
    assert_eq!(outcome_name(&environment, &one).await, "cancelled");
    assert_eq!(outcome_name(&environment, &two).await, "in flight");
    let next_phone = phone_channel();
    let host = environment.host().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    assert_eq!(outcome_name(&environment, &two).await, "replied");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_an_event_waiting_for_another_process_stays_in_flight_when_its_host_stops() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let busy_host = environment.host().channel(&phone_channel()).plugin(hold_tool_plugin(&barrier)).start().await;
    let waiting_host = environment.host().channel(&phone_channel()).start().await;
    let turn = busy_host.serve_in_background(hold_message("1"));
    barrier.reached().await;
    let two = Event::message("phone", "1", "two");
    waiting_host.submit_and_wait(&two).await;
    waiting_host.stop().await.unwrap();
    assert_eq!(outcome_name(&environment, &two).await, "in flight");
    barrier.release();
    turn.await.unwrap();
    busy_host.stop().await.unwrap();
    let next_phone = phone_channel();
    let host = environment.host().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    assert_eq!(outcome_name(&environment, &two).await, "replied");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_debounced_messages_are_recovered_by_the_next_host() {
    let debounce =
        DebounceOptions { quiet_period: Duration::from_secs(5), max_wait: Duration::from_mins(1), active_window: None };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&Arc::new(TestChannel::new("phone").with_intake(intake))).start().await;
    let event = Event::message("phone", "1", "wait for it");
    host.submit_and_wait(&event).await;
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5), "the stop does not wait for the debounce");
    assert_eq!(outcome_name(&environment, &event).await, "in flight");
    let next_phone = phone_channel();
    let host = environment.host().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

/// Plugin whose model stage streams a word and waits for the release of `barrier`.
fn endless_stream_plugin(barrier: &ReplyBarrier) -> ClosurePlugin {
    let barrier = barrier.clone();
    ClosurePlugin::new("never-ends", move |hooks: &mut HookRegistrar| {
        let barrier = barrier.clone();
        hooks.on(RunModelStream, move |_: PromptContent| {
            let barrier = barrier.clone();
            async move {
                let word = futures::stream::iter([StreamEvent::text("word")]);
                let rest = futures::stream::once(async move {
                    barrier.wait_for_release().await;
                    StreamEvent::text("never")
                });
                Ok(Some(word.chain(rest).boxed()))
            }
        });
    })
}

#[tokio::test(start_paused = true)]
async fn x01_turns_of_all_sessions_end_when_the_host_is_cancelled() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone_channel()).plugin(endless_stream_plugin(&barrier)).start().await;
    let events: Vec<Event> = (0..20).map(|n| Event::message("phone", n.to_string(), "go")).collect();
    let turns: Vec<_> = events.iter().map(|event| host.serve_in_background(event.clone())).collect();
    while environment.store().open_runs().collect().await.unwrap().len() < events.len() {
        tokio::task::yield_now().await;
    }
    host.cancel_all_runs();
    for turn in turns {
        assert_eq!(turn.await.unwrap().outcome, Some(Outcome::Cancelled));
    }
    for event in &events {
        let (recorded, run) =
            environment.store().inbox_record(&EventKey::from(event)).await.unwrap().unwrap().outcome.unwrap();
        assert!(recorded == Outcome::Cancelled && run.is_some());
    }
    host.stop().await.unwrap();
    environment.assert_settled().await;
}
