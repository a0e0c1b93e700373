//! However an event fails, the observers are told once, and whoever sent it gets one notice, the way replies go: through
//! the hooks that dispatch, and by the outbox (T10, T11).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan::Host;
use capstan::hooks::args::{Fault, Outgoing, Stage};
use capstan::hooks::contracts::Intake;
use capstan::hooks::points::{DispatchOutbound, OnError, SaveState};
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{AdmissionMode, Event, EventKey, Outcome, SessionId, TapeName, Timestamp};
use capstan::tape::{Batch, Draft, Fact, Judged, OutboxStatus};
use capstan_testing::Gate;
use serde_json::json;

use crate::house::{House, holds_at, plugin, submit};
use crate::phone::{Asked, Does, Phone};

const CROWDED: &str = "too many messages wait in this conversation; please send this one again later";

/// What the hooks were told.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn says(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// A plugin that hears what goes wrong, and what goes out.
    fn by(&self) -> Box<dyn Plugin> {
        let heard = self.clone();
        plugin("hears", move |hooks: &mut Registrar| {
            let (failed, sent) = (heard.clone(), heard.clone());
            hooks.on(OnError, move |stage: Stage, error: Fault| {
                failed.says(format!("on_error({}): {}", stage.as_str(), error.public));
                async { Ok(Some(())) }
            });
            hooks.on(DispatchOutbound, move |message: Outgoing| {
                sent.says(format!("dispatch_outbound: {}", message.content.text()));
                async { Ok(None) }
            });
        })
    }

    /// Asserts that this went wrong and that nothing but its notice went out, which is on record.
    async fn only(&self, why: &str, event: &Event, house: &House, phone: &Phone) {
        let notice = format!("Sorry, something went wrong: {why}");
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(heard, [format!("on_error(turn): {why}"), format!("dispatch_outbound: {notice}")]);
        let outcome = house.outcome(event).await;
        assert!(matches!(&outcome, Some(Outcome::Failed { notice: kept, .. }) if *kept == notice), "{outcome:?}");
        assert_eq!(phone.sent().last(), Some(&format!("1: {notice}")));
        let rows = house.store().outbox(&EventKey::from(event)).await.unwrap();
        assert_eq!(rows.len(), 1, "one notice");
        assert!(matches!(rows[0].status, OutboxStatus::Sent { .. }), "{rows:?}");
    }
}

async fn tape_of(host: &Host) -> TapeName {
    host.tapes().list().await.unwrap().remove(0).name
}

fn phone() -> Arc<Phone> {
    Arc::new(Phone::new("phone"))
}

#[tokio::test(start_paused = true)]
async fn t11_a_message_for_which_there_is_no_place() {
    let (gate, heard, phone, house) = (Gate::new(), Heard::default(), phone(), House::in_memory());
    let building = house.host().channel(&phone).plugin(holds_at(&gate)).plugin(heard.by());
    let host = building.set(|settings| settings.session_queue = 1).start().await;
    let [one, two, three] = ["[[tool:hold]]", "two", "three"].map(|text| Event::message("phone", "1", text));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    submit(&host, &three).await;
    phone.until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    heard.only(CROWDED, &three, &house, &phone).await;
    gate.open();
    phone.until_sent(3).await;
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn t11_an_event_that_a_dead_process_left_and_that_has_no_turn() {
    let (heard, phone, house) = (Heard::default(), phone(), House::in_memory());
    let host = house.host().channel(&phone).plugin(heard.by()).start().await;
    host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    heard.0.lock().unwrap().clear();
    let (tape, event) = (tape_of(&host).await, Event::message("phone", "1", "one too many"));
    let mut batch = Batch::new();
    let told = json!({ "event": event, "without_turn": CROWDED });
    let entry = batch.append(&tape, Draft::event("event.accepted", told).hidden());
    batch.push(Fact::Accept {
        key: EventKey::from(&event),
        session: SessionId::new("phone:1"),
        tape,
        entry,
        at: Timestamp::from_millis(0),
        owner: "host-dead".to_owned(),
    });
    house.store().commit(batch).await.unwrap();
    host.listen(&["phone".into()]).await;
    phone.until_sent(2).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    heard.only(CROWDED, &event, &house, &phone).await;
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn t11_a_turn_that_lost_its_lease() {
    let (gate, heard, phone, house) = (Gate::new(), Heard::default(), phone(), House::in_memory());
    let held = gate.clone();
    let slow_end = plugin("slow-end", move |hooks| {
        let held = held.clone();
        hooks.on(SaveState, move || {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(None)
            }
        });
    });
    let host = house.host().channel(&phone).plugin(slow_end).plugin(heard.by()).start().await;
    let event = Event::message("phone", "1", "hello");
    submit(&host, &event).await;
    gate.reached().await;
    let tape = tape_of(&host).await;
    let holder = house.store().lease(&tape).await.unwrap().unwrap().owner.unwrap();
    let thief = "thief/1".to_owned();
    let (now, until) = (Timestamp::from_millis(0), Timestamp::from_millis(1));
    let judged = Some(Judged { owner: holder, alive: false });
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: tape.clone(), owner: thief.clone(), now, until, judged });
    batch.push(Fact::ReleaseLease { tape, owner: thief });
    house.store().commit(batch).await.unwrap();
    heard.0.lock().unwrap().clear();
    gate.open();
    phone.until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let heard_of = heard.0.lock().unwrap().remove(0);
    assert!(heard_of.starts_with("dispatch_outbound: I am the demo model"), "the turn itself went well: {heard_of}");
    heard.only("the store failed", &event, &house, &phone).await;
    house.assert_tidy().await;
    let again = host.serve(Event::message("phone", "1", "and now?")).await.unwrap();
    assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "the session goes on: {again:?}");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_every_caller_that_waits_is_answered_however_many_answers_wait() {
    let (turn, reading) = (Gate::new(), Gate::new());
    let slow = reading.clone();
    let desk = Phone::desk("desk").that(move |asked| {
        let slow = slow.clone();
        matches!(asked, Asked::Answer(_)).then(|| {
            Box::pin(async move {
                slow.pass().await;
                Ok(())
            }) as Does
        })
    });
    let desk = Arc::new(desk);
    let house = House::in_memory();
    let building = house.host().channel(&desk).plugin(holds_at(&turn));
    let host = building
        .set(|settings| {
            let admission = Some(AdmissionMode::Drop);
            settings.intakes.insert("desk".into(), Intake { admission, debounce: None });
        })
        .start()
        .await;
    submit(&host, &Event::message("desk", "1", "[[tool:hold]]")).await;
    turn.reached().await;
    let dropped: Vec<Event> = (0..100).map(|n| Event::message("desk", "1", n.to_string())).collect();
    for event in &dropped {
        submit(&host, event).await;
    }
    reading.open();
    for event in &dropped {
        assert_eq!(desk.answer_to(&event.event_id).await.outcome, Outcome::Dropped);
    }
    turn.open();
    host.stop().await.unwrap();
    house.assert_tidy().await;
}
