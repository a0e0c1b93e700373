//! What a process that died left, written into the store as it would have been: who takes it up, and who must not.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{Debounce, Intake};
use capstan::protocol::{
    Authority, Delivery, Event, EventKey, Outbound, Outcome, RunId, SessionId, TapeName, Timestamp, WorkspaceId,
};
use capstan::tape::{
    Batch, Draft, EntryRef, Fact, Judged, NewOutbound, NewTape, OutboxStatus, RunRecord, RunStatus, TapeAddress,
    tape_name,
};
use capstan::{Host, HostError};
use capstan_host::runs::grant;
use capstan_testing::Gate;
use serde_json::json;

use crate::house::{House, echoes_at, in_words, say};
use crate::phone::Phone;

const SESSION: &str = "s";
/// The name of a process that is not there.
const DEAD: &str = "host-dead";

fn echoes() -> Box<dyn Plugin> {
    let gate = Gate::new();
    gate.open();
    echoes_at(&gate)
}

pub fn phone() -> Arc<Phone> {
    Arc::new(Phone::new("phone"))
}

pub fn message(channel: &'static str, text: &str) -> Event {
    Event { session_id: Some(SESSION.into()), ..Event::message(channel, "1", text) }
}

/// A session of a house as a dead process knew it.
pub struct Left<'a> {
    house: &'a House,
    pub tape: TapeName,
    workspace: WorkspaceId,
}

impl<'a> Left<'a> {
    fn in_workspace(house: &'a House, workspace: &str) -> Self {
        let workspace = WorkspaceId::new(workspace);
        let tape = tape_name(&TapeAddress { workspace: workspace.clone(), session: SESSION.into() });
        Self { house, tape, workspace }
    }

    pub fn of(house: &'a House) -> Self {
        Self::in_workspace(house, house.workspace().to_str().unwrap())
    }

    pub async fn commit(&self, facts: Vec<Fact>) {
        self.house.store().commit(Batch { facts, ..Batch::new() }).await.unwrap();
    }

    /// An event that was accepted at a second, with this on its entry beside it.
    pub async fn accepted(&self, event: &Event, second: i64, told: serde_json::Value) {
        let mut data = json!({ "event": event });
        data.as_object_mut().unwrap().extend(told.as_object().unwrap().clone());
        let at = Timestamp::from_millis(second * 1000);
        let entry = Draft { date: Some(at.into()), ..Draft::event("event.accepted", data).hidden() };
        self.commit(vec![
            Fact::EnsureTape(NewTape {
                session: Some(SESSION.into()),
                workspace: Some(self.workspace.clone()),
                ..NewTape::named(self.tape.clone())
            }),
            Fact::Append { tape: self.tape.clone(), entry },
            Fact::Accept {
                key: EventKey::from(event),
                session: SessionId::new(SESSION),
                tape: self.tape.clone(),
                entry: EntryRef::InBatch(1),
                at,
                owner: DEAD.to_owned(),
            },
        ])
        .await;
    }

