//! However an event fails, the observers are told once, and whoever sent it gets one notice, the way replies go: through
//! the hooks that dispatch, and by the outbox (T10, T11).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan::Host;
use capstan::hooks::args::{DispatchMessage, ErrorReport, ErrorStage};
use capstan::hooks::contracts::IntakeOptions;
use capstan::hooks::points::{DispatchOutbound, OnError, SaveState};
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{AdmissionMode, Event, EventKey, Outcome, SessionId, TapeName, Timestamp};
use capstan::tape::{Batch, EntryDraft, Fact, OutboxStatus, OwnerLiveness};
use capstan_testing::ReplyBarrier;
use serde_json::json;

use crate::host_fixture::{HostFixture, boxed_plugin, hold_tool_plugin, submit};
use crate::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

const QUEUE_FULL_NOTICE: &str = "too many messages are waiting in this conversation; please send this one again later";

/// What the hooks were told.
#[derive(Clone, Default)]
struct HookLog(Arc<Mutex<Vec<String>>>);

impl HookLog {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// A plugin that hears what goes wrong, and what goes out.
    fn plugin(&self) -> Box<dyn Plugin> {
        let heard = self.clone();
        boxed_plugin("hears", move |hooks: &mut HookRegistrar| {
            let (failed, sent) = (heard.clone(), heard.clone());
            hooks.on(OnError, move |stage: ErrorStage, error: ErrorReport| {
                failed.add(format!("on_error({}): {}", stage.as_str(), error.public));
                async { Ok(Some(())) }
            });
            hooks.on(DispatchOutbound, move |message: DispatchMessage| {
                sent.add(format!("dispatch_outbound: {}", message.content.text()));
                async { Ok(None) }
            });
        })
    }

    /// Asserts that this went wrong and that nothing but its notice went out, which is on record.
    async fn assert_only_notice(&self, why: &str, event: &Event, house: &HostFixture, phone: &TestChannel) {
        let notice = format!("Sorry, something went wrong: {why}");
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(heard, [format!("on_error(turn): {why}"), format!("dispatch_outbound: {notice}")]);
        let outcome = house.outcome(event).await;
        assert!(matches!(&outcome, Some(Outcome::Failed { notice: kept, .. }) if *kept == notice), "{outcome:?}");
        assert_eq!(phone.sent().last(), Some(&format!("1: {notice}")));
        let rows = house.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
        assert_eq!(rows.len(), 1, "one notice");
        assert!(matches!(rows[0].status, OutboxStatus::Sent { .. }), "{rows:?}");
    }
}

async fn first_tape(host: &Host) -> TapeName {
    host.tapes().list().await.unwrap().remove(0).name
}

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

