//! Sessions with a full queue: a waiting caller is refused before its event is accepted, and events that need no queue
//! slot are served.

use std::sync::Arc;

use capstan_hooks::contracts::{Gateway as _, IntakeOptions};
use capstan_host::HostError;
use capstan_host::testing::{TestEnvironment, TestHost};
use capstan_protocol::{AdmissionMode, Event, EventKey};
use capstan_testing::ReplyBarrier;

use crate::sessions::support::{format_outcome, hold_tool_plugin};
use crate::sessions::test_channel::TestChannel;

/// Session with one running and one queued message, which fills the queue.
struct FullQueueFixture {
    environment: TestEnvironment,
    host: TestHost,
    channel: Arc<TestChannel>,
    barrier: ReplyBarrier,
    running_event: Event,
    queued_event: Event,
}

impl FullQueueFixture {
    async fn start(intake: IntakeOptions) -> Self {
        let (barrier, channel) =
            (ReplyBarrier::new(), Arc::new(TestChannel::with_waiting_callers("desk").with_intake(intake)));
        let environment = TestEnvironment::on_disk();
        let builder = environment.host().channel(&channel).plugin(hold_tool_plugin(&barrier));
        let host = builder.options(|options| options.max_queued_events = 1).start().await;
        let [running_event, queued_event] = ["[[tool:hold]]", "waits"].map(|text| Event::message("desk", "1", text));
        host.submit_and_wait(&running_event).await;
        barrier.reached().await;
        host.submit_and_wait(&queued_event).await;
        Self { environment, host, channel, barrier, running_event, queued_event }
    }

    async fn outcome(&self, event: &Event) -> String {
        format_outcome(&self.channel.wait_for_answer(&event.event_id).await.outcome)
    }

    /// Releases the tool and waits until the queue is empty.
    async fn finish(self) {
        self.barrier.release();
        for event in [&self.running_event, &self.queued_event] {
            self.channel.wait_for_answer(&event.event_id).await;
        }
        self.environment.assert_settled().await;
        self.host.stop().await.unwrap();
    }
}

#[tokio::test]
async fn x01_a_refused_event_is_not_stored_and_can_be_sent_again() {
    let queue = FullQueueFixture::start(IntakeOptions::default()).await;
    let one_more = Event::message("desk", "1", "one more");
    let refused = queue.host.submit(one_more.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full");
    assert_eq!(queue.host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    assert_eq!(
        queue.environment.store().inbox_record(&EventKey::from(&one_more)).await.unwrap(),
        None,
        "the event is not stored"
    );
    queue.barrier.release();
    queue.outcome(&queue.queued_event).await;
    queue.host.submit_and_wait(&one_more).await;
    let answer = queue.channel.wait_for_answer(&one_more.event_id).await;
    assert!(format_outcome(&answer.outcome).starts_with("replied: ") && !answer.is_duplicate, "{answer:?}");
    queue.finish().await;
}

#[tokio::test]
async fn x01_a_queued_event_is_not_refused_when_it_is_sent_again() {
    let queue = FullQueueFixture::start(IntakeOptions::default()).await;
    queue.host.submit_and_wait(&queue.queued_event).await;
    queue.barrier.release();
    assert!(queue.outcome(&queue.queued_event).await.starts_with("replied: "));
    queue.finish().await;
}

#[tokio::test]
async fn t13_a_read_only_command_is_answered_although_the_queue_is_full() {
    let queue = FullQueueFixture::start(IntakeOptions::default()).await;
    let info = Event::message("desk", "1", ",tape.info");
    queue.host.submit_and_wait(&info).await;
    assert!(queue.outcome(&info).await.starts_with("replied: "), "while the tool runs");
    let reset = Event::message("desk", "1", ",tape.reset");
    let refused = queue.host.submit(reset.into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full", "every other command needs a queue slot");
    queue.finish().await;
}

#[tokio::test]
async fn t13_an_interruption_is_admitted_to_a_full_queue() {
    let queue =
        FullQueueFixture::start(IntakeOptions { admission: Some(AdmissionMode::Interrupt), debounce: None }).await;
    let stop = Event::message("desk", "1", "stop");
    queue.host.submit_and_wait(&stop).await;
    assert!(queue.outcome(&stop).await.starts_with("replied: "));
    assert_eq!(queue.outcome(&queue.running_event).await, "cancelled");
    queue.finish().await;
}

#[tokio::test]
async fn c03_an_unaddressed_message_is_dropped_without_an_error() {
    let queue = FullQueueFixture::start(IntakeOptions::default()).await;
    let mut chatter = Event::message("desk", "1", "nice weather");
    chatter.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    queue.host.submit_and_wait(&chatter).await;
    assert_eq!(queue.outcome(&chatter).await, "dropped");
    queue.finish().await;
}
