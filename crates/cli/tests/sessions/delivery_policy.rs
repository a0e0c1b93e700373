//! The delivery policy of a binding: where answers go, and where nothing is sent at all. On paused time.

use std::sync::Arc;
use std::time::Duration;

use capstan::Host;
use capstan::hooks::Plugin;
use capstan::hooks::args::Prompt;
use capstan::hooks::points::RunModel;
use capstan::protocol::{Binding, DeliveryPolicy, Event, EventKey, Outcome};
use capstan::tape::{Kind, OutboxStatus, Slice};
use capstan_host::{BindingError, default_binding};

use crate::house::{House, plugin};
use crate::phone::Phone;

/// Answers with what it was told; fails where it is told to.
fn echoes() -> Box<dyn Plugin> {
    plugin("echo", |hooks| {
        hooks.on(RunModel, |prompt: Prompt| async move {
            if prompt.text().contains("fail") {
                return Err("it was told to".into());
            }
            Ok(Some(format!("re: {}", prompt.text())))
        });
    })
}

async fn bind(host: &Host, delivery_policy: DeliveryPolicy) -> Result<(), BindingError> {
    let binding = Binding { delivery_policy, ..default_binding() };
    host.bindings().save(&binding, &host.runners()).await
}

fn to_pager() -> DeliveryPolicy {
    let (output_channel, chat_id) = (Some("pager".into()), Some("boss".into()));
    DeliveryPolicy { output_channel, chat_id, ..DeliveryPolicy::default() }
}

async fn fates(house: &House, event: &Event) -> Vec<OutboxStatus> {
    while !house.store().waiting().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let rows = house.store().outbox(&EventKey::from(event)).await.unwrap();
    rows.into_iter().map(|row| row.status).collect()
}

#[tokio::test(start_paused = true)]
async fn g02_answers_and_notices_go_to_the_channel_and_chat_of_the_binding() {
    let (phone, pager) = (Arc::new(Phone::new("phone")), Arc::new(Phone::new("pager")));
    let house = House::in_memory();
    let host = house.host().channel(&phone).channel(&pager).plugin(echoes()).start().await;
    bind(&host, to_pager()).await.unwrap();
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
    let (desk, pager) = (Arc::new(Phone::desk("desk")), Arc::new(Phone::new("pager")));
    let house = House::in_memory();
    let host = house.host().channel(&desk).channel(&pager).plugin(echoes()).start().await;
    bind(&host, to_pager()).await.unwrap();
    let event = Event::message("desk", "a", "one");
    host.serve(event.clone()).await.unwrap();
    let answer = desk.answer_to(&event.event_id).await;
    assert_eq!(answer.outcome, Outcome::Replied { text: "re: one".to_owned() });
    assert!(answer.messages.is_empty());
    assert_eq!(pager.sent(), ["boss: re: one"]);
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_under_a_silent_binding_the_tape_tells_and_nothing_is_sent() {
    let phone = Arc::new(Phone::new("phone"));
    let house = House::in_memory();
    let host = house.host().channel(&phone).plugin(echoes()).start().await;
    bind(&host, DeliveryPolicy { silent: true, ..DeliveryPolicy::default() }).await.unwrap();
    let (one, fails) = (Event::message("phone", "family", "one"), Event::message("phone", "family", "fail"));
    assert_eq!(host.serve(one.clone()).await.unwrap().outcome, Some(Outcome::Silent));
    let failed = host.serve(fails.clone()).await.unwrap().outcome.unwrap();
    assert!(matches!(failed, Outcome::Failed { .. }), "that it failed is on record: {failed:?}");
    assert!(fates(&house, &one).await.is_empty() && fates(&house, &fails).await.is_empty());
    assert!(phone.messages().is_empty(), "neither a reply, nor a notice, nor a stream");
    let tape = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.head.0 > 5).unwrap().name;
    let said = host.tapes().read(&tape, &Slice { kinds: vec![Kind::Message], ..Slice::default() }).await.unwrap();
    assert!(said.iter().any(|entry| entry.payload["content"] == "re: one"), "{said:?}");
    house.assert_tidy().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_a_channel_that_is_not_there_is_refused_when_the_binding_is_saved() {
    let phone = Arc::new(Phone::new("phone"));
    let house = House::in_memory();
    let host = house.host().channel(&phone).plugin(echoes()).start().await;
    let refused = bind(&host, to_pager()).await.unwrap_err();
    assert_eq!(refused.code(), "binding-invalid");
    let words = "the binding default cannot be saved: its delivery_policy names the channel pager, which is not there; \
        known: phone";
    assert_eq!(refused.to_string(), words);
    let empty = DeliveryPolicy { chat_id: Some(" ".into()), ..DeliveryPolicy::default() };
    assert_eq!(bind(&host, empty).await.unwrap_err().code(), "binding-invalid");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_an_answer_for_a_channel_that_has_gone_is_undelivered_and_its_text_is_kept() {
    let (phone, pager) = (Arc::new(Phone::new("phone")), Arc::new(Phone::new("pager")));
    let house = House::in_memory();
    let host = house.host().channel(&phone).channel(&pager).plugin(echoes()).start().await;
    bind(&host, to_pager()).await.unwrap();
    host.stop().await.unwrap();
    let host = house.host().channel(&phone).plugin(echoes()).start().await;
    let event = Event::message("phone", "family", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.undelivered, ["there is no channel pager"]);
    assert_eq!(house.outcome(&event).await, Some(Outcome::Replied { text: "re: one".to_owned() }));
    let reason = "there is no channel pager".to_owned();
    assert_eq!(fates(&house, &event).await, [OutboxStatus::Undelivered { reason }]);
    assert!(phone.sent().is_empty(), "nobody else is told instead");
    host.stop().await.unwrap();
}
