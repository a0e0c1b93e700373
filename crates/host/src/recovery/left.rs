//! After a crash: what a dead process left is ended or taken up again, and nothing is done twice that may have been
//! done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_hooks::{CameAt, Inbound};
use capstan_protocol::{Binding, ChannelName, Event, Outcome, TapeName};
use capstan_tape::{
    Batch, Draft, Fact, Fence, InFlight, OutboxStatus, RunRecord, RunStatus, Slice, StoreError, TapeRecord,
};
use capstan_turn::{Arrival, ArrivalKind, RunFailure, TurnError};
use serde_json::Value;

use crate::actions;
use crate::delivery::outbox::{CALLER_GONE, Parcel, Row, may_send};
use crate::delivery::parcel::CallerGone;
use crate::engine::Engine;
use crate::queries::{OWN_BINDING, OwnBinding};
use crate::runs::child;
use crate::sessions::item::{Group, Item};
use crate::turns::ending::rows;
use crate::turns::notices::SaidBefore;

use super::cut_off::{end_runs, entries_of, open_calls};

/// How often an event is taken up again before it is given up: it may be what kills the host.
const ADOPTIONS: u32 = 3;
/// How often a running host looks for what other processes left.
const SWEEP: Duration = Duration::from_secs(30);
/// How often that is tried again when another process does the same.
const RACES: usize = 8;

/// The event that a run leaves on the tape before it makes a command, whose effect is not known until it has ended.
pub(crate) const COMMAND_START: &str = "command.start";
/// The event that tells of a command that was made.
pub(crate) const COMMAND: &str = "command";

/// In the entry that tells of an event: why it must not have a turn.
pub(crate) const WITHOUT_TURN: &str = "without_turn";

/// Marks such an event, and says why.
struct WithoutTurn(String);

/// What becomes of events that a dead process left.
enum Verdict {
    /// They have a turn again.
    TakenUp,
    /// They end, and the user is told this.
    GivenUp(String),
    /// They end like this, as they would have.
    Ended(Outcome),
}

/// Events that a dead process left, and worked on together.
struct Left {
    events: Vec<InFlight>,
    /// The run that was cut off.
    run: Option<RunRecord>,
}

/// Events that are to have a turn again, those of each turn together.
type TakenUp = Result<Vec<Vec<Item>>, StoreError>;

/// Ends the runs that a dead process left on a session, and gives the events that are to have a turn again: those of
/// one run together, in order.
///
/// The caller holds the session's lease, so none of those runs can be going on anywhere.
pub(crate) async fn take_up(engine: &Arc<Engine>, tape: &TapeName, fence: &Fence) -> TakenUp {
    let mut said = SaidBefore::default();
    for _ in 0..RACES {
        match try_take_up(engine, tape, fence, &mut said).await {
            // Another process was faster with one of them.
            Err(StoreError::NotOpen { .. }) => {}
            done => return done,
        }
    }
    Ok(Vec::new())
}

