//! Recovery of orphaned events, runs and messages, written into the store as a dead process would have left them.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{DebounceOptions, IntakeOptions};
use capstan_host::HostError;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_policy::{EventScope, compute_grant, default_binding};
use capstan_protocol::{
    AllowList, DeliveryTarget, Event, EventKey, EventOrigin, OutboundMessage, Outcome, PermissionSet, RunId, SessionId,
    TapeName, Timestamp, WorkspaceId,
};
use capstan_tape::{
    Batch, EntryDraft, EntryRef, Fact, NewOutboxMessage, NewTape, OutboxStatus, OwnerLiveness, RunRecord, RunStatus,
    TapeAddress, tape_name,
};
use capstan_testing::ReplyBarrier;
use serde_json::json;

use crate::sessions::support::{blocking_echo_plugin, format_outcome};
use crate::sessions::test_channel::TestChannel;

const ORPHAN_SESSION: &str = "s";
/// Owner name of a dead process.
const DEAD_OWNER: &str = "host-dead";

fn echo_plugin() -> ClosurePlugin {
    let barrier = ReplyBarrier::new();
    barrier.release();
    blocking_echo_plugin(&barrier)
}

pub fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

pub fn session_message(channel: &'static str, text: &str) -> Event {
    Event { session_id: Some(ORPHAN_SESSION.into()), ..Event::message(channel, "1", text) }
}

/// Session of a dead process.
pub struct OrphanedSession<'a> {
    environment: &'a TestEnvironment,
    pub tape: TapeName,
    workspace: WorkspaceId,
}

impl<'a> OrphanedSession<'a> {
    fn in_workspace(environment: &'a TestEnvironment, workspace: &str) -> Self {
        let workspace = WorkspaceId::new(workspace);
        let tape = tape_name(&TapeAddress { workspace: workspace.clone(), session: ORPHAN_SESSION.into() });
        Self { environment, tape, workspace }
    }

    pub fn new(environment: &'a TestEnvironment) -> Self {
        Self::in_workspace(environment, environment.workspace().to_str().unwrap())
    }

    pub async fn commit(&self, facts: Vec<Fact>) {
        self.environment.store().commit(Batch { facts, ..Batch::new() }).await.unwrap();
    }

    /// Writes an event accepted at `second`, with additional `fields` in its entry.
    pub async fn accept_event(&self, event: &Event, second: i64, fields: serde_json::Value) {
        let mut data = json!({ "event": event });
        data.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let at = Timestamp::from_millis(second * 1000);
        let entry = EntryDraft { date: Some(at.into()), ..EntryDraft::event("event.accepted", data).hidden() };
        self.commit(vec![
            Fact::EnsureTape(NewTape {
                session: Some(ORPHAN_SESSION.into()),
                workspace: Some(self.workspace.clone()),
                ..NewTape::without_session(self.tape.clone())
            }),
            Fact::AppendEntry { tape: self.tape.clone(), entry },
            Fact::AcceptEvent {
                key: EventKey::from(event),
                session: SessionId::new(ORPHAN_SESSION),
                tape: self.tape.clone(),
                entry: EntryRef::InBatch(1),
                accepted_at: at,
                owner: DEAD_OWNER.to_owned(),
            },
        ])
        .await;
    }

    /// Writes an open run of an event.
    pub async fn open_run(&self, event: &Event, bypasses_host: bool) -> RunId {
        let run_id = RunId::generate();
        let scope = EventScope::new(event, EventOrigin::Remote);
        self.commit(vec![Fact::OpenRun(Box::new(RunRecord {
            run_id: run_id.clone(),
            session: ORPHAN_SESSION.into(),
            tape: self.tape.clone(),
            begins_after: Default::default(),
            parent: None,
            event: EventKey::from(event),
            others: Vec::new(),
            binding: "default".into(),
            runner: "builtin:agent".into(),
            grant: compute_grant(&PermissionSet::all(), &default_binding(), scope, &AllowList::All),
            status: RunStatus::Running,
            started_at: Timestamp::from_millis(0),
            deadline: None,
            ended_at: None,
            usage: None,
            bypasses_host,
            cancel_requested: false,
        }))])
        .await;
        run_id
    }

    /// Settles an event and writes an unsent message for it.
    pub async fn enqueue_unsent(&self, event: &Event, text: &str) {
        self.enqueue_staged(event, text, Timestamp::now()).await;
    }

    /// Settles an event and writes an unsent message for it, staged at this time.
    pub async fn enqueue_staged(&self, event: &Event, text: &str, staged_at: Timestamp) {
        self.commit(vec![
            Fact::SettleEvent { key: EventKey::from(event), outcome: Outcome::Silent, run_id: None },
            Fact::EnqueueOutbound(NewOutboxMessage {
                message: OutboundMessage {
                    content: text.into(),
                    ..OutboundMessage::notice(event, ORPHAN_SESSION.into(), "")
                },
                event: EventKey::from(event),
                staged_at,
                owner: DEAD_OWNER.to_owned(),
            }),
        ])
        .await;
    }
}