#[tokio::test(start_paused = true)]
async fn t11_a_message_for_which_there_is_no_place() {
    let (gate, heard, phone, house) =
        (ReplyBarrier::new(), HookLog::default(), phone_channel(), HostFixture::in_memory());
    let building = house.host_builder().channel(&phone).plugin(hold_tool_plugin(&gate)).plugin(heard.plugin());
    let host = building.configure(|settings| settings.max_queued_events = 1).start().await;
    let [one, two, three] = ["[[tool:hold]]", "two", "three"].map(|text| Event::message("phone", "1", text));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    submit(&host, &three).await;
    phone.wait_until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    heard.assert_only_notice(QUEUE_FULL_NOTICE, &three, &house, &phone).await;
    gate.release();
    phone.wait_until_sent(3).await;
    host.stop().await.unwrap();
    house.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn t11_an_event_that_a_dead_process_left_and_that_has_no_turn() {
    let (heard, phone, house) = (HookLog::default(), phone_channel(), HostFixture::in_memory());
    let host = house.host_builder().channel(&phone).plugin(heard.plugin()).start().await;
    host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    heard.0.lock().unwrap().clear();
    let (tape, event) = (first_tape(&host).await, Event::message("phone", "1", "one too many"));
    let mut batch = Batch::new();
    let told = json!({ "event": event, "without_turn": QUEUE_FULL_NOTICE });
    let entry = batch.append(&tape, EntryDraft::event("event.accepted", told).hidden());
    batch.push(Fact::AcceptEvent {
        key: EventKey::from(&event),
        session: SessionId::new("phone:1"),
        tape,
        entry,
        accepted_at: Timestamp::from_millis(0),
        owner: "host-dead".to_owned(),
    });
    house.store().commit(batch).await.unwrap();
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(2).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    heard.assert_only_notice(QUEUE_FULL_NOTICE, &event, &house, &phone).await;
    host.stop().await.unwrap();
    house.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn t11_a_turn_that_lost_its_lease() {
    let (gate, heard, phone, house) =
        (ReplyBarrier::new(), HookLog::default(), phone_channel(), HostFixture::in_memory());
    let held = gate.clone();
    let slow_end = boxed_plugin("slow-end", move |hooks| {
        let held = held.clone();
        hooks.on(SaveState, move || {
            let held = held.clone();
            async move {
                held.wait_for_release().await;
                Ok(None)
            }
        });
    });
    let host = house.host_builder().channel(&phone).plugin(slow_end).plugin(heard.plugin()).start().await;
    let event = Event::message("phone", "1", "hello");
    submit(&host, &event).await;
    gate.reached().await;
    let tape = first_tape(&host).await;
    let holder = house.store().lease(&tape).await.unwrap().unwrap().owner.unwrap();
    let thief = "thief/1".to_owned();
    let (now, until) = (Timestamp::from_millis(0), Timestamp::from_millis(1));
    let judged = Some(OwnerLiveness { owner: holder, is_alive: false });
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease {
        tape: tape.clone(),
        owner: thief.clone(),
        now,
        expires_at: until,
        owner_liveness: judged,
    });
    batch.push(Fact::ReleaseLease { tape, owner: thief });
    house.store().commit(batch).await.unwrap();
    heard.0.lock().unwrap().clear();
    gate.release();
    phone.wait_until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let heard_of = heard.0.lock().unwrap().remove(0);
    assert!(heard_of.starts_with("dispatch_outbound: I am the demo model"), "the turn itself went well: {heard_of}");
    heard.assert_only_notice("the store failed", &event, &house, &phone).await;
    house.assert_settled().await;
    let again = host.serve(Event::message("phone", "1", "and now?")).await.unwrap();
    assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "the session goes on: {again:?}");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_every_caller_that_waits_is_answered_however_many_answers_wait() {
    let (turn, reading) = (ReplyBarrier::new(), ReplyBarrier::new());
    let slow = reading.clone();
    let desk = TestChannel::with_waiting_callers("desk").with_behaviour(move |asked| {
        let slow = slow.clone();
        matches!(asked, ChannelRequest::Answer(_)).then(|| {
            Box::pin(async move {
                slow.wait_for_release().await;
                Ok(())
            }) as ChannelFuture
        })
    });
    let desk = Arc::new(desk);
    let house = HostFixture::in_memory();
    let building = house.host_builder().channel(&desk).plugin(hold_tool_plugin(&turn));
    let host = building
        .configure(|settings| {
            let admission = Some(AdmissionMode::Drop);
            settings.intake_overrides.insert("desk".into(), IntakeOptions { admission, debounce: None });
        })
        .start()
        .await;
    submit(&host, &Event::message("desk", "1", "[[tool:hold]]")).await;
    turn.reached().await;
    let dropped: Vec<Event> = (0..100).map(|n| Event::message("desk", "1", n.to_string())).collect();
    for event in &dropped {
        submit(&host, event).await;
    }
    reading.release();
    for event in &dropped {
        assert_eq!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Dropped);
    }
    turn.release();
    host.stop().await.unwrap();
    house.assert_settled().await;
}