async fn try_take_up(engine: &Arc<Engine>, tape: &TapeName, fence: &Fence, said: &mut SaidBefore) -> TakenUp {
    let services = &engine.services;
    let store = services.tapes.store();
    let (events, not_ours) = engine.part_left(store.in_flight(Some(tape)).await?).await?;
    let mut runs = child::with_children(store.running().await?, tape);
    runs.retain(|run| !services.runs.contains(&run.run_id));
    // What an event that is not judged here was in stays as it is: whoever judges it must find its run.
    runs.retain(|run| !not_ours.iter().any(|event| belongs(event, run)));
    if events.is_empty() && runs.is_empty() {
        return Ok(Vec::new());
    }
    let now = services.settings.clock.now();
    let me = services.settings.owner.name().to_owned();
    let mut batch = Batch { fence: Some(fence.clone()), ..Batch::new() };
    let acted = end_runs(engine, tape, &runs, &mut batch).await?;
    // Who took them up before died too, before a new run had begun: they are still those of the run that was cut off.
    for taken in events.iter().filter_map(|event| event.taken_in.as_ref()) {
        if !runs.iter().any(|run| run.run_id == taken.run_id) {
            runs.extend(store.run(&taken.run_id).await?);
        }
    }
    let mut groups = Vec::new();
    let mut parcels = Vec::new();
    for left in together(events, &runs) {
        let items = items(engine, tape, &left).await?;
        let was_overheard = match (&left.run, left.events.as_slice(), items.as_slice()) {
            (None, [event], [item]) => services.was_overheard(event, &item.inbound).await?,
            _ => false,
        };
        let verdict = match (&left.run, items.len() == left.events.len()) {
            (_, false) => Verdict::GivenUp("I was interrupted, and what was asked can no longer be read.".to_owned()),
            (Some(run), true) => {
                let mut open = open_calls(&run.run_id, &entries_of(engine, run).await?);
                open.retain(|name| !services.tool(name).is_some_and(|tool| tool.only_looks()));
                let (acting, done) = actions::of_family(run, &runs, &acted);
                open.extend(acting);
                judge(&left.events, Some((run, &open, &done)))
            }
            (None, true) => match items.iter().find_map(|item| item.inbound.extensions().get::<WithoutTurn>()) {
                Some(why) => Verdict::GivenUp(why.0.clone()),
                None if was_overheard => Verdict::Ended(Outcome::Dropped),
                None => judge(&left.events, None),
            },
        };
        let run_id = left.run.as_ref().map(|run| run.run_id.clone());
        match verdict {
            Verdict::TakenUp => {
                // The first in line may have been what the process died of; those behind it only waited.
                let was_worked_on = run_id.is_some() || groups.is_empty();
                for event in left.events {
                    batch.push(Fact::Adopt { key: event.key, from: event.owner, owner: me.clone(), was_worked_on });
                }
                groups.push(items);
            }
            Verdict::Ended(outcome) => {
                for event in left.events {
                    let (key, outcome, run_id) = (event.key, outcome.clone(), run_id.clone());
                    batch.push(Fact::Settle { key, outcome, run_id });
                }
                let ended = |item| (Parcel::of(item, outcome.clone(), run_id.clone()), 0..0, Vec::new());
                parcels.extend(items.into_iter().map(ended));
            }
            Verdict::GivenUp(why) => {
                let error = TurnError::Run(RunFailure { message: why, code: None });
                let group = Group::new(items);
                let said = said.say_why(engine, &left.events, group.as_ref(), &error).await;
                let entry = Draft::error("turn", &said.notice);
                let entry = run_id.as_ref().map_or(entry.clone(), |run_id| entry.of_run(run_id));
                for entry in std::iter::once(entry).chain(said.flags) {
                    batch.append(tape, Draft { date: Some(now.into()), ..entry });
                }
                let outcome = Outcome::Failed { notice: said.notice, code: Some(error.code().to_owned()) };
                for event in left.events {
                    let run_id = run_id.clone();
                    batch.push(Fact::Settle { key: event.key, outcome: outcome.clone(), run_id });
                }
                // One notice, to whoever would have been answered.
                let Some(Group { lead, others, .. }) = group else { continue };
                let other = |item| (Parcel::of(item, outcome.clone(), run_id.clone()), 0..0, Vec::new());
                parcels.extend(others.into_iter().map(other));
                let outbounds = engine.to_send(&lead.key, said.outbounds, now);
                let first_row = batch.facts.len();
                batch.facts.extend(outbounds.iter().cloned().map(Fact::Enqueue));
                parcels.push((Parcel::of(lead, outcome, run_id), first_row..batch.facts.len(), outbounds));
            }
        }
    }
    let committed = services.tapes.commit(batch).await?;
    let mut chats = Vec::new();
    for (parcel, positions, outbounds) in parcels {
        let rows = rows(outbounds, committed.assigned.get(positions));
        chats.extend(engine.send_out(Parcel { rows, ..parcel }));
    }
    engine.wait_for_room(&chats).await;
    Ok(groups)
}

/// Whether nobody sees to what this process had. What was left before owners were recorded is nobody's.
pub(crate) fn is_left(engine: &Engine, owner: Option<&str>) -> bool {
    owner.is_none_or(|owner| engine.services.settings.owner.is_dead(owner))
}

/// Whether answers of this channel can be given here.
pub(crate) fn is_served(engine: &Engine, channel: &ChannelName) -> bool {
    may_send(engine.services.channel(channel), engine.listening().contains(channel))
}

