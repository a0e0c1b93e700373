//! Outbound messages: retried with backoff, in order per chat, at least once, and only to their own chat (X3). On a paused
//! clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::args::ModelText;
use capstan_hooks::contracts::{ChannelError, ChannelErrorKind};
use capstan_hooks::points::{RenderOutbound, RenderedOutbound, RunModel};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, EventKey, OutboundMessage, Outcome, SessionId};
use capstan_tape::OutboxStatus;
use capstan_testing::ReplyBarrier;
use futures::FutureExt as _;

use crate::sessions::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

/// Behaviour that replaces the first sends to each chat with `failure`.
fn fail_first_sends(
    counts: &[(&'static str, u32)],
    failure: fn() -> ChannelFuture,
) -> impl Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync + 'static {
    let remaining: Mutex<HashMap<&str, u32>> = Mutex::new(counts.iter().copied().collect());
    move |request| {
        let ChannelRequest::Send(message) = request else { return None };
        let mut remaining = remaining.lock().unwrap();
        let remaining = remaining.get_mut(message.chat_id.as_str()).filter(|remaining| **remaining > 0)?;
        *remaining -= 1;
        Some(failure())
    }
}

fn send_failure() -> ChannelFuture {
    async { Err(ChannelError::new("phone".into(), "no network")) }.boxed()
}

/// Plugin whose model stage echoes the prompt.
fn echo_plugin() -> ClosurePlugin {
    use capstan_hooks::args::PromptContent;
    ClosurePlugin::new("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(format!("re: {}", prompt.text()))) });
    })
}

async fn outbox_statuses(environment: &TestEnvironment, event: &Event) -> Vec<OutboxStatus> {
    let rows = environment.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.into_iter().map(|row| row.status).collect()
}

/// Waits until no message is pending; the paused clock advances meanwhile.
async fn wait_until_delivered(environment: &TestEnvironment) {
    while !environment.store().pending_outbound().collect().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn x03_a_message_is_retried_with_backoff_in_order_without_delaying_other_chats() {
    let (environment, phone) = (
        TestEnvironment::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 4)], send_failure))),
    );
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    let started = tokio::time::Instant::now();
    let event = Event::message("phone", "a", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["no network"], "the caller gets the error of the first attempt");
    host.submit_and_wait(&Event::message("phone", "a", "two")).await;
    host.serve(Event::message("phone", "b", "hello")).await.unwrap();
    assert_eq!(phone.sent(), ["b: re: hello"]);
    assert!(started.elapsed() < Duration::from_millis(500), "the other chat did not wait");
    phone.wait_until_sent(3).await;
    assert_eq!(phone.sent(), ["b: re: hello", "a: re: one", "a: re: two"]);
    // Delays of 1, 2, 4 and 8 seconds, each with jitter between half and one and a half.
    let delay = phone.sent_messages()[1].at.duration_since(started).as_secs_f64();
    assert!((7.5..=22.5).contains(&delay), "{delay}");
    wait_until_delivered(&environment).await;
    assert_eq!(
        outbox_statuses(&environment, &event).await,
        [OutboxStatus::sent()],
        "every failed attempt is known to have failed"
    );
    assert!(!phone.sent_messages()[1].message.is_possible_duplicate());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_permanently_failing_message_is_given_up_and_keeps_its_text() {
    let permanent_failure = || async { Err(ChannelError::permanent("phone".into(), "the chat is gone")) }.boxed();
    let (environment, phone) = (
        TestEnvironment::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], permanent_failure))),
    );
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    let event = Event::message("phone", "a", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["the chat is gone"]);
    host.serve(Event::message("phone", "a", "two")).await.unwrap();
    assert_eq!(phone.sent(), ["a: re: two"], "later messages are not blocked");
    assert_eq!(
        outbox_statuses(&environment, &event).await,
        [OutboxStatus::Undelivered { reason: "the chat is gone".to_owned() }]
    );
    let rows = environment.store().outbox_records(&EventKey::from(&event)).collect().await.unwrap();
    assert_eq!(rows[0].message.content.text(), "re: one");
    assert_eq!(environment.outcome(&event).await, Some(Outcome::Replied { text: "re: one".to_owned() }));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_message_with_an_unknown_fate_is_resent_as_a_possible_duplicate() {
    let failures = [
        (|| std::future::pending().boxed()) as fn() -> ChannelFuture,
        || async { panic!("broken") }.boxed(),
        || {
            async { Err(ChannelError { kind: ChannelErrorKind::Unknown, ..ChannelError::new("phone".into(), "cut") }) }
                .boxed()
        },
    ];
    for failure in failures {
        let (environment, phone) = (
            TestEnvironment::in_memory(),
            Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], failure))),
        );
        let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
        let event = Event::message("phone", "a", "one");
        host.submit_and_wait(&event).await;
        phone.wait_until_sent(1).await;
        assert!(phone.sent_messages()[0].message.is_possible_duplicate());
        wait_until_delivered(&environment).await;
        assert_eq!(outbox_statuses(&environment, &event).await, [OutboxStatus::Sent { possible_duplicate: true }]);
        host.stop().await.unwrap();
    }
}

