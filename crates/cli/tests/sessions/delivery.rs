//! Outbound messages: retried with backoff, in order per chat, at least once, and never to somebody else (X3). On paused
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan::hooks::args::ModelText;
use capstan::hooks::contracts::{ChannelError, ChannelErrorKind};
use capstan::hooks::points::{RenderOutbound, RenderedOutbound, RunModel};
use capstan::hooks::{InboundEvent, Plugin};
use capstan::protocol::{Event, EventKey, OutboundMessage, Outcome, SessionId};
use capstan::tape::OutboxStatus;
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;

use crate::host_fixture::{HostFixture, boxed_plugin, serve_in_background, submit};
use crate::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

/// Fails the first so many sends to each chat like this.
fn fail_first_sends(
    times: &[(&'static str, u32)],
    how: fn() -> ChannelFuture,
) -> impl Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync + 'static {
    let left: Mutex<HashMap<&str, u32>> = Mutex::new(times.iter().copied().collect());
    move |asked| {
        let ChannelRequest::Send(message) = asked else { return None };
        let mut left = left.lock().unwrap();
        let left = left.get_mut(message.chat_id.as_str()).filter(|left| **left > 0)?;
        *left -= 1;
        Some(how())
    }
}

fn send_failure() -> ChannelFuture {
    async { Err(ChannelError::new("phone".into(), "no network")) }.boxed()
}

/// Answers with what it was told.
fn echo_plugin() -> Box<dyn Plugin> {
    use capstan::hooks::args::PromptContent;
    boxed_plugin("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

async fn outbox_statuses(house: &HostFixture, event: &Event) -> Vec<OutboxStatus> {
    let rows = house.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.into_iter().map(|row| row.status).collect()
}

/// Waits until no message waits any more; time passes meanwhile.
async fn wait_until_delivered(house: &HostFixture) {
    while !house.store().pending_outbound().collect().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_message_is_tried_again_with_growing_waits_in_order_and_no_other_chat_waits() {
    let (house, phone) = (
        HostFixture::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 4)], send_failure))),
    );
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    let begun = tokio::time::Instant::now();
    let event = Event::message("phone", "a", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["no network"], "whoever waits is told of the first attempt");
    submit(&host, &Event::message("phone", "a", "two")).await;
    host.serve(Event::message("phone", "b", "hello")).await.unwrap();
    assert_eq!(phone.sent(), ["b: re: hello"]);
    assert!(begun.elapsed() < Duration::from_millis(500), "the other chat did not wait");
    phone.wait_until_sent(3).await;
    assert_eq!(phone.sent(), ["b: re: hello", "a: re: one", "a: re: two"]);
    // 1, 2, 4 and 8 seconds, each at least half and at most one and a half times as long.
    let took = phone.sent_messages()[1].at.duration_since(begun).as_secs_f64();
    assert!((7.5..=22.5).contains(&took), "{took}");
    wait_until_delivered(&house).await;
    assert_eq!(outbox_statuses(&house, &event).await, [OutboxStatus::sent()], "each attempt is known to have failed");
    assert!(!phone.sent_messages()[1].message.is_possible_duplicate());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_message_that_can_never_be_sent_is_given_up_and_keeps_its_text() {
    let hopeless = || async { Err(ChannelError::permanent("phone".into(), "the chat is gone")) }.boxed();
    let (house, phone) = (
        HostFixture::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], hopeless))),
    );
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    let event = Event::message("phone", "a", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["the chat is gone"]);
    host.serve(Event::message("phone", "a", "two")).await.unwrap();
    assert_eq!(phone.sent(), ["a: re: two"], "what follows is not held up");
    assert_eq!(
        outbox_statuses(&house, &event).await,
        [OutboxStatus::Undelivered { reason: "the chat is gone".to_owned() }]
    );
    let rows = house.store().outbox_records(&EventKey::from(&event)).collect().await.unwrap();
    assert_eq!(rows[0].message.content.text(), "re: one");
    assert_eq!(house.outcome(&event).await, Some(Outcome::Replied { text: "re: one".to_owned() }));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_message_whose_fate_is_unknown_is_sent_again_and_marked() {
    let unknown = [
        (|| std::future::pending().boxed()) as fn() -> ChannelFuture,
        || async { panic!("broken") }.boxed(),
        || {
            async { Err(ChannelError { kind: ChannelErrorKind::Unknown, ..ChannelError::new("phone".into(), "cut") }) }
                .boxed()
        },
    ];
    for how in unknown {
        let (house, phone) = (
            HostFixture::in_memory(),
            Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], how))),
        );
        let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
        let event = Event::message("phone", "a", "one");
        submit(&host, &event).await;
        phone.wait_until_sent(1).await;
        assert!(phone.sent_messages()[0].message.is_possible_duplicate());
        wait_until_delivered(&house).await;
        assert_eq!(outbox_statuses(&house, &event).await, [OutboxStatus::Sent { possible_duplicate: true }]);
        host.stop().await.unwrap();
    }
}

