//! A host that stops while turns go on and events wait: nothing is lost, and the next host takes up what was left. On
//! paused time.

use std::sync::Arc;
use std::time::Duration;

use capstan::HostError;
use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::{DebounceOptions, Gateway as _, IntakeOptions};
use capstan::hooks::points::RunModelStream;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{Event, EventKey, Outcome, StreamEvent};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;

use crate::host_fixture::{HostFixture, boxed_plugin, hold_tool_plugin, serve_in_background, submit};
use crate::test_channel::TestChannel;

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

/// A message to the demo model that calls the tool at the gate.
fn hold_message(chat: &str) -> Event {
    Event::message("phone", chat, "[[tool:hold]]")
}

async fn outcome_name(house: &HostFixture, event: &Event) -> String {
    house.outcome(event).await.map_or_else(|| "in flight".to_owned(), |outcome| outcome.name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn x02_what_runs_ends_and_what_waits_is_taken_up_by_the_next_host() {
    let gate = ReplyBarrier::new();
    let (house, first_phone) = (HostFixture::in_memory(), phone_channel());
    let host = house.host_builder().channel(&first_phone).plugin(hold_tool_plugin(&gate)).start().await;
    let one = hold_message("1");
    submit(&host, &one).await;
    gate.reached().await;
    let waiting: Vec<Event> = (0..5).map(|n| Event::message("phone", "1", format!("waits {n}"))).collect();
    for event in &waiting[1..] {
        submit(&host, event).await;
    }
    // The caller of an event that waits is told so; the event is kept.
    let caller = host.clone();
    let first = waiting[0].clone();
    let caller = tokio::spawn(async move { caller.serve(first).await });
    while house.store().in_flight_events(None).collect().await.unwrap().len() < 6 {
        tokio::task::yield_now().await;
    }
    let late = host.clone();
    let stopping = tokio::spawn(host.stop());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = late.submit(Event::message("phone", "2", "too late").into()).await.unwrap_err();
    assert_eq!(refused.code, "host-stopping");
    gate.release();
    stopping.await.unwrap().unwrap();
    drop(late);
    assert_eq!(caller.await.unwrap().unwrap_err(), HostError::Stopping);
    assert_eq!(outcome_name(&house, &one).await, "replied", "it was let end");
    assert_eq!(first_phone.sent().len(), 1, "and its answer was sent");
    for event in &waiting {
        assert_eq!(outcome_name(&house, event).await, "in flight");
    }

    let next_phone = phone_channel();
    let host = house.host_builder().channel(&next_phone).plugin(hold_tool_plugin(&gate)).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(5).await;
    for event in &waiting {
        assert_eq!(outcome_name(&house, event).await, "replied");
    }
    assert_eq!(house.store().run_page(None, 100).await.unwrap().len(), 6, "each ran once");
    host.stop().await.unwrap();
    house.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x01_a_turn_that_does_not_end_in_time_is_cancelled_and_has_its_outcome() {
    let gate = ReplyBarrier::new();
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone_channel()).plugin(hold_tool_plugin(&gate)).start().await;
    let (one, two) = (hold_message("1"), Event::message("phone", "1", "two"));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() <= Duration::from_secs(21), "{:?}", before.elapsed());
    assert_eq!(outcome_name(&house, &one).await, "cancelled");
    assert_eq!(outcome_name(&house, &two).await, "in flight");
    let next_phone = phone_channel();
    let host = house.host_builder().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    assert_eq!(outcome_name(&house, &two).await, "replied");
    host.stop().await.unwrap();
    house.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_an_event_that_waits_for_another_process_is_not_ended_by_its_host_stopping() {
    let gate = ReplyBarrier::new();
    let house = HostFixture::in_memory();
    let here = house.host_builder().channel(&phone_channel()).plugin(hold_tool_plugin(&gate)).start().await;
    let there = house.host_builder().channel(&phone_channel()).start().await;
    let turn = serve_in_background(&here, hold_message("1"));
    gate.reached().await;
    let two = Event::message("phone", "1", "two");
    submit(&there, &two).await;
    there.stop().await.unwrap();
    assert_eq!(outcome_name(&house, &two).await, "in flight");
    gate.release();
    turn.await.unwrap();
    here.stop().await.unwrap();
    let next_phone = phone_channel();
    let host = house.host_builder().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    assert_eq!(outcome_name(&house, &two).await, "replied");
    host.stop().await.unwrap();
    house.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn x02_messages_that_are_held_back_are_taken_up_by_the_next_host() {
    let debounce =
        DebounceOptions { quiet_period: Duration::from_secs(5), max_wait: Duration::from_mins(1), active_window: None };
    let holds_back = IntakeOptions { admission: None, debounce: Some(debounce) };
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&Arc::new(TestChannel::new("phone").with_intake(holds_back))).start().await;
    let event = Event::message("phone", "1", "wait for it");
    submit(&host, &event).await;
    let before = tokio::time::Instant::now();
    host.stop().await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5), "stopping does not wait for it");
    assert_eq!(outcome_name(&house, &event).await, "in flight");
    let next_phone = phone_channel();
    let host = house.host_builder().channel(&next_phone).start().await;
    host.listen(&["phone".into()]).await;
    next_phone.wait_until_sent(1).await;
    host.stop().await.unwrap();
    house.assert_settled().await;
}

/// Streams a word, then waits for good.
fn endless_stream_plugin(reached: &ReplyBarrier) -> Box<dyn Plugin> {
    let reached = reached.clone();
    boxed_plugin("never-ends", move |hooks: &mut HookRegistrar| {
        let reached = reached.clone();
        hooks.on(RunModelStream, move |_: PromptContent| {
            let reached = reached.clone();
            async move {
                let word = futures::stream::iter([StreamEvent::text("word")]);
                let held = futures::stream::once(async move {
                    reached.wait_for_release().await;
                    StreamEvent::text("never")
                });
                Ok(Some(word.chain(held).boxed()))
            }
        });
    })
}

#[tokio::test(start_paused = true)]
async fn x01_every_turn_of_many_sessions_ends_when_the_host_is_cancelled() {
    let gate = ReplyBarrier::new();
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone_channel()).plugin(endless_stream_plugin(&gate)).start().await;
    let events: Vec<Event> = (0..20).map(|n| Event::message("phone", n.to_string(), "go")).collect();
    let turns: Vec<_> = events.iter().map(|event| serve_in_background(&host, event.clone())).collect();
    while house.store().open_runs().collect().await.unwrap().len() < events.len() {
        tokio::task::yield_now().await;
    }
    host.cancel();
    for turn in turns {
        assert_eq!(turn.await.unwrap().outcome, Some(Outcome::Cancelled));
    }
    for event in &events {
        let (recorded, run) =
            house.store().inbox_record(&EventKey::from(event)).await.unwrap().unwrap().outcome.unwrap();
        assert!(recorded == Outcome::Cancelled && run.is_some());
    }
    host.stop().await.unwrap();
    house.assert_settled().await;
}