/// Whether a run worked on an event.
fn belongs(event: &InFlight, run: &RunRecord) -> bool {
    let is_taken = event.taken_in.as_ref().is_some_and(|taken| taken.run_id == run.run_id);
    is_taken || run.event == event.key || run.others.contains(&event.key)
}

/// Events in the groups in which they were worked on, in the order they came.
fn together(events: Vec<InFlight>, runs: &[RunRecord]) -> Vec<Left> {
    let mut groups: Vec<Left> = Vec::new();
    for event in events {
        let run = runs.iter().find(|run| run.parent.is_none() && belongs(&event, run));
        let same = |left: &&mut Left| left.run.as_ref().map(|run| &run.run_id) == run.map(|run| &run.run_id);
        match groups.iter_mut().filter(|_| run.is_some()).find(same) {
            Some(left) => left.events.push(event),
            None => groups.push(Left { run: run.cloned(), events: vec![event] }),
        }
    }
    groups
}

/// Whether events can have a turn again; `open` are the tools and actions of their run whose effect is not known, `done`
/// the actions that have ended: the next run would not know of them.
fn judge(events: &[InFlight], run: Option<(&RunRecord, &[String], &[String])>) -> Verdict {
    let tried = events.iter().map(|event| event.adoptions).max().unwrap_or_default();
    if let Some((run, open, done)) = run {
        if run.bypasses_host && run.status != RunStatus::Created {
            return Verdict::GivenUp(
                "I was interrupted while I worked on this, and cannot tell what was done. I did not try again: please \
                 check, and ask again if something is missing."
                    .to_owned(),
            );
        }
        if !open.is_empty() {
            return Verdict::GivenUp(format!(
                "I was interrupted while {} was at work, and cannot tell whether it finished. I did not try again: \
                 please check, and ask again if something is missing.",
                open.join(", ")
            ));
        }
        if !done.is_empty() {
            return Verdict::GivenUp(format!(
                "I was interrupted after {} was asked for. I did not begin again, so that it is not done twice: please \
                 check, and ask again if something is missing.",
                done.join(", ")
            ));
        }
    }
    if run.is_some_and(|(run, ..)| run.cancel_requested) {
        return Verdict::Ended(Outcome::Cancelled);
    }
    if tried >= ADOPTIONS {
        return Verdict::GivenUp(format!("I was interrupted {} times while I worked on this, and gave up.", tried + 1));
    }
    Verdict::TakenUp
}

/// The events as they were accepted; one that cannot be read any more is missing.
async fn items(engine: &Engine, tape: &TapeName, left: &Left) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    for event in &left.events {
        let told = engine.services.tapes.read_any_generation(tape, &Slice::just(event.entry)).await?.pop();
        let has_no_turn = told.as_ref().and_then(|entry| match &entry.payload["data"][WITHOUT_TURN] {
            Value::String(why) => Some(why.clone()),
            // As it was written before the reason was.
            Value::Bool(true) => Some("a hook failed before the turn".to_owned()),
            _ => None,
        });
        let Some(mut data) = told.map(|mut entry| entry.payload["data"].take()) else { continue };
        let Ok(told) = serde_json::from_value::<Event>(data["event"].take()) else { continue };
        let Ok(own) = serde_json::from_value::<Option<Binding>>(data[OWN_BINDING].take()) else { continue };
        let inbound = Inbound::new(told);
        if let Some(own) = own {
            inbound.extensions().insert(OwnBinding(own));
        }
        inbound.extensions().insert(CallerGone);
        inbound.extensions().insert(CameAt(event.at));
        if let Some(why) = has_no_turn {
            inbound.extensions().insert(WithoutTurn(why));
        }
        let kind = match inbound.command_line() {
            Some(_) => ArrivalKind::Command,
            None => ArrivalKind::Message { addressed: true },
        };
        items.push(Item {
            leads: left.run.as_ref().is_some_and(|run| run.event == event.key),
            inbound,
            key: event.key.clone(),
            session: event.session.clone(),
            entry: event.entry,
            arrival: Arrival { kind, ..Arrival::plain() },
            message: event.taken_in.as_ref().map(|taken| taken.message),
            caller: None,
            place: None,
        });
    }
    Ok(items)
}

