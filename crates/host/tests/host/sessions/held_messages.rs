//! Messages that waited too long are held for the operator (X10).

use std::sync::Arc;
use std::time::Duration;

use capstan_host::testing::TestEnvironment;
use capstan_host::{drop_request, request_revision, resend_request};
use capstan_protocol::{Clock, Event, EventKey, Timestamp};
use capstan_tape::{Batch, Fact, OutboxRecord, OutboxStatus, RESTORED_OWNER};
use serde_json::json;

use crate::sessions::orphaned_events::{OrphanedSession, session_message};
use crate::sessions::test_channel::TestChannel;

const DAY_MILLIS: i64 = 86_400_000;

async fn outbox_record(environment: &TestEnvironment, event: &Event) -> OutboxRecord {
    environment.store().outbox_records(&EventKey::from(event)).collect().await.unwrap().remove(0)
}

/// Environment with unsent messages of a dead process: "old" is older than a day, "new" was staged now.
async fn environment_with_unsent_messages() -> (TestEnvironment, Event, Event) {
    let environment = TestEnvironment::in_memory();
    let (old, new) = (session_message("phone", "old"), session_message("phone", "new"));
    let orphaned = OrphanedSession::new(&environment);
    let now = Timestamp::now();
    for (second, event, staged_at) in [(0, &old, now.plus_millis(-2 * DAY_MILLIS)), (1, &new, now)] {
        orphaned.accept_event(event, second, json!({})).await;
        orphaned.enqueue_staged(event, event.input.plain_text(), staged_at).await;
    }
    (environment, old, new)
}

#[tokio::test]
async fn x10_a_message_that_waited_too_long_is_held_and_later_ones_are_sent() {
    let (environment, old, _) = environment_with_unsent_messages().await;
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(1).await;
    assert!(phone.sent()[0].ends_with(": new"), "only the new one: {:?}", phone.sent());
    let held = outbox_record(&environment, &old).await;
    assert_eq!(held.status, OutboxStatus::Held { reason: "it waited too long".to_owned(), may_have_been_sent: true });
    assert_eq!(held.message.content.text(), "old", "it keeps its text");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x07_a_message_that_was_pending_in_a_restored_copy_is_held() {
    let (environment, _, new) = environment_with_unsent_messages().await;
    let pending = outbox_record(&environment, &new).await;
    let mut restored = Batch::new();
    restored.push(Fact::AdoptOutbound { id: pending.id, from: pending.owner, owner: RESTORED_OWNER.to_owned() });
    environment.store().commit(restored).await.unwrap();
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    while matches!(outbox_record(&environment, &new).await.status, OutboxStatus::Waiting { .. }) {
        tokio::task::yield_now().await;
    }
    let reason = "it may have been sent after the backup that was restored".to_owned();
    let held = OutboxStatus::Held { reason, may_have_been_sent: true };
    assert_eq!(outbox_record(&environment, &new).await.status, held);
    host.stop().await.unwrap();
    assert_eq!(phone.sent(), Vec::<String>::new());
}

#[tokio::test]
async fn x10_a_running_host_sends_a_held_message_that_the_operator_resends() {
    let (environment, old, _) = environment_with_unsent_messages().await;
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(1).await;
    let held = outbox_record(&environment, &old).await;
    let revision = request_revision(environment.store()).await.unwrap();
    environment.store().commit(resend_request(&held, revision, Timestamp::now())).await.unwrap();
    phone.wait_until_sent(2).await;
    assert!(phone.sent()[1].ends_with(": old"), "{:?}", phone.sent());
    while outbox_record(&environment, &old).await.status != (OutboxStatus::Sent { possible_duplicate: true }) {
        tokio::task::yield_now().await;
    }
    let again = environment.store().commit(resend_request(&held, revision, Timestamp::now())).await;
    assert!(again.is_err(), "a second request with an old row fails: {again:?}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x10_zero_means_that_no_message_is_held() {
    let (environment, _, _) = environment_with_unsent_messages().await;
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).options(|options| options.delivery_stale_after = None).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(2).await;
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x10_a_message_that_cannot_be_sent_for_too_long_is_held() {
    let environment = TestEnvironment::in_memory();
    let failing = TestChannel::new("phone").with_behaviour(|_| {
        use futures::FutureExt as _;
        Some(async { Err(capstan_hooks::contracts::ChannelError::new("phone".into(), "no network")) }.boxed())
    });
    let (started, started_at) = (tokio::time::Instant::now(), Timestamp::now());
    // The clock of the host follows the paused clock of the test.
    let clock =
        Clock::new(move || started_at.plus_millis(i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX)));
    let host = environment
        .host()
        .channel(&Arc::new(failing))
        .options(|options| {
            options.clock = clock;
            options.delivery_stale_after = Some(Duration::from_mins(10));
        })
        .start()
        .await;
    let event = Event::message("phone", "a", "one");
    host.submit_and_wait(&event).await;
    while environment.outcome(&event).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while !matches!(outbox_record(&environment, &event).await.status, OutboxStatus::Held { .. }) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(started.elapsed() < Duration::from_hours(1), "long before the maximum number of attempts");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x10_a_dropped_message_is_not_sent() {
    let (environment, old, _) = environment_with_unsent_messages().await;
    let held = outbox_record(&environment, &old).await;
    let status = OutboxStatus::Acknowledged { reason: "dropped".to_owned() };
    environment.store().commit(drop_request(&held, "dropped".to_owned(), 0, Timestamp::now())).await.unwrap();
    let phone = Arc::new(TestChannel::new("phone"));
    let host = environment.host().channel(&phone).start().await;
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(1).await;
    host.stop().await.unwrap();
    assert_eq!((phone.sent().len(), outbox_record(&environment, &old).await.status), (1, status));
}
