//! A session in which as many messages wait as may: what cannot wait is refused before it is accepted, where somebody
//! hears of that, and what does not have to wait gets through.

use std::sync::Arc;

use capstan::hooks::contracts::{Gateway as _, Intake};
use capstan::protocol::{AdmissionMode, Event, EventKey};
use capstan::{Host, HostError};
use capstan_testing::Gate;

use crate::house::{House, holds_at, in_words, submit};
use crate::phone::Phone;

/// A desk at which one message is being worked on and one waits, which is all that may.
struct Crowd {
    house: House,
    host: Host,
    desk: Arc<Phone>,
    gate: Gate,
    worked_on: Event,
    waiting: Event,
}

impl Crowd {
    async fn gathers(intake: Intake) -> Self {
        let (gate, desk) = (Gate::new(), Arc::new(Phone::desk("desk").taking_in(intake)));
        let house = House::on_disk();
        let building = house.host().channel(&desk).plugin(holds_at(&gate));
        let host = building.set(|settings| settings.session_queue = 1).start().await;
        let [worked_on, waiting] = ["[[tool:hold]]", "waits"].map(|text| Event::message("desk", "1", text));
        submit(&host, &worked_on).await;
        gate.reached().await;
        let crowd = Self { house, host, desk, gate, worked_on, waiting };
        submit(&crowd.host, &crowd.waiting).await;
        crowd
    }

    async fn outcome(&self, event: &Event) -> String {
        in_words(&self.desk.answer_to(&event.event_id).await.outcome)
    }

    /// Lets the tool end, and with it the crowd.
    async fn goes_home(self) {
        self.gate.open();
        for event in [&self.worked_on, &self.waiting] {
            self.desk.answer_to(&event.event_id).await;
        }
        self.house.assert_tidy().await;
        self.host.stop().await.unwrap();
    }
}

#[tokio::test]
async fn x01_who_waits_is_refused_before_anything_is_kept_and_can_send_the_same_event_again() {
    let crowd = Crowd::gathers(Intake::default()).await;
    let one_more = Event::message("desk", "1", "one more");
    let refused = crowd.host.submit(one_more.clone().into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full");
    assert_eq!(crowd.host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    assert_eq!(crowd.house.store().accepted(&EventKey::from(&one_more)).await.unwrap(), None, "nothing is kept");
    crowd.gate.open();
    crowd.outcome(&crowd.waiting).await;
    submit(&crowd.host, &one_more).await;
    let answer = crowd.desk.answer_to(&one_more.event_id).await;
    assert!(in_words(&answer.outcome).starts_with("replied: ") && !answer.duplicate, "{answer:?}");
    crowd.goes_home().await;
}

#[tokio::test]
async fn x01_an_event_that_waits_is_not_refused_when_it_is_sent_again() {
    let crowd = Crowd::gathers(Intake::default()).await;
    submit(&crowd.host, &crowd.waiting).await;
    crowd.gate.open();
    assert!(crowd.outcome(&crowd.waiting).await.starts_with("replied: "));
    crowd.goes_home().await;
}

#[tokio::test]
async fn t13_a_command_that_only_looks_is_answered_though_the_queue_is_full() {
    let crowd = Crowd::gathers(Intake::default()).await;
    let info = Event::message("desk", "1", ",tape.info");
    submit(&crowd.host, &info).await;
    assert!(crowd.outcome(&info).await.starts_with("replied: "), "while the tool is at work");
    let reset = Event::message("desk", "1", ",tape.reset");
    let refused = crowd.host.submit(reset.into()).await.unwrap_err();
    assert_eq!(refused.code, "queue-full", "every other command would have to wait");
    crowd.goes_home().await;
}

#[tokio::test]
async fn t13_an_interruption_gets_through_a_full_queue() {
    let crowd = Crowd::gathers(Intake { admission: Some(AdmissionMode::Interrupt), debounce: None }).await;
    let stop = Event::message("desk", "1", "stop");
    submit(&crowd.host, &stop).await;
    assert!(crowd.outcome(&stop).await.starts_with("replied: "));
    assert_eq!(crowd.outcome(&crowd.worked_on).await, "cancelled");
    crowd.goes_home().await;
}

#[tokio::test]
async fn c03_what_was_not_said_to_the_bot_is_let_go_without_a_word() {
    let crowd = Crowd::gathers(Intake::default()).await;
    let mut chatter = Event::message("desk", "1", "nice weather");
    chatter.metadata.insert(Event::ADDRESSED.to_owned(), false.into());
    submit(&crowd.host, &chatter).await;
    assert_eq!(crowd.outcome(&chatter).await, "dropped");
    crowd.goes_home().await;
}