impl Engine {
    /// Looks for what dead processes left, now and again, until the host stops.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP) => {}
                () = self.stopping.cancelled() => return,
            }
            self.look_for_left().await;
        }
    }

    /// Looks for what dead processes left. From then on sessions need not look for themselves.
    pub(crate) async fn look_for_left(self: &Arc<Self>) {
        match self.sweep_once().await {
            Ok(()) => self.sweeps.store(true, Ordering::SeqCst),
            Err(error) => tracing::error!(%error, "what dead processes left could not be looked for"),
        }
    }

    /// Wakes every session of this workspace on which a dead process left something, and takes over its messages.
    async fn sweep_once(self: &Arc<Self>) -> Result<(), StoreError> {
        self.take_over_messages().await?;
        let store = self.services.tapes.store();
        let mut tapes: BTreeMap<TapeName, usize> = BTreeMap::new();
        let (left, _) = self.part_left(store.in_flight(None).await?).await?;
        for event in left {
            *tapes.entry(event.tape).or_default() += 1;
        }
        for (tape, count) in tapes {
            let record = self.services.tapes.record(&tape).await?;
            if record.is_some_and(|record| self.is_ours(&record))
                && let Ok(reservation) = self.reserve(&tape)
            {
                reservation.take_up(count);
            }
        }
        Ok(())
    }

    /// Whether a dead process left this event, and it is for this one to go on with it: its channel listens here, or its
    /// caller is gone. Where its source is no channel, it was fed in to be answered on another: nobody listens for it, so
    /// it is anybody's who knows that one.
    pub(crate) async fn is_left(&self, event: &InFlight) -> Result<bool, StoreError> {
        let (services, source) = (&self.services, &event.key.source);
        if !is_left(self, event.owner.as_deref()) {
            return Ok(false);
        }
        let is_served = is_served(self, source);
        if is_served || services.channel(source).is_some() {
            return Ok(is_served);
        }
        let told = services.tapes.read_any_generation(&event.tape, &Slice::just(event.entry)).await?.pop();
        let told =
            told.and_then(|mut entry| serde_json::from_value::<Event>(entry.payload["data"]["event"].take()).ok());
        // One that cannot be read any more has nobody to answer.
        Ok(told.is_none_or(|told| services.channel(&told.channel()).is_some()))
    }

    /// Of events that have no outcome, those that a dead process left to this one, and the others.
    pub(crate) async fn part_left(&self, events: Vec<InFlight>) -> Result<(Vec<InFlight>, Vec<InFlight>), StoreError> {
        let (mut left, mut others) = (Vec::new(), Vec::new());
        for event in events {
            let part = if self.is_left(&event).await? { &mut left } else { &mut others };
            part.push(event);
        }
        Ok((left, others))
    }

    /// Tools of a session work in its workspace, so only a host of that workspace may go on with it.
    pub(crate) fn is_ours(&self, record: &TapeRecord) -> bool {
        record.workspace.as_ref() == Some(&self.services.workspace_id)
    }

    /// Messages that a dead process was to send: their fate is unknown. Those of callers that waited are given up.
    pub(crate) async fn take_over_messages(self: &Arc<Self>) -> Result<(), StoreError> {
        let store = self.services.tapes.store();
        let me = self.services.settings.owner.name();
        for record in store.waiting().await? {
            let channel = self.services.channel(&record.message.channel);
            let waited = channel.is_some_and(|channel| channel.capabilities().caller_waits);
            if !is_left(self, record.owner.as_deref()) || !is_served(self, &record.message.channel) {
                continue;
            }
            // Another workspace may have another account on a channel of the same name.
            if !self.is_of_this_workspace(&record).await? {
                continue;
            }
            let mut batch = Batch::new();
            batch.push(Fact::AdoptOutbound { id: record.id, from: record.owner.clone(), owner: me.to_owned() });
            let row = Row::left_behind(record);
            let status = if waited {
                OutboxStatus::Undelivered { reason: CALLER_GONE.to_owned() }
            } else {
                OutboxStatus::Waiting { attempts: row.attempts, fate_unknown: true, reason: None }
            };
            batch.push(Fact::Delivery { id: row.id, status });
            match store.commit(batch).await {
                Ok(_) if waited => {}
                // Now: nobody else would send it if one of the next cannot be taken over.
                Ok(_) => self.deliver_left_behind(row),
                // Another process was faster.
                Err(StoreError::Taken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "left_tests.rs"]
mod tests;