    /// A run that had begun for an event.
    pub async fn run(&self, event: &Event, bypasses_host: bool) -> RunId {
        let run_id = RunId::generate();
        let scope = grant::Scope::from(event);
        self.commit(vec![Fact::OpenRun(Box::new(RunRecord {
            run_id: run_id.clone(),
            session: SESSION.into(),
            tape: self.tape.clone(),
            begins_after: Default::default(),
            parent: None,
            event: EventKey::from(event),
            others: Vec::new(),
            binding: "default".into(),
            runner: "builtin:agent".into(),
            grant: grant::compute(&Authority::all(), &capstan_host::default_binding(), scope),
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
    pub async fn unsent(&self, event: &Event, text: &str) {
        self.commit(vec![
            Fact::Settle { key: EventKey::from(event), outcome: Outcome::Silent, run_id: None },
            Fact::Enqueue(NewOutbound {
                message: Outbound { content: text.into(), ..Outbound::notice(event, SESSION.into(), "") },
                event: EventKey::from(event),
                at: Timestamp::from_millis(0),
                owner: DEAD.to_owned(),
            }),
        ])
        .await;
    }
}

pub async fn until_settled(house: &House, event: &Event) -> Outcome {
    loop {
        if let Some(outcome) = house.outcome(event).await {
            return outcome;
        }
        tokio::task::yield_now().await;
    }
}

pub async fn listens(house: &House, channel: &Arc<Phone>, name: &str) -> Host {
    let host = house.host().channel(channel).plugin(echoes()).start().await;
    host.listen(&[name.into()]).await;
    host
}

#[tokio::test]
async fn c03_what_was_overheard_is_judged_after_a_crash_as_when_it_was_accepted() {
    let window = Some(Duration::from_mins(1));
    let debounce = Debounce { quiet: Duration::from_secs(1), max_wait: Duration::from_secs(2), active_window: window };
    let intake = Intake { admission: None, debounce: Some(debounce) };
    let house = House::in_memory();
    let left = Left::of(&house);
    let muttered = |text| {
        let mut event = message("phone", text);
        event.metadata.insert(Event::ADDRESSED.to_owned(), false.into());
        event
    };
    let [early, more, late] = ["nice weather", "the blue one", "bye"].map(muttered);
    let asked = message("phone", "bot, what is this?");
    for (event, second) in [(&early, 1000), (&asked, 1010), (&more, 1060), (&late, 1080)] {
        left.accepted(event, second, json!({})).await;
    }
    let host = listens(&house, &Arc::new(Phone::new("phone").taking_in(intake)), "phone").await;
    let mut became = Vec::new();
    for event in [&early, &asked, &more, &late] {
        became.push(in_words(&until_settled(&house, event).await));
    }
    assert_eq!(became, ["dropped", "replied: re: bot, what is this?", "replied: re: the blue one", "dropped"]);
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn x02_the_run_of_an_event_that_is_not_judged_here_is_left_to_whoever_judges_it() {
    let house = House::in_memory();
    let left = Left::of(&house);
    let [called, heard] = [message("phone", "one"), message("radio", "two")];
    for event in [&called, &heard] {
        left.accepted(event, 0, json!({})).await;
    }
    let (on_phone, on_radio) = (left.run(&called, false).await, left.run(&heard, true).await);
    let status = async |run: &RunId| house.store().run(run).await.unwrap().unwrap().status;
    let host = listens(&house, &phone(), "phone").await;
    assert_eq!(in_words(&until_settled(&house, &called).await), "replied: re: one");
    assert_eq!(status(&on_phone).await, RunStatus::Interrupted);
    assert_eq!(status(&on_radio).await, RunStatus::Running, "nobody here can answer on the radio");
    assert_eq!(house.outcome(&heard).await, None);
    host.stop().await.unwrap();
    let host = listens(&house, &Arc::new(Phone::new("radio")), "radio").await;
    let outcome = in_words(&until_settled(&house, &heard).await);
    assert!(outcome.contains("cannot tell what was done"), "what its run did is still known: {outcome}");
    assert_eq!(status(&on_radio).await, RunStatus::Interrupted);
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn t02_an_event_that_must_not_have_a_turn_has_none_after_a_crash_either() {
    let (house, left_now, left_long_ago) =
        (House::in_memory(), message("phone", "private"), message("phone", "private too"));
    Left::of(&house).accepted(&left_now, 0, json!({ "without_turn": "no conversation is known" })).await;
    // As it was written before the reason was.
    Left::of(&house).accepted(&left_long_ago, 0, json!({ "without_turn": true })).await;
    let host = listens(&house, &phone(), "phone").await;
    let outcome = in_words(&until_settled(&house, &left_now).await);
    assert!(outcome.contains("no conversation is known"), "{outcome}");
    let outcome = in_words(&until_settled(&house, &left_long_ago).await);
    assert!(outcome.contains("a hook failed before the turn"), "{outcome}");
    assert_eq!(house.store().runs(10).await.unwrap(), [], "nothing ran");
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn x02_only_what_a_process_may_have_died_of_counts_towards_giving_up() {
    let gate = Gate::new();
    let house = House::in_memory();
    let left = Left::of(&house);
    let [first, second, third] = ["one", "two", "three"].map(|text| message("phone", text));
    for event in [&first, &second, &third] {
        left.accepted(event, 0, json!({})).await;
    }
    left.run(&third, false).await;
    let host = house.host().channel(&phone()).plugin(echoes_at(&gate)).start().await;
    host.listen(&["phone".into()]).await;
    gate.reached().await;
    let in_flight = house.store().in_flight(None).await.unwrap();
    let adoptions: Vec<u32> = in_flight.iter().map(|event| event.adoptions).collect();
    assert_eq!(adoptions, [1, 0, 1], "the first in line, and the one that had a run; the second only waited");
    gate.open();
    until_settled(&house, &third).await;
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn x02_what_was_left_in_another_workspace_is_not_taken_up() {
    let house = House::in_memory();
    let elsewhere = Left::in_workspace(&house, "/elsewhere");
    let [event, answered] = ["one", "two"].map(|text| message("phone", text));
    elsewhere.accepted(&event, 0, json!({})).await;
    elsewhere.accepted(&answered, 0, json!({})).await;
    elsewhere.unsent(&answered, "theirs").await;
    let ours = message("phone", "three");
    let left = Left::of(&house);
    left.accepted(&ours, 0, json!({})).await;
    left.unsent(&ours, "ours").await;

    let channel = phone();
    let host = listens(&house, &channel, "phone").await;
    let refused = host.serve(event.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "event-id-taken", "sent again, it does not come to this workspace either");
    channel.until_sent(1).await;
    assert_eq!(channel.sent(), ["1: ours"]);
    assert_eq!(house.outcome(&event).await, None);
    let in_flight = house.store().in_flight(None).await.unwrap();
    assert_eq!(in_flight[0].owner.as_deref(), Some(DEAD));
    let theirs = house.store().outbox(&EventKey::from(&answered)).await.unwrap();
    assert_eq!(theirs[0].owner.as_deref(), Some(DEAD), "another account may send on a channel of that name");
    assert_eq!(theirs[0].status, OutboxStatus::waiting());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn x02_what_was_left_of_a_source_that_is_no_channel_is_anybodys() {
    let house = House::in_memory();
    let left = Left::of(&house);
    let to_desk = |event: Event| Event {
        delivery: Delivery { output_channel: Some("desk".into()), ..event.delivery.clone() },
        ..event
    };
    let [fed, theirs] = [to_desk(message("telegram", "one")), to_desk(message("phone", "two"))];
    left.accepted(&fed, 0, json!({})).await;
    left.accepted(&theirs, 0, json!({})).await;

    let desk = Arc::new(Phone::desk("desk"));
    let host = house.host().channel(&desk).channel(&phone()).plugin(echoes()).start().await;
    host.listen(&["desk".into()]).await;
    assert_eq!(in_words(&until_settled(&house, &fed).await), "replied: re: one");
    host.idle().await;
    assert_eq!(house.outcome(&theirs).await, None, "a channel that listens elsewhere answers for itself");
    host.stop().await.unwrap();
    let rows = house.store().outbox(&EventKey::from(&fed)).await.unwrap();
    assert!(matches!(rows[0].status, OutboxStatus::Undelivered { .. }), "it is for nobody who waits now: {rows:?}");
    assert_eq!(desk.sent(), Vec::<String>::new());
}

#[tokio::test]
async fn x03_an_event_of_a_source_that_is_no_channel_sent_again_after_a_crash_has_its_outcome() {
    let house = House::in_memory();
    let mut fed = message("telegram", "one");
    fed.delivery.output_channel = Some("desk".into());
    Left::of(&house).accepted(&fed, 0, json!({})).await;
    let host = house.host().channel(&Arc::new(Phone::desk("desk"))).plugin(echoes()).start().await;
    let served = host.serve(fed).await.unwrap();
    assert!(served.duplicate);
    assert_eq!(served.output, "re: one");
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn x01_a_turn_whose_end_can_never_be_written_fails_with_its_run() {
    let gate = Gate::new();
    let house = House::in_memory();
    let host = house.host().channel(&phone()).plugin(echoes_at(&gate)).start().await;
    let event = message("phone", "one");
    let turn = say(&host, event.clone());
    gate.reached().await;
    // Another process took the session over: this one may write nothing more on its tape.
    let left = Left::of(&house);
    let lease = house.store().lease(&left.tape).await.unwrap().unwrap();
    let judged = lease.owner.map(|owner| Judged { owner, alive: false });
    let (now, until) = (Timestamp::from_millis(0), lease.until);
    left.commit(vec![Fact::TakeLease { tape: left.tape.clone(), owner: "other/1".into(), now, until, judged }]).await;
    gate.open();
    let served = turn.await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })), "{served:?}");
    assert_eq!(served.error.unwrap().code(), "session-busy");
    assert!(matches!(house.outcome(&event).await, Some(Outcome::Failed { .. })));
    let runs = house.store().runs(10).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Failed]);
    host.stop().await.unwrap();
    house.assert_tidy().await;
}

#[tokio::test]
async fn x01_what_was_left_waits_in_the_queue_of_its_session_like_anything_new() {
    let gate = Gate::new();
    let house = House::in_memory();
    let left = Left::of(&house);
    // One has its turn, and as many wait as may.
    let waiting = ["one", "two", "three"].map(|text| message("desk", text));
    for event in &waiting {
        left.accepted(event, 0, json!({})).await;
    }
    let desk = Arc::new(Phone::desk("desk"));
    let building = house.host().channel(&desk).plugin(echoes_at(&gate));
    let host = building.set(|settings| settings.session_queue = 2).start().await;
    host.listen(&["desk".into()]).await;
    gate.reached().await;
    let one_more = message("desk", "four");
    assert_eq!(host.serve(one_more.clone()).await.unwrap_err(), HostError::QueueFull);
    gate.open();
    for event in &waiting {
        until_settled(&house, event).await;
    }
    host.serve(one_more).await.expect("those that had their turn gave their places back");
    host.stop().await.unwrap();
    house.assert_tidy().await;
}
