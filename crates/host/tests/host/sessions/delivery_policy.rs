//! Delivery policy of a binding: the target of replies, and silent bindings. On a paused clock.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::PromptContent;
use capstan_hooks::points::RunModel;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_policy::{BindingError, default_binding};
use capstan_protocol::{Binding, DeliveryPolicy, Event, EventKey, Outcome};
use capstan_tape::{EntryKind, OutboxStatus, TapeSlice};

use crate::sessions::test_channel::TestChannel;

/// Plugin whose model stage echoes the prompt, and fails on prompts with `fail`.
fn echo_plugin() -> ClosurePlugin {
    ClosurePlugin::new("echo", |hooks| {
        hooks.on(RunModel, |prompt: PromptContent| async move {
            if prompt.text().contains("fail") {
                return Err("failure requested".into());
            }
            Ok(Some(format!("re: {}", prompt.text())))
        });
    })
}

async fn save_delivery_policy(host: &TestHost, delivery_policy: DeliveryPolicy) -> Result<(), BindingError> {
    let binding = Binding { delivery_policy, ..default_binding() };
    host.bindings().save(&binding, &host.runners()).await
}

fn pager_policy() -> DeliveryPolicy {
    let (output_channel, chat_id) = (Some("pager".into()), Some("boss".into()));
    DeliveryPolicy { output_channel, chat_id, ..DeliveryPolicy::default() }
}

async fn delivery_statuses(environment: &TestEnvironment, event: &Event) -> Vec<OutboxStatus> {
    while !environment.store().pending_outbound().collect().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let rows = environment.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
    rows.into_iter().map(|row| row.status).collect()
}

#[tokio::test(start_paused = true)]
async fn g02_replies_and_notices_go_to_the_channel_and_chat_of_the_binding() {
    let (phone, pager) = (Arc::new(TestChannel::new("phone")), Arc::new(TestChannel::new("pager")));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).channel(&pager).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, pager_policy()).await.unwrap();
    let served = host.serve(Event::message("phone", "family", "one")).await.unwrap();
    assert_eq!(served.outcome, Some(Outcome::Replied { text: "re: one".to_owned() }));
    host.serve(Event::message("phone", "family", "fail")).await.unwrap();
    let sent = pager.sent();
    assert_eq!(sent[0], "boss: re: one");
    assert!(sent.len() == 2 && sent[1].starts_with("boss: "), "the notice goes to the same chat: {sent:?}");
    assert!(phone.sent().is_empty());

    let mut redirected = Event::message("phone", "family", "two");
    redirected.delivery.output_channel = Some("phone".into());
    host.serve(redirected).await.unwrap();
    assert_eq!(phone.sent(), ["family: re: two"], "the output channel of the event overrides the binding");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_a_waiting_caller_gets_the_outcome_of_a_redirected_reply() {
    let (desk, pager) = (Arc::new(TestChannel::with_waiting_callers("desk")), Arc::new(TestChannel::new("pager")));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&desk).channel(&pager).plugin(echo_plugin()).start().await;
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
async fn g02_under_a_silent_binding_replies_are_recorded_and_not_sent() {
    let phone = Arc::new(TestChannel::new("phone"));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, DeliveryPolicy { silent: true, ..DeliveryPolicy::default() }).await.unwrap();
    let (one, failing) = (Event::message("phone", "family", "one"), Event::message("phone", "family", "fail"));
    assert_eq!(host.serve(one.clone()).await.unwrap().outcome, Some(Outcome::Silent));
    let failed = host.serve(failing.clone()).await.unwrap().outcome.unwrap();
    assert!(matches!(failed, Outcome::Failed { .. }), "the failure is recorded: {failed:?}");
    assert!(
        delivery_statuses(&environment, &one).await.is_empty()
            && delivery_statuses(&environment, &failing).await.is_empty()
    );
    assert!(phone.sent_messages().is_empty(), "no reply, notice or stream is sent");
    let tape = host.tapes().list().await.unwrap().into_iter().find(|tape| tape.head.0 > 5).unwrap().name;
    let messages =
        host.tapes().read(&tape, &TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::default() }).await.unwrap();
    assert!(messages.iter().any(|entry| entry.payload["content"] == "re: one"), "{messages:?}");
    environment.assert_settled().await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g02_an_unknown_output_channel_is_rejected_when_the_binding_is_saved() {
    let phone = Arc::new(TestChannel::new("phone"));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().without_terminal().channel(&phone).plugin(echo_plugin()).start().await;
    let refused = save_delivery_policy(&host, pager_policy()).await.unwrap_err();
    assert_eq!(refused.code(), "binding-invalid");
    let message = "the binding default cannot be saved: its delivery_policy names the channel pager, which is not there; \
        known: phone";
    assert_eq!(refused.to_string(), message);
    let empty = DeliveryPolicy { chat_id: Some(" ".into()), ..DeliveryPolicy::default() };
    assert_eq!(save_delivery_policy(&host, empty).await.unwrap_err().code(), "binding-invalid");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x03_a_reply_for_a_removed_channel_is_undelivered_and_its_text_is_stored() {
    let (phone, pager) = (Arc::new(TestChannel::new("phone")), Arc::new(TestChannel::new("pager")));
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).channel(&pager).plugin(echo_plugin()).start().await;
    save_delivery_policy(&host, pager_policy()).await.unwrap();
    host.stop().await.unwrap();
    let host = environment.host().channel(&phone).plugin(echo_plugin()).start().await;
    let event = Event::message("phone", "family", "one");
    let served = host.serve(event.clone()).await.unwrap();
    assert_eq!(served.delivery_errors, ["there is no channel pager"]);
    assert_eq!(environment.outcome(&event).await, Some(Outcome::Replied { text: "re: one".to_owned() }));
    let reason = "there is no channel pager".to_owned();
    assert_eq!(delivery_statuses(&environment, &event).await, [OutboxStatus::Undelivered { reason }]);
    assert!(phone.sent().is_empty(), "the reply goes to no other channel");
    host.stop().await.unwrap();
}
