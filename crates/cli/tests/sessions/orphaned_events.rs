//! What a process that died left, written into the store as it would have been: who takes it up, and who must not.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{DebounceOptions, IntakeOptions};
use capstan::protocol::{
    DeliveryTarget, Event, EventKey, OutboundMessage, Outcome, PermissionSet, RunId, SessionId, TapeName, Timestamp,
    WorkspaceId,
};
use capstan::tape::{
    Batch, EntryDraft, EntryRef, Fact, NewOutbound, NewTape, OutboxStatus, OwnerLiveness, RunRecord, RunStatus,
    TapeAddress, tape_name,
};
use capstan::{Host, HostError};
use capstan_policy::{EventScope, compute_grant, default_binding};
use capstan_testing::ReplyBarrier;
use serde_json::json;

use crate::host_fixture::{HostFixture, format_outcome, gated_echo_plugin, serve_in_background};
use crate::test_channel::TestChannel;

const ORPHAN_SESSION: &str = "s";
/// The name of a process that is not there.
const DEAD_OWNER: &str = "host-dead";

fn echo_plugin() -> Box<dyn Plugin> {
    let barrier = ReplyBarrier::new();
    barrier.release();
    gated_echo_plugin(&barrier)
}

pub fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

pub fn session_message(channel: &'static str, text: &str) -> Event {
    Event { session_id: Some(ORPHAN_SESSION.into()), ..Event::message(channel, "1", text) }
}

/// A session of a house as a dead process knew it.
pub struct OrphanedSession<'a> {
    fixture: &'a HostFixture,
    pub tape: TapeName,
    workspace: WorkspaceId,
}

impl<'a> OrphanedSession<'a> {
    fn in_workspace(fixture: &'a HostFixture, workspace: &str) -> Self {
        let workspace = WorkspaceId::new(workspace);
        let tape = tape_name(&TapeAddress { workspace: workspace.clone(), session: ORPHAN_SESSION.into() });
        Self { fixture: fixture, tape, workspace }
    }

    pub fn new(fixture: &'a HostFixture) -> Self {
        Self::in_workspace(fixture, fixture.workspace().to_str().unwrap())
    }

    pub async fn commit(&self, facts: Vec<Fact>) {
        self.fixture.store().commit(Batch { facts, ..Batch::new() }).await.unwrap();
    }

    /// An event that was accepted at a second, with this on its entry beside it.
    pub async fn accept_event(&self, event: &Event, second: i64, told: serde_json::Value) {
        let mut data = json!({ "event": event });
        data.as_object_mut().unwrap().extend(told.as_object().unwrap().clone());
        let at = Timestamp::from_millis(second * 1000);
        let entry = EntryDraft { date: Some(at.into()), ..EntryDraft::event("event.accepted", data).hidden() };
        self.commit(vec![
            Fact::EnsureTape(NewTape {
                session: Some(ORPHAN_SESSION.into()),
                workspace: Some(self.workspace.clone()),
                ..NewTape::with_name(self.tape.clone())
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

    /// A run that had begun for an event.
    pub async fn open_run(&self, event: &Event, bypasses_host: bool) -> RunId {
        let run_id = RunId::generate();
        let scope = EventScope::from(event);
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
            grant: compute_grant(&PermissionSet::all(), &default_binding(), scope),
            status: RunStatus::Running,
            started_at: Timestamp::from_millis(0),
            ended_at: None,
            usage: None,
            bypasses_host,
            cancel_requested: false,
        }))])
        .await;
        run_id
    }

    /// A message that answers an event and was not sent.
    pub async fn enqueue_unsent(&self, event: &Event, text: &str) {
        self.commit(vec![
            Fact::SettleEvent { key: EventKey::from(event), outcome: Outcome::Silent, run_id: None },
            Fact::EnqueueOutbound(NewOutbound {
                message: OutboundMessage {
                    content: text.into(),
                    ..OutboundMessage::notice(event, ORPHAN_SESSION.into(), "")
                },
                event: EventKey::from(event),
                staged_at: Timestamp::from_millis(0),
                owner: DEAD_OWNER.to_owned(),
            }),
        ])
        .await;
    }
}

pub async fn wait_until_settled(fixture: &HostFixture, event: &Event) -> Outcome {
    loop {
        if let Some(outcome) = fixture.outcome(event).await {
            return outcome;
        }
        tokio::task::yield_now().await;
    }
}

pub async fn start_listening_host(fixture: &HostFixture, channel: &Arc<TestChannel>, name: &str) -> Host {
    let host = fixture.host_builder().channel(channel).plugin(echo_plugin()).start().await;
    host.listen(&[name.into()]).await;
    host
}