/// A house in which a process died with these messages unsent, on a phone that did not work.
async fn fixture_with_unsent(events: &[Event]) -> HostFixture {
    let (house, broken) = (
        HostFixture::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(|asked| match asked {
            ChannelRequest::Send(_) => Some(send_failure()),
            _ => None,
        })),
    );
    let host = house.host_builder().channel(&broken).plugin(echo_plugin()).start().await;
    for event in events {
        submit(&host, event).await;
    }
    while house.store().pending_outbound().collect().await.unwrap().len() < events.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.stop().await.unwrap();
    house
}

#[tokio::test(start_paused = true)]
async fn x03_what_a_dead_process_did_not_send_is_sent_at_the_next_start_in_order_and_marked() {
    let events: Vec<Event> = (1..=3).map(|n| Event::message("phone", "a", format!("{n}"))).collect();
    let house = fixture_with_unsent(&events).await;
    let phone = Arc::new(TestChannel::new("phone"));
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    assert!(phone.sent().is_empty(), "only a host that listens takes messages over");
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(3).await;
    assert_eq!(phone.sent(), ["a: re: 1", "a: re: 2", "a: re: 3"]);
    assert!(phone.sent_messages().iter().all(|sent| sent.message.is_possible_duplicate()));
    wait_until_delivered(&house).await;
    assert_eq!(outbox_statuses(&house, &events[0]).await, [OutboxStatus::Sent { possible_duplicate: true }]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_however_much_was_left_for_a_chat_that_takes_nothing_no_other_chat_waits_for_it() {
    let mut events: Vec<Event> = (0..70).map(|n| Event::message("phone", "a", format!("{n}"))).collect();
    events.push(Event::message("phone", "b", "me too"));
    // One session each, or the host would stop with turns that have not begun.
    for (number, event) in events.iter_mut().enumerate() {
        event.session_id = Some(SessionId::new(format!("s{number}")));
    }
    let house = fixture_with_unsent(&events[..64]).await;
    let house = {
        let broken = Arc::new(TestChannel::new("phone").with_behaviour(|asked| match asked {
            ChannelRequest::Send(_) => Some(send_failure()),
            _ => None,
        }));
        let host = house.host_builder().channel(&broken).plugin(echo_plugin()).start().await;
        for event in &events[64..] {
            submit(&host, event).await;
        }
        while house.store().pending_outbound().collect().await.unwrap().len() < events.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        host.stop().await.unwrap();
        house
    };
    let only_b = |asked: &ChannelRequest| match asked {
        ChannelRequest::Send(message) if message.chat_id.as_str() == "a" => Some(send_failure()),
        _ => None,
    };
    let phone = Arc::new(TestChannel::new("phone").with_behaviour(only_b));
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    let begun = tokio::time::Instant::now();
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(1).await;
    assert_eq!(phone.sent(), ["b: re: me too"]);
    assert!(begun.elapsed() < Duration::from_secs(1));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_host_that_stops_leaves_what_follows_an_unsent_message_to_the_next() {
    let (house, phone) = (
        HostFixture::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], send_failure))),
    );
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    host.serve(Event::message("phone", "a", "one")).await.unwrap();
    let two = Event::message("phone", "a", "two");
    submit(&host, &two).await;
    while house.outcome(&two).await.is_none() {
        tokio::task::yield_now().await;
    }
    host.stop().await.unwrap();
    assert!(phone.sent().is_empty(), "two must not go before one: {:?}", phone.sent());
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(2).await;
    assert_eq!(phone.sent(), ["a: re: one", "a: re: two"]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_the_answer_of_a_caller_that_is_gone_is_kept_and_given_to_whoever_sends_the_event_again() {
    let gone = |asked: &ChannelRequest| match asked {
        ChannelRequest::Answer(_) => {
            Some(async { Err(ChannelError::new("desk".into(), "the caller hung up")) }.boxed())
        }
        _ => None,
    };
    let (house, desk) =
        (HostFixture::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(gone)));
    let host = house.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "a", "one");
    submit(&host, &event).await;
    wait_until_delivered(&house).await;
    while house.outcome(&event).await.is_none() {
        tokio::task::yield_now().await;
    }
    wait_until_delivered(&house).await;
    let undelivered = [OutboxStatus::Undelivered { reason: "the caller hung up".to_owned() }];
    assert_eq!(outbox_statuses(&house, &event).await, undelivered);
    host.stop().await.unwrap();

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = house.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    submit(&host, &Event::message("desk", "a", "another")).await;
    submit(&host, &event).await;
    let answer = desk.wait_for_answer(&event.event_id).await;
    assert!(answer.is_duplicate);
    assert_eq!(answer.outcome, Outcome::Replied { text: "re: one".to_owned() });
    let texts: Vec<String> = answer.messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["re: one"]);
    assert!(desk.sent().is_empty(), "nobody is sent what another waited for");
    house.assert_settled().await;
    host.stop().await.unwrap();
}