pub async fn start_listening_host(environment: &TestEnvironment, channel: &Arc<TestChannel>, name: &str) -> TestHost {
    let host = environment.host().channel(channel).plugin(echo_plugin()).start().await;
    host.listen(&[name.into()]).await;
    host
}

#[tokio::test]
async fn c03_unaddressed_messages_are_admitted_after_a_crash_by_their_acceptance_time() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    let unaddressed = |text| {
        let mut event = session_message("phone", text);
        event.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
        event
    };
    let [early, more, late] = ["nice weather", "the blue one", "bye"].map(unaddressed);
    let question = session_message("phone", "bot, what is this?");
    for (event, second) in [(&early, 1000), (&question, 1010), (&more, 1060), (&late, 1080)] {
        orphaned.accept_event(event, second, json!({})).await;
    }
    let host =
        start_listening_host(&environment, &Arc::new(TestChannel::new("phone").with_intake(intake)), "phone").await;
    let mut outcomes = Vec::new();
    for event in [&early, &question, &more, &late] {
        outcomes.push(format_outcome(&environment.wait_until_settled(event).await));
    }
    assert_eq!(outcomes, ["dropped", "replied: re: bot, what is this?", "replied: re: the blue one", "dropped"]);
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x02_the_run_of_an_event_for_an_absent_channel_is_left_to_another_host() {
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    let [phone_event, radio_event] = [session_message("phone", "one"), session_message("radio", "two")];
    for event in [&phone_event, &radio_event] {
        orphaned.accept_event(event, 0, json!({})).await;
    }
    let (phone_run, radio_run) =
        (orphaned.open_run(&phone_event, false).await, orphaned.open_run(&radio_event, true).await);
    let status = async |run: &RunId| environment.store().run(run).await.unwrap().unwrap().status;
    let host = start_listening_host(&environment, &phone_channel(), "phone").await;
    assert_eq!(format_outcome(&environment.wait_until_settled(&phone_event).await), "replied: re: one");
    assert_eq!(status(&phone_run).await, RunStatus::Interrupted);
    assert_eq!(status(&radio_run).await, RunStatus::Running, "this host has no channel radio");
    assert_eq!(environment.outcome(&radio_event).await, None);
    host.stop().await.unwrap();
    let host = start_listening_host(&environment, &Arc::new(TestChannel::new("radio")), "radio").await;
    let outcome = format_outcome(&environment.wait_until_settled(&radio_event).await);
    assert!(outcome.contains("cannot tell what was done"), "the effects of its run are still known: {outcome}");
    assert_eq!(status(&radio_run).await, RunStatus::Interrupted);
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn t02_an_event_refused_a_turn_gets_none_after_a_crash() {
    let (environment, with_reason, without_reason) =
        (TestEnvironment::in_memory(), session_message("phone", "private"), session_message("phone", "private too"));
    OrphanedSession::new(&environment)
        .accept_event(&with_reason, 0, json!({ "without_turn": "no conversation is known" }))
        .await;
    // Format of earlier versions, without the reason.
    OrphanedSession::new(&environment).accept_event(&without_reason, 0, json!({ "without_turn": true })).await;
    let host = start_listening_host(&environment, &phone_channel(), "phone").await;
    let outcome = format_outcome(&environment.wait_until_settled(&with_reason).await);
    assert!(outcome.contains("no conversation is known"), "{outcome}");
    let outcome = format_outcome(&environment.wait_until_settled(&without_reason).await);
    assert!(outcome.contains("a hook failed before the turn"), "{outcome}");
    assert_eq!(environment.store().run_page(None, 10).await.unwrap(), [], "no run was started");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x02_only_events_that_may_have_caused_the_crash_count_as_adopted() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    let [first, second, third] = ["one", "two", "three"].map(|text| session_message("phone", text));
    for event in [&first, &second, &third] {
        orphaned.accept_event(event, 0, json!({})).await;
    }
    orphaned.open_run(&third, false).await;
    let host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    host.listen(&["phone".into()]).await;
    barrier.reached().await;
    let in_flight = environment.store().in_flight_events(None).collect().await.unwrap();
    let adoptions: Vec<u32> = in_flight.iter().map(|event| event.adoptions).collect();
    assert_eq!(adoptions, [1, 0, 1], "the first in the queue and the one with a run; the second was only queued");
    barrier.release();
    environment.wait_until_settled(&third).await;
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x02_orphaned_events_of_another_workspace_are_not_recovered() {
    let environment = TestEnvironment::in_memory();
    let elsewhere = OrphanedSession::in_workspace(&environment, "/elsewhere");
    let [event, answered] = ["one", "two"].map(|text| session_message("phone", text));
    elsewhere.accept_event(&event, 0, json!({})).await;
    elsewhere.accept_event(&answered, 0, json!({})).await;
    elsewhere.enqueue_unsent(&answered, "foreign").await;
    let ours = session_message("phone", "three");
    let orphaned = OrphanedSession::new(&environment);
    orphaned.accept_event(&ours, 0, json!({})).await;
    orphaned.enqueue_unsent(&ours, "ours").await;

    let channel = phone_channel();
    let host = start_listening_host(&environment, &channel, "phone").await;
    let refused = host.serve(event.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "event-id-taken", "a repeated event does not move to this workspace");
    channel.wait_until_sent(1).await;
    assert_eq!(channel.sent(), ["1: ours"]);
    assert_eq!(environment.outcome(&event).await, None);
    let in_flight = environment.store().in_flight_events(None).collect().await.unwrap();
    assert_eq!(in_flight[0].owner.as_deref(), Some(DEAD_OWNER));
    let foreign = environment.store().outbox_records(&EventKey::from(&answered)).collect().await.unwrap();
    assert_eq!(foreign[0].owner.as_deref(), Some(DEAD_OWNER), "a channel of that name may belong to another account");
    assert_eq!(foreign[0].status, OutboxStatus::waiting());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x02_orphaned_events_of_a_source_without_a_channel_are_recovered_by_any_host() {
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    let to_desk = |event: Event| Event {
        delivery: DeliveryTarget { output_channel: Some("desk".into()), ..event.delivery.clone() },
        ..event
    };
    let [external, foreign] = [to_desk(session_message("telegram", "one")), to_desk(session_message("phone", "two"))];
    orphaned.accept_event(&external, 0, json!({})).await;
    orphaned.accept_event(&foreign, 0, json!({})).await;

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = environment.host().channel(&desk).channel(&phone_channel()).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    assert_eq!(format_outcome(&environment.wait_until_settled(&external).await), "replied: re: one");
    host.wait_until_idle().await;
    assert_eq!(
        environment.outcome(&foreign).await,
        None,
        "events of a channel are recovered by the host that listens on it"
    );
    host.stop().await.unwrap();
    let rows = environment.store().outbox_records(&EventKey::from(&external)).collect().await.unwrap();
    assert!(matches!(rows[0].status, OutboxStatus::Undelivered { .. }), "its caller no longer waits: {rows:?}");
    assert_eq!(desk.sent(), Vec::<String>::new());
}

#[tokio::test]
async fn x03_a_repeated_event_of_a_source_without_a_channel_gets_its_outcome() {
    let environment = TestEnvironment::in_memory();
    let mut external = session_message("telegram", "one");
    external.delivery.output_channel = Some("desk".into());
    OrphanedSession::new(&environment).accept_event(&external, 0, json!({})).await;
    let host = environment
        .host()
        .channel(&Arc::new(TestChannel::with_waiting_callers("desk")))
        .plugin(echo_plugin())
        .start()
        .await;
    let served = host.serve(external).await.unwrap();
    assert!(served.is_duplicate);
    assert_eq!(served.output, "re: one");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x01_a_turn_that_lost_its_lease_is_recovered_and_its_caller_gets_that_outcome() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone_channel()).plugin(blocking_echo_plugin(&barrier)).start().await;
    let event = session_message("phone", "one");
    let turn = host.serve_in_background(event.clone());
    barrier.reached().await;
    // Another process takes over the session, so that this host can no longer write to its tape.
    let orphaned = OrphanedSession::new(&environment);
    let lease = environment.store().lease(&orphaned.tape).await.unwrap().unwrap();
    let owner_liveness = lease.owner.map(|owner| OwnerLiveness { owner, is_alive: false });
    let (now, expires_at) = (Timestamp::from_millis(0), lease.expires_at);
    orphaned
        .commit(vec![Fact::TakeLease {
            tape: orphaned.tape.clone(),
            owner: "other/1".into(),
            now,
            expires_at,
            owner_liveness,
        }])
        .await;
    barrier.release();
    let served = turn.await.unwrap();
    // The effects of a `run_model` hook are not known, so the turn is not repeated.
    let notice = served.outcome.as_ref().map(format_outcome).unwrap_or_default();
    assert!(notice.starts_with("failed: ") && notice.contains("I was interrupted"), "{served:?}");
    assert_eq!(served.error.unwrap().code(), "run-failed");
    assert_eq!(environment.outcome(&event).await, served.outcome, "the recorded outcome");
    let runs = environment.store().run_page(None, 10).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Interrupted]);
    host.stop().await.unwrap();
    environment.assert_settled().await;
}

#[tokio::test]
async fn x01_recovered_events_take_queue_slots_of_their_session() {
    let barrier = ReplyBarrier::new();
    let environment = TestEnvironment::in_memory();
    let orphaned = OrphanedSession::new(&environment);
    // One has its turn, the others fill the queue.
    let events = ["one", "two", "three"].map(|text| session_message("desk", text));
    for event in &events {
        orphaned.accept_event(event, 0, json!({})).await;
    }
    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let builder = environment.host().channel(&desk).plugin(blocking_echo_plugin(&barrier));
    let host = builder.options(|options| options.max_queued_events = 2).start().await;
    host.listen(&["desk".into()]).await;
    barrier.reached().await;
    let one_more = session_message("desk", "four");
    assert_eq!(host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    barrier.release();
    for event in &events {
        environment.wait_until_settled(event).await;
    }
    host.serve(one_more).await.expect("settled events release their queue slots");
    host.stop().await.unwrap();
    environment.assert_settled().await;
}