#[tokio::test]
async fn c03_what_was_overheard_is_judged_after_a_crash_as_when_it_was_accepted() {
    let window = Some(Duration::from_mins(1));
    let debounce = DebounceOptions {
        quiet_period: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        active_window: window,
    };
    let intake = IntakeOptions { admission: None, debounce: Some(debounce) };
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    let muttered = |text| {
        let mut event = session_message("phone", text);
        event.metadata.insert(Event::ADDRESSED_KEY.to_owned(), false.into());
        event
    };
    let [early, more, late] = ["nice weather", "the blue one", "bye"].map(muttered);
    let asked = session_message("phone", "bot, what is this?");
    for (event, second) in [(&early, 1000), (&asked, 1010), (&more, 1060), (&late, 1080)] {
        left.accept_event(event, second, json!({})).await;
    }
    let host = start_listening_host(&fixture, &Arc::new(TestChannel::new("phone").with_intake(intake)), "phone").await;
    let mut became = Vec::new();
    for event in [&early, &asked, &more, &late] {
        became.push(format_outcome(&wait_until_settled(&fixture, event).await));
    }
    assert_eq!(became, ["dropped", "replied: re: bot, what is this?", "replied: re: the blue one", "dropped"]);
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x02_the_run_of_an_event_that_is_not_judged_here_is_left_to_whoever_judges_it() {
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    let [called, heard] = [session_message("phone", "one"), session_message("radio", "two")];
    for event in [&called, &heard] {
        left.accept_event(event, 0, json!({})).await;
    }
    let (on_phone, on_radio) = (left.open_run(&called, false).await, left.open_run(&heard, true).await);
    let status = async |run: &RunId| fixture.store().run(run).await.unwrap().unwrap().status;
    let host = start_listening_host(&fixture, &phone_channel(), "phone").await;
    assert_eq!(format_outcome(&wait_until_settled(&fixture, &called).await), "replied: re: one");
    assert_eq!(status(&on_phone).await, RunStatus::Interrupted);
    assert_eq!(status(&on_radio).await, RunStatus::Running, "nobody here can answer on the radio");
    assert_eq!(fixture.outcome(&heard).await, None);
    host.stop().await.unwrap();
    let host = start_listening_host(&fixture, &Arc::new(TestChannel::new("radio")), "radio").await;
    let outcome = format_outcome(&wait_until_settled(&fixture, &heard).await);
    assert!(outcome.contains("cannot tell what was done"), "what its run did is still known: {outcome}");
    assert_eq!(status(&on_radio).await, RunStatus::Interrupted);
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn t02_an_event_that_must_not_have_a_turn_has_none_after_a_crash_either() {
    let (fixture, left_now, left_long_ago) =
        (HostFixture::in_memory(), session_message("phone", "private"), session_message("phone", "private too"));
    OrphanedSession::new(&fixture)
        .accept_event(&left_now, 0, json!({ "without_turn": "no conversation is known" }))
        .await;
    // As it was written before the reason was.
    OrphanedSession::new(&fixture).accept_event(&left_long_ago, 0, json!({ "without_turn": true })).await;
    let host = start_listening_host(&fixture, &phone_channel(), "phone").await;
    let outcome = format_outcome(&wait_until_settled(&fixture, &left_now).await);
    assert!(outcome.contains("no conversation is known"), "{outcome}");
    let outcome = format_outcome(&wait_until_settled(&fixture, &left_long_ago).await);
    assert!(outcome.contains("a hook failed before the turn"), "{outcome}");
    assert_eq!(fixture.store().run_page(None, 10).await.unwrap(), [], "nothing ran");
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x02_only_what_a_process_may_have_died_of_counts_towards_giving_up() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    let [first, second, third] = ["one", "two", "three"].map(|text| session_message("phone", text));
    for event in [&first, &second, &third] {
        left.accept_event(event, 0, json!({})).await;
    }
    left.open_run(&third, false).await;
    let host = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    host.listen(&["phone".into()]).await;
    barrier.reached().await;
    let in_flight = fixture.store().in_flight_events(None).collect().await.unwrap();
    let adoptions: Vec<u32> = in_flight.iter().map(|event| event.adoptions).collect();
    assert_eq!(adoptions, [1, 0, 1], "the first in line, and the one that had a run; the second only waited");
    barrier.release();
    wait_until_settled(&fixture, &third).await;
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x02_what_was_left_in_another_workspace_is_not_taken_up() {
    let fixture = HostFixture::in_memory();
    let elsewhere = OrphanedSession::in_workspace(&fixture, "/elsewhere");
    let [event, answered] = ["one", "two"].map(|text| session_message("phone", text));
    elsewhere.accept_event(&event, 0, json!({})).await;
    elsewhere.accept_event(&answered, 0, json!({})).await;
    elsewhere.enqueue_unsent(&answered, "theirs").await;
    let ours = session_message("phone", "three");
    let left = OrphanedSession::new(&fixture);
    left.accept_event(&ours, 0, json!({})).await;
    left.enqueue_unsent(&ours, "ours").await;

    let channel = phone_channel();
    let host = start_listening_host(&fixture, &channel, "phone").await;
    let refused = host.serve(event.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "event-id-taken", "sent again, it does not come to this workspace either");
    channel.wait_until_sent(1).await;
    assert_eq!(channel.sent(), ["1: ours"]);
    assert_eq!(fixture.outcome(&event).await, None);
    let in_flight = fixture.store().in_flight_events(None).collect().await.unwrap();
    assert_eq!(in_flight[0].owner.as_deref(), Some(DEAD_OWNER));
    let theirs = fixture.store().outbox_records(&EventKey::from(&answered)).collect().await.unwrap();
    assert_eq!(theirs[0].owner.as_deref(), Some(DEAD_OWNER), "another account may send on a channel of that name");
    assert_eq!(theirs[0].status, OutboxStatus::waiting());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x02_what_was_left_of_a_source_that_is_no_channel_is_anybodys() {
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    let to_desk = |event: Event| Event {
        delivery: DeliveryTarget { output_channel: Some("desk".into()), ..event.delivery.clone() },
        ..event
    };
    let [fed, theirs] = [to_desk(session_message("telegram", "one")), to_desk(session_message("phone", "two"))];
    left.accept_event(&fed, 0, json!({})).await;
    left.accept_event(&theirs, 0, json!({})).await;

    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let host = fixture.host_builder().channel(&desk).channel(&phone_channel()).plugin(echo_plugin()).start().await;
    host.listen(&["desk".into()]).await;
    assert_eq!(format_outcome(&wait_until_settled(&fixture, &fed).await), "replied: re: one");
    host.wait_until_idle().await;
    assert_eq!(fixture.outcome(&theirs).await, None, "a channel that listens elsewhere answers for itself");
    host.stop().await.unwrap();
    let rows = fixture.store().outbox_records(&EventKey::from(&fed)).collect().await.unwrap();
    assert!(matches!(rows[0].status, OutboxStatus::Undelivered { .. }), "it is for nobody who waits now: {rows:?}");
    assert_eq!(desk.sent(), Vec::<String>::new());
}

#[tokio::test]
async fn x03_an_event_of_a_source_that_is_no_channel_sent_again_after_a_crash_has_its_outcome() {
    let fixture = HostFixture::in_memory();
    let mut fed = session_message("telegram", "one");
    fed.delivery.output_channel = Some("desk".into());
    OrphanedSession::new(&fixture).accept_event(&fed, 0, json!({})).await;
    let host = fixture
        .host_builder()
        .channel(&Arc::new(TestChannel::with_waiting_callers("desk")))
        .plugin(echo_plugin())
        .start()
        .await;
    let served = host.serve(fed).await.unwrap();
    assert!(served.is_duplicate);
    assert_eq!(served.output, "re: one");
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x01_a_turn_whose_end_can_never_be_written_fails_with_its_run() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::in_memory();
    let host = fixture.host_builder().channel(&phone_channel()).plugin(gated_echo_plugin(&barrier)).start().await;
    let event = session_message("phone", "one");
    let turn = serve_in_background(&host, event.clone());
    barrier.reached().await;
    // Another process took the session over: this one may write nothing more on its tape.
    let left = OrphanedSession::new(&fixture);
    let lease = fixture.store().lease(&left.tape).await.unwrap().unwrap();
    let judged = lease.owner.map(|owner| OwnerLiveness { owner, is_alive: false });
    let (now, until) = (Timestamp::from_millis(0), lease.expires_at);
    left.commit(vec![Fact::TakeLease {
        tape: left.tape.clone(),
        owner: "other/1".into(),
        now,
        expires_at: until,
        owner_liveness: judged,
    }])
    .await;
    barrier.release();
    let served = turn.await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })), "{served:?}");
    assert_eq!(served.error.unwrap().code(), "session-busy");
    assert!(matches!(fixture.outcome(&event).await, Some(Outcome::Failed { .. })));
    let runs = fixture.store().run_page(None, 10).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Failed]);
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}

#[tokio::test]
async fn x01_what_was_left_waits_in_the_queue_of_its_session_like_anything_new() {
    let barrier = ReplyBarrier::new();
    let fixture = HostFixture::in_memory();
    let left = OrphanedSession::new(&fixture);
    // One has its turn, and as many wait as may.
    let waiting = ["one", "two", "three"].map(|text| session_message("desk", text));
    for event in &waiting {
        left.accept_event(event, 0, json!({})).await;
    }
    let desk = Arc::new(TestChannel::with_waiting_callers("desk"));
    let building = fixture.host_builder().channel(&desk).plugin(gated_echo_plugin(&barrier));
    let host = building.configure(|settings| settings.max_queued_events = 2).start().await;
    host.listen(&["desk".into()]).await;
    barrier.reached().await;
    let one_more = session_message("desk", "four");
    assert_eq!(host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    barrier.release();
    for event in &waiting {
        wait_until_settled(&fixture, event).await;
    }
    host.serve(one_more).await.expect("those that had their turn gave their places back");
    host.stop().await.unwrap();
    fixture.assert_settled().await;
}