/// Fixture in which a stopped host left these messages unsent, because its channel failed.
async fn fixture_with_unsent(events: &[Event]) -> TestEnvironment {
    let (environment, broken) = (
        TestEnvironment::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(|request| match request {
            ChannelRequest::Send(_) => Some(send_failure()),
            _ => None,
        })),
    );
    let host = environment.host().channel(&broken).plugin(echo_plugin()).start().await;
    for event in events {
        host.submit_and_wait(event).await;
    }
    while environment.store().pending_outbound().collect().await.unwrap().len() < events.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.stop().await.unwrap();
    environment
}

#[tokio::test(start_paused = true)]
async fn x03_unsent_messages_of_a_dead_process_are_sent_in_order_as_possible_duplicates() {
    let events: Vec<Event> = (1..=3).map(|n| Event::message("phone", "a", format!("{n}"))).collect();
    let environment = fixture_with_unsent(&events).await;
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    assert!(phone.sent().is_empty(), "only a listening host recovers messages");
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(3).await;
    assert_eq!(phone.sent(), ["a: re: 1", "a: re: 2", "a: re: 3"]);
    assert!(phone.sent_messages().iter().all(|sent| sent.message.is_possible_duplicate()));
    wait_until_delivered(&environment).await;
    assert_eq!(outbox_statuses(&environment, &events[0]).await, [OutboxStatus::Sent { possible_duplicate: true }]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_backlog_of_a_failing_chat_does_not_delay_other_chats() {
    let mut events: Vec<Event> = (0..70).map(|n| Event::message("phone", "a", format!("{n}"))).collect();
    events.push(Event::message("phone", "b", "me too"));
    // One session each, because a stopping host leaves queued turns unstarted.
    for (number, event) in events.iter_mut().enumerate() {
        event.session_id = Some(SessionId::new(format!("s{number}")));
    }
    let environment = fixture_with_unsent(&events[..64]).await;
    let environment = {
        let broken = Arc::new(TestChannel::new("phone").with_behaviour(|request| match request {
            ChannelRequest::Send(_) => Some(send_failure()),
            _ => None,
        }));
        let host = environment.host().channel(&broken).plugin(echo_plugin()).start().await;
        for event in &events[64..] {
            host.submit_and_wait(event).await;
        }
        while environment.store().pending_outbound().collect().await.unwrap().len() < events.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        host.stop().await.unwrap();
        environment
    };
    let only_b = |request: &ChannelRequest| match request {
        ChannelRequest::Send(message) if message.chat_id.as_str() == "a" => Some(send_failure()),
        _ => None,
    };
    let phone = Arc::new(TestChannel::new("phone").with_behaviour(only_b));
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    let started = tokio::time::Instant::now();
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(1).await;
    assert_eq!(phone.sent(), ["b: re: me too"]);
    assert!(started.elapsed() < Duration::from_secs(1));
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_stopping_host_leaves_messages_behind_an_unsent_one_to_the_next() {
    let (environment, phone) = (
        TestEnvironment::in_memory(),
        Arc::new(TestChannel::new("phone").with_behaviour(fail_first_sends(&[("a", 1)], send_failure))),
    );
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    host.serve(Event::message("phone", "a", "one")).await.unwrap();
    let two = Event::message("phone", "a", "two");
    host.submit_and_wait(&two).await;
    while environment.outcome(&two).await.is_none() {
        tokio::task::yield_now().await;
    }
    host.stop().await.unwrap();
    assert!(phone.sent().is_empty(), "the second message must not overtake the first: {:?}", phone.sent());
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(2).await;
    assert_eq!(phone.sent(), ["a: re: one", "a: re: two"]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_the_reply_of_a_disconnected_caller_is_stored_for_a_repeated_event() {
    let disconnected = |request: &ChannelRequest| match request {
        ChannelRequest::Answer(_) => {
            Some(async { Err(ChannelError::new("desk".into(), "the caller hung up")) }.boxed())
        }
        _ => None,
    };
    let (environment, desk) = (
        TestEnvironment::in_memory(),
        Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(disconnected)),
    );
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "a", "one");
    host.submit_and_wait(&event).await;
    wait_until_delivered(&environment).await;
    while environment.outcome(&event).await.is_none() {
        tokio::task::yield_now().await;
    }
    wait_until_delivered(&environment).await;
    let undelivered = [OutboxStatus::Undelivered { reason: "the caller hung up".to_owned() }];
    assert_eq!(outbox_statuses(&environment, &event).await, undelivered);
    host.stop().await.unwrap();

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    host.submit_and_wait(&Event::message("desk", "a", "another")).await;
    host.submit_and_wait(&event).await;
    let answer = desk.wait_for_answer(&event.event_id).await;
    assert!(answer.is_duplicate);
    assert_eq!(answer.outcome, Outcome::Replied { text: "re: one".to_owned() });
    let texts: Vec<String> = answer.messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["re: one"]);
    assert!(desk.sent().is_empty(), "a reply to a waiting caller is not sent as a message");
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

async fn wait_for_release(barrier: ReplyBarrier) -> Result<(), ChannelError> {
    barrier.wait_for_release().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn x03_a_reply_owed_by_a_dead_process_ends_undelivered() {
    let barrier = ReplyBarrier::new();
    let channel_barrier = barrier.clone();
    let blocking = move |request: &ChannelRequest| match request {
        ChannelRequest::Answer(_) => {
            let channel_barrier = channel_barrier.clone();
            Some(wait_for_release(channel_barrier).boxed())
        }
        _ => None,
    };
    let (environment, desk) =
        (TestEnvironment::in_memory(), Arc::new(TestChannel::with_waiting_callers("desk").with_behaviour(blocking)));
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    let event = Event::message("desk", "a", "one");
    host.submit_and_wait(&event).await;
    barrier.reached().await;
    // The process ends while it replies: its host is gone, and with it the lock that proves it alive.
    let rows = environment.store().pending_outbound().collect().await.unwrap();
    assert_eq!(rows.len(), 1);
    host.stop().await.unwrap();

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = environment.host().channel(&desk).plugin(echo_plugin()).start().await;
    while environment.store().pending_outbound().collect().await.unwrap().iter().any(|row| row.owner == rows[0].owner) {
        // The task of the stopped host is still ending.
        tokio::time::sleep(Duration::from_secs(10)).await;
        host.listen(&["desk".into()]).await;
    }
    host.submit_and_wait(&event).await;
    assert_eq!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Replied { text: "re: one".to_owned() });
    assert!(desk.sent().is_empty());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c03_replies_are_routed_by_output_channel_and_a_turn_may_use_several() {
    let copying = ClosurePlugin::new("copying", |hooks| {
        hooks.on(RenderOutbound, |message: InboundEvent, session: SessionId, text: ModelText| async move {
            let reply = OutboundMessage::reply_to(&message, session, text.to_string());
            let copy = OutboundMessage { channel: "pager".into(), chat_id: "boss".into(), ..reply.clone() };
            Ok(Some(RenderedOutbound::Messages(vec![reply, copy])))
        });
    });
    let (desk, pager) = (Arc::new(TestChannel::with_waiting_callers("desk")), Arc::new(TestChannel::new("pager")));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&desk).channel(&pager).plugin(echo_plugin()).plugin(copying).start().await;
    let event = Event::message("desk", "a", "one");
    let served = host.serve_in_background(event.clone()).await.unwrap();
    assert_eq!(served.outbounds.len(), 2);
    let answer = desk.wait_for_answer(&event.event_id).await;
    assert_eq!(answer.messages.len(), 1, "the caller gets only its own reply");
    assert_eq!(pager.sent(), ["boss: re: one"]);
    assert_eq!(outbox_statuses(&environment, &event).await, [OutboxStatus::sent(), OutboxStatus::sent()]);

    let mut redirected = Event::message("desk", "a", "two");
    redirected.delivery.output_channel = Some("pager".into());
    host.serve(redirected.clone()).await.unwrap();
    assert_eq!(pager.sent(), ["boss: re: one", "a: re: two", "boss: re: two"]);
    let answer = desk.wait_for_answer(&redirected.event_id).await;
    assert_eq!(answer.outcome.name(), "replied", "the waiting caller gets the outcome of a redirected reply");
    assert!(answer.messages.is_empty());
    host.stop().await.unwrap();
}