async fn pass_gate(gate: ReplyBarrier) -> Result<(), ChannelError> {
    gate.wait_for_release().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn x03_an_answer_that_a_dead_process_owed_ends_undelivered() {
    let gate = ReplyBarrier::new();
    let held = gate.clone();
    let holds = move |asked: &ChannelRequest| match asked {
        ChannelRequest::Answer(_) => {
            let held = held.clone();
            Some(pass_gate(held).boxed())
        }
        _ => None,
    };
    let (house, desk) =
        (HostFixture::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(holds)));
    let host = house.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "a", "one");
    submit(&host, &event).await;
    gate.reached().await;
    // The process goes away while it answers: its host, and with it the lock that says that it lives, is gone.
    let rows = house.store().pending_outbound().collect().await.unwrap();
    assert_eq!(rows.len(), 1);
    host.stop().await.unwrap();

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = house.host_builder().channel(&desk).plugin(echo_plugin()).start().await;
    while house.store().pending_outbound().collect().await.unwrap().iter().any(|row| row.owner == rows[0].owner) {
        // Until the task of the stopped host has ended.
        tokio::time::sleep(Duration::from_secs(10)).await;
        host.listen(&["desk".into()]).await;
    }
    submit(&host, &event).await;
    assert_eq!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Replied { text: "re: one".to_owned() });
    assert!(desk.sent().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c03_answers_are_routed_by_output_channel_and_a_turn_may_speak_on_several() {
    let both = boxed_plugin("both", |hooks| {
        hooks.on(RenderOutbound, |message: InboundEvent, session: SessionId, text: ModelText| async move {
            let reply = OutboundMessage::reply_to(&message, session, text.to_string());
            let copy = OutboundMessage { channel: "pager".into(), chat_id: "boss".into(), ..reply.clone() };
            Ok(Some(RenderedOutbound::Messages(vec![reply, copy])))
        });
    });
    let (desk, pager) = (Arc::new(TestChannel::with_waiting_callers("desk")), Arc::new(TestChannel::new("pager")));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&desk).channel(&pager).plugin(echo_plugin()).plugin(both).start().await;
    let event = Event::message("desk", "a", "one");
    let served = serve_in_background(&host, event.clone()).await.unwrap();
    assert_eq!(served.outbounds.len(), 2);
    let answer = desk.wait_for_answer(&event.event_id).await;
    assert_eq!(answer.messages.len(), 1, "of the two, the caller is given its own");
    assert_eq!(pager.sent(), ["boss: re: one"]);
    assert_eq!(outbox_statuses(&house, &event).await, [OutboxStatus::sent(), OutboxStatus::sent()]);

    let mut elsewhere = Event::message("desk", "a", "two");
    elsewhere.delivery.output_channel = Some("pager".into());
    host.serve(elsewhere.clone()).await.unwrap();
    assert_eq!(pager.sent(), ["boss: re: one", "a: re: two", "boss: re: two"]);
    let answer = desk.wait_for_answer(&elsewhere.event_id).await;
    assert_eq!(answer.outcome.name(), "replied", "whoever waits is told, wherever the answer went");
    assert!(answer.messages.is_empty());
    host.stop().await.unwrap();
}
