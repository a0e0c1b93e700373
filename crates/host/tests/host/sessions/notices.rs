//! Notices of failed events: observers are notified once, and the sender gets one notice in the same way as a reply, through
//! the dispatch hooks and the outbox (T10, T11).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::HookRegistrar;
use capstan_hooks::args::{DispatchMessage, ErrorReport, ErrorStage};
use capstan_hooks::contracts::IntakeOptions;
use capstan_hooks::points::{DispatchOutbound, OnError, SaveState};
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{AdmissionMode, Event, EventKey, Outcome, SessionId, TapeName, Timestamp};
use capstan_tape::{Batch, EntryDraft, Fact, OutboxStatus, OwnerLiveness};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::json;

use crate::sessions::support::hold_tool_plugin;
use crate::sessions::test_channel::{ChannelFuture, ChannelRequest, TestChannel};

const QUEUE_FULL_NOTICE: &str = "too many messages are waiting in this conversation; please send this one again later";

/// Log of hook calls.
#[derive(Clone, Default)]
struct HookLog(Arc<Mutex<Vec<String>>>);

impl HookLog {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Plugin that logs errors and outbound messages.
    fn plugin(&self) -> ClosurePlugin {
        let log = self.clone();
        ClosurePlugin::new("log", move |hooks: &mut HookRegistrar| {
            let (failed, sent) = (log.clone(), log.clone());
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

    /// Asserts that the hooks saw this error and its notice only, and that the notice was recorded and sent.
    async fn assert_only_notice(
        &self,
        reason: &str,
        event: &Event,
        environment: &TestEnvironment,
        phone: &TestChannel,
    ) {
        let notice = format!("Sorry, something went wrong: {reason}");
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(lines, [format!("on_error(turn): {reason}"), format!("dispatch_outbound: {notice}")]);
        let outcome = environment.outcome(event).await;
        assert!(
            matches!(&outcome, Some(Outcome::Failed { notice: recorded, .. }) if *recorded == notice),
            "{outcome:?}"
        );
        assert_eq!(phone.sent().last(), Some(&format!("1: {notice}")));
        let rows = environment.store().outbox_records(&EventKey::from(event)).collect().await.unwrap();
        assert_eq!(rows.len(), 1, "one notice");
        assert!(matches!(rows[0].status, OutboxStatus::Sent { .. }), "{rows:?}");
    }
}

async fn first_tape(host: &TestHost) -> TapeName {
    host.tapes().list().await.unwrap().remove(0).name
}

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

#[tokio::test(start_paused = true)]
async fn t11_a_message_to_a_full_queue_gives_one_notice() {
    let (barrier, log, phone, environment) =
        (ReplyBarrier::new(), HookLog::default(), phone_channel(), TestEnvironment::in_memory());
    let builder = environment.host().channel(&phone).plugin(hold_tool_plugin(&barrier)).plugin(log.plugin());
    let host = builder.options(|options| options.max_queued_events = 1).start().await;
    let [one, two, three] = ["[[tool:hold]]", "two", "three"].map(|text| Event::message("phone", "1", text));
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    host.submit_and_wait(&two).await;
    host.submit_and_wait(&three).await;
    phone.wait_until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    log.assert_only_notice(QUEUE_FULL_NOTICE, &three, &environment, &phone).await;
    barrier.release();
    phone.wait_until_sent(3).await;
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn t11_an_orphaned_event_without_a_turn_gives_one_notice() {
    let (log, phone, environment) = (HookLog::default(), phone_channel(), TestEnvironment::in_memory());
    let host = environment.host().channel(&phone).plugin(log.plugin()).start().await;
    host.serve(Event::message("phone", "1", "hello")).await.unwrap();
    log.0.lock().unwrap().clear();
    let (tape, event) = (first_tape(&host).await, Event::message("phone", "1", "one too many"));
    let mut batch = Batch::new();
    let data = json!({ "event": event, "without_turn": QUEUE_FULL_NOTICE });
    let entry = batch.append(&tape, EntryDraft::event("event.accepted", data).hidden());
    batch.push(Fact::AcceptEvent {
        key: EventKey::from(&event),
        session: SessionId::new("phone:1"),
        tape,
        entry,
        accepted_at: Timestamp::from_millis(0),
        owner: "host-dead".to_owned(),
    });
    environment.store().commit(batch).await.unwrap();
    host.listen(&["phone".into()]).await;
    phone.wait_until_sent(2).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    log.assert_only_notice(QUEUE_FULL_NOTICE, &event, &environment, &phone).await;
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn t11_a_turn_that_lost_its_lease_gives_no_notice_and_its_event_is_answered_once() {
    let (barrier, log, phone, environment) =
        (ReplyBarrier::new(), HookLog::default(), phone_channel(), TestEnvironment::in_memory());
    let hook_barrier = barrier.clone();
    let slow_end = ClosurePlugin::new("slow-end", move |hooks| {
        let hook_barrier = hook_barrier.clone();
        hooks.on(SaveState, move || {
            let hook_barrier = hook_barrier.clone();
            async move {
                hook_barrier.wait_for_release().await;
                Ok(None)
            }
        });
    });
    let host = environment.host().channel(&phone).plugin(slow_end).plugin(log.plugin()).start().await;
    let event = Event::message("phone", "1", "hello");
    host.submit_and_wait(&event).await;
    barrier.reached().await;
    let tape = first_tape(&host).await;
    let holder = environment.store().lease(&tape).await.unwrap().unwrap().owner.unwrap();
    let thief = "thief/1".to_owned();
    let (now, expires_at) = (Timestamp::from_millis(0), Timestamp::from_millis(1));
    let owner_liveness = Some(OwnerLiveness { owner: holder, is_alive: false });
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: tape.clone(), owner: thief.clone(), now, expires_at, owner_liveness });
    batch.push(Fact::ReleaseLease { tape, owner: thief });
    environment.store().commit(batch).await.unwrap();
    log.0.lock().unwrap().clear();
    barrier.release();
    phone.wait_until_sent(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let lines = log.0.lock().unwrap().clone();
    let is_reply = |line: &String| line.starts_with("dispatch_outbound: I am the demo model");
    assert!(lines.len() == 2 && lines.iter().all(is_reply), "the lost turn and its repetition: {lines:?}");
    let outcome = environment.outcome(&event).await;
    assert!(matches!(outcome, Some(Outcome::Replied { .. })), "{outcome:?}");
    assert_eq!(phone.sent().len(), 1, "{:?}", phone.sent());
    environment.assert_settled().await;
    let again = host.serve(Event::message("phone", "1", "and now?")).await.unwrap();
    assert!(matches!(again.outcome, Some(Outcome::Replied { .. })), "the session continues: {again:?}");
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn x01_every_waiting_caller_is_answered_despite_a_backlog_of_answers() {
    let (turn, reading) = (ReplyBarrier::new(), ReplyBarrier::new());
    let channel_barrier = reading.clone();
    let desk = TestChannel::with_waiting_callers("desk").with_behaviour(move |request| {
        let channel_barrier = channel_barrier.clone();
        matches!(request, ChannelRequest::Answer(_)).then(|| {
            Box::pin(async move {
                channel_barrier.wait_for_release().await;
                Ok(())
            }) as ChannelFuture
        })
    });
    let desk = Arc::new(desk);
    let environment = TestEnvironment::in_memory();
    let builder = environment.host().channel(&desk).plugin(hold_tool_plugin(&turn));
    let host = builder
        .options(|options| {
            let admission = Some(AdmissionMode::Drop);
            options.intake_overrides.insert("desk".into(), IntakeOptions { admission, debounce: None });
        })
        .start()
        .await;
    host.submit_and_wait(&Event::message("desk", "1", "[[tool:hold]]")).await;
    turn.reached().await;
    let dropped: Vec<Event> = (0..100).map(|n| Event::message("desk", "1", n.to_string())).collect();
    for event in &dropped {
        host.submit_and_wait(event).await;
    }
    reading.release();
    for event in &dropped {
        assert_eq!(desk.wait_for_answer(&event.event_id).await.outcome, Outcome::Dropped);
    }
    turn.release();
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn t11_a_provider_failure_reaches_a_chat_as_a_code_and_a_sentence() {
    const PROVIDER_TEXT: &str = "bad thing at /srv/llm/app.py for org-123";
    let reply = ScriptedReply::status(400, json!({"error": {"message": PROVIDER_TEXT}}).to_string());
    let model = ScriptedModel::start(vec![reply]).await;
    let (phone, environment) = (Arc::new(TestChannel::with_waiting_callers("phone")), TestEnvironment::in_memory());
    let host = environment.host().channel(&phone).scripted_model(&model).start().await;
    let event = Event::message("phone", "1", "go");
    host.submit_and_wait(&event).await;
    phone.wait_for_answer(&event.event_id).await;
    let outcome = environment.outcome(&event).await;
    let visible = format!("{:?} {:?} {outcome:?}", phone.sent(), phone.shown());
    assert!(visible.contains("(model-rejected)"), "{visible}");
    for secret in ["127.0.0.1", "/srv/llm", "org-123"] {
        assert!(!visible.contains(secret), "{secret}: {visible}");
    }
    let recorded = serde_json::to_string(&host.entries().await).unwrap();
    assert!(recorded.contains(PROVIDER_TEXT), "the tape has the whole error: {recorded}");
    host.stop().await.unwrap();
}
