//! The delivery policy of a binding: where answers go, and where nothing is sent at all. On paused time.

use std::sync::Arc;
use std::time::Duration;

use capstan::Host;
use capstan::hooks::Plugin;
use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::protocol::{Binding, DeliveryPolicy, Event, EventKey, Outcome};
use capstan::tape::{EntryKind, OutboxStatus, TapeSlice};
use capstan_policy::{BindingError, default_binding};

use crate::host_fixture::{HostFixture, boxed_plugin};
use crate::test_channel::TestChannel;

/// Answers with what it was told; fails where it is told to.
fn echo_plugin() -> Box<dyn Plugin> {
    boxed_plugin("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move {
            if prompt.text().contains("fail") {
                return Err("it was told to".into());
            }
            Ok(Some(format!("re: {}", prompt.text())))
        });
    })
}

async fn save_delivery_policy(host: &Host, delivery_policy: DeliveryPolicy) -> Result<(), BindingError> {
    let binding = Binding { delivery_policy, ..default_binding() };
    host.bindings().save(&binding, &host.runners()).await
}

fn pager_policy() -> DeliveryPolicy {
    let (output_channel, chat_id) = (Some("pager".into()), Some("boss".into()));
    DeliveryPolicy { output_channel, chat_id, ..DeliveryPolicy::default() }
}

async fn delivery_statuses(house: &HostFixture, event: &Event) -> Vec<OutboxStatus> {
    while !house.store().pending_outbound().collect().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let rows = house.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.into_iter().map(|row| row.status).collect()
}

#[tokio::test(start_paused = true)]
async fn g02_answers_and_notices_go_to_the_channel_and_chat_of_the_binding() {
    let (phone, pager) = (Arc::new(TestChannel::new("phone")), Arc::new(TestChannel::new("pager")));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone).channel(&pager).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, pager_policy()).await.unwrap();
    let served = host.serve(Event::message("phone", "family", "one")).await.unwrap();
    assert_eq!(served.outcome, Some(Outcome::Replied { text: "re: one".to_owned() }));
    host.serve(Event::message("phone", "family", "fail")).await.unwrap();
    let sent = pager.sent();
    assert_eq!(sent[0], "boss: re: one");
    assert!(sent.len() == 2 && sent[1].starts_with("boss: "), "the notice goes there too: {sent:?}");
    assert!(phone.sent().is_empty());

    let mut elsewhere = Event::message("phone", "family", "two");
    elsewhere.delivery.output_channel = Some("phone".into());
    host.serve(elsewhere).await.unwrap();
    assert_eq!(phone.sent(), ["family: re: two"], "an event that says where its answer goes goes before the binding");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_whoever_waits_is_told_the_outcome_wherever_the_answer_went() {
    let (desk, pager) = (Arc::new(TestChannel::with_waiting_callers("desk")), Arc::new(TestChannel::new("pager")));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&desk).channel(&pager).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, pager_policy()).await.unwrap();
    let event = Event::message("desk", "a", "one");
    host.serve(event.clone()).await.unwrap();
    let answer = desk.wait_for_answer(&event.event_id).await;
    assert_eq!(answer.outcome, Outcome::Replied { text: "re: one".to_owned() });
    assert!(answer.messages.is_empty());
    assert_eq!(pager.sent(), ["boss: re: one"]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_under_a_silent_binding_the_tape_tells_and_nothing_is_sent() {
    let phone = Arc::new(TestChannel::new("phone"));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, DeliveryPolicy { silent: true, ..DeliveryPolicy::default() }).await.unwrap();
    let (one, fails) = (Event::message("phone", "family", "one"), Event::message("phone", "family", "fail"));
    assert_eq!(host.serve(one.clone()).await.unwrap().outcome, Some(Outcome::Silent));
    let failed = host.serve(fails.clone()).await.unwrap().outcome.unwrap();
    assert!(matches!(failed, Outcome::Failed { .. }), "that it failed is on record: {failed:?}");
    assert!(delivery_statuses(&house, &one).await.is_empty() && delivery_statuses(&house, &fails).await.is_empty());
    assert!(phone.sent_messages().is_empty(), "neither a reply, nor a notice, nor a stream");
    let tape = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.head.0 > 5).unwrap().name;
    let said =
        host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::default() }).await.unwrap();
    assert!(said.iter().any(|entry| entry.payload["content"] == "re: one"), "{said:?}");
    house.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_a_channel_that_is_not_there_is_refused_when_the_binding_is_saved() {
    let phone = Arc::new(TestChannel::new("phone"));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    let refused = save_delivery_policy(&host, pager_policy()).await.unwrap_err();
    assert_eq!(refused.code(), "binding-invalid");
    let words = "the binding default cannot be saved: its delivery_policy names the channel pager, which is not there; \
        known: phone";
    assert_eq!(refused.to_string(), words);
    let empty = DeliveryPolicy { chat_id: Some(" ".into()), ..DeliveryPolicy::default() };
    assert_eq!(save_delivery_policy(&host, empty).await.unwrap_err().code(), "binding-invalid");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_an_answer_for_a_channel_that_has_gone_is_undelivered_and_its_text_is_kept() {
    let (phone, pager) = (Arc::new(TestChannel::new("phone")), Arc::new(TestChannel::new("pager")));
    let house = HostFixture::in_memory();
    let host = house.host_builder().channel(&phone).channel(&pager).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, pager_policy()).await.unwrap();
    host.stop().await.unwrap();
    let host = house.host_builder().channel(&phone).plugin(echo_plugin()).start().await;
    let event = Event::message("phone", "family", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["there is no channel pager"]);
    assert_eq!(house.outcome(&event).await, Some(Outcome::Replied { text: "re: one".to_owned() }));
    let reason = "there is no channel pager".to_owned();
    assert_eq!(delivery_statuses(&house, &event).await, [OutboxStatus::Undelivered { reason }]);
    assert!(phone.sent().is_empty(), "nobody else is told instead");
    host.stop().await.unwrap();
}
