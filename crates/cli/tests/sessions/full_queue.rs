//! A session in which as many messages wait as may: what cannot wait is refused before it is accepted, where somebody
//! hears of that, and what does not have to wait gets through.

use std::sync::Arc;

use capstan::hooks::contracts::{Gateway as _, IntakeOptions};
use capstan::protocol::{AdmissionMode, Event, EventKey};
use capstan::{Host, HostError};
use capstan_testing::ReplyBarrier;

use crate::host_fixture::{HostFixture, format_outcome, hold_tool_plugin, submit};
use crate::test_channel::TestChannel;

/// A desk at which one message is being worked on and one waits, which is all that may.
struct FullQueueFixture {
    fixture: HostFixture,
    host: Host,
    channel: Arc<TestChannel>,
    gate: ReplyBarrier,
    running_event: Event,
    queued_event: Event,
}

impl FullQueueFixture {
    async fn start(intake: IntakeOptions) -> Self {
        let (gate, desk) =
            (ReplyBarrier::new(), Arc::new(TestChannel::with_waiting_callers("desk").with_intake(intake)));
        let house = HostFixture::on_disk();
        let building = house.host_builder().channel(&desk).plugin(hold_tool_plugin(&gate));
        let host = building.configure(|settings| settings.max_queued_events = 1).start().await;
        let [worked_on, waiting] = ["[[tool:hold]]", "waits"].map(|text| Event::message("desk", "1", text));
        submit(&host, &worked_on).await;
        gate.reached().await;
        let crowd = Self { fixture: house, host, channel: desk, gate, running_event: worked_on, queued_event: waiting };
        submit(&crowd.host, &crowd.queued_event).await;
        crowd
    }

    async fn outcome(&self, event: &Event) -> String {
        format_outcome(&self.channel.wait_for_answer(&event.event_id).await.outcome)
    }

    /// Lets the tool end, and with it the crowd.
    async fn finish(self) {
        self.gate.release();
        for event in [&self.running_event, &self.queued_event] {
            self.channel.wait_for_answer(&event.event_id).await;
        }
        self.fixture.assert_settled().await;
        self.host.stop().await.unwrap();
    }
}

#[tokio::test]
async fn x01_who_waits_is_refused_before_anything_is_kept_and_can_send_the_same_event_again() {
    let crowd = FullQueueFixture::start(IntakeOptions::default()).await;
    let one_more = Event::message("desk", "1", "one more");
    let refused = crowd.host.submit(one_more.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full");
    assert_eq!(crowd.host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    assert_eq!(crowd.fixture.store().inbox_record(&EventKey::from(&one_more)).await.unwrap(), None, "nothing is kept");
    crowd.gate.release();
    crowd.outcome(&crowd.queued_event).await;
    submit(&crowd.host, &one_more).await;
    let answer = crowd.channel.wait_for_answer(&one_more.event_id).await;
    assert!(format_outcome(&answer.outcome).starts_with("replied: ") && !answer.is_duplicate, "{answer:?}");
    crowd.finish().await;
}

#[tokio::test]
async fn x01_an_event_that_waits_is_not_refused_when_it_is_sent_again() {
    let crowd = FullQueueFixture::start(IntakeOptions::default()).await;
    submit(&crowd.host, &crowd.queued_event).await;
    crowd.gate.release();
    assert!(crowd.outcome(&crowd.queued_event).await.starts_with("replied: "));
    crowd.finish().await;
}

#[tokio::test]
async fn t13_a_command_that_only_looks_is_answered_though_the_queue_is_full() {
    let crowd = FullQueueFixture::start(IntakeOptions::default()).await;
    let info = Event::message("desk", "1", ",tape.info");
    submit(&crowd.host, &info).await;
    assert!(crowd.outcome(&info).await.starts_with("replied: "), "while the tool is at work");
    let reset = Event::message("desk", "1", ",tape.reset");
    let refused = crowd.host.submit(reset.into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full", "every other command would have to wait");
    crowd.finish().await;
}

#[tokio::test]
async fn t13_an_interruption_gets_through_a_full_queue() {
    let crowd =
        FullQueueFixture::start(IntakeOptions { admission: Some(AdmissionMode::Interrupt), debounce: None }).await;
    let stop = Event::message("desk", "1", "stop");
    submit(&crowd.host, &stop).await;
    assert!(crowd.outcome(&stop).await.starts_with("replied: "));
    assert_eq!(crowd.outcome(&crowd.running_event).await, "cancelled");
    crowd.finish().await;
}

#[tokio::test]
async fn c03_what_was_not_said_to_the_bot_is_let_go_without_a_word() {
    let crowd = FullQueueFixture::start(IntakeOptions::default()).await;
    let mut chatter = Event::message("desk", "1", "nice weather");
    chatter.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
    submit(&crowd.host, &chatter).await;
    assert_eq!(crowd.outcome(&chatter).await, "dropped");
    crowd.finish().await;
}
