//! After a crash: what a dead process left is ended or taken up again, and nothing is done twice that may have been
//! done.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_protocol::{Outcome, RunId, TapeName};
use capstan_tape::{
    Batch, EntryDraft, EventAcceptance, Fact, Fence, InFlightEvent, RunRecord, RunStatus, StoreError, StoredBinding,
    TapeRecord, TapeSlice,
};
use capstan_turn::{ArrivalKind, EventArrival, RunError, TurnError};

use crate::actions;
use crate::delivery::event_delivery::EventDelivery;
use crate::delivery::outbox::RowOwner as _;
use crate::engine::Engine;
use crate::runs::child_run;
use crate::sessions::accepted_event::{AcceptedEvent, TurnBatch};
use crate::turns::close::assigned_rows;
use crate::turns::notices::NoticeCache;

use super::interrupted_runs::{end_interrupted_runs, run_entries, unanswered_calls};

/// How often an event is taken up again before it is given up: it may be what kills the host.
const MAX_ADOPTIONS: u32 = 3;
/// How often a running host looks for what other processes left.
const RECOVERY_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// How often that is tried again when another process does the same.
const RECOVERY_CONFLICT_RETRIES: usize = 8;

/// What becomes of events that a dead process left.
enum RecoveryVerdict {
    /// They have a turn again.
    Resume,
    /// They end, and the user is told this.
    GiveUp(String),
    /// They end like this, as they would have.
    Settle(Outcome),
}

/// Events that a dead process left, and worked on together.
struct OrphanedEvents {
    events: Vec<InFlightEvent>,
    /// The run that was cut off.
    run: Option<RunRecord>,
    /// The events as they were accepted; one that cannot be read any more is missing.
    accepted: Vec<AcceptedEvent>,
    /// The reason that one of them must not have a turn.
    no_turn_reason: Option<String>,
}

/// Events that are to have a turn again, those of each turn together.
type RecoveredEvents = Result<Vec<Vec<AcceptedEvent>>, StoreError>;

/// Ends the runs that a dead process left on a session, and gives the events that are to have a turn again: those of
/// one run together, in order.
///
/// The caller holds the session's lease, so none of those runs can be going on anywhere.
pub(crate) async fn recover_session(engine: &Arc<Engine>, tape: &TapeName, fence: &Fence) -> RecoveredEvents {
    let mut said = NoticeCache::default();
    for _ in 0..RECOVERY_CONFLICT_RETRIES {
        match try_recover_session(engine, tape, fence, &mut said).await {
            // Another process was faster with one of them.
            Err(StoreError::EventNotInFlight { .. }) => {}
            done => return done,
        }
    }
    Ok(Vec::new())
}

async fn try_recover_session(
    engine: &Arc<Engine>,
    tape: &TapeName,
    fence: &Fence,
    said: &mut NoticeCache,
) -> RecoveredEvents {
    let services = &engine.services;
    let store = services.tapes.store();
    let (events, not_ours) = engine.partition_orphaned(tape).await?;
    let mut runs = child_run::open_runs_with_children(store.as_ref(), tape).await?;
    runs.retain(|run| !services.runs.contains(&run.run_id));
    // What an event that is not judged here was in stays as it is: whoever judges it must find its run.
    runs.retain(|run| !not_ours.iter().any(|event| is_event_of_run(event, run)));
    if events.is_empty() && runs.is_empty() {
        return Ok(Vec::new());
    }
    let now = services.options.clock.now();
    let me = services.options.lease_owner.name().to_owned();
    let mut batch = Batch { fence: Some(fence.clone()), ..Batch::new() };
    let acted = end_interrupted_runs(engine, tape, &runs, &mut batch).await?;
    // Who took them up before died too, before a new run had begun: they are still those of the run that was cut off.
    for taken in events.iter().filter_map(|event| event.ingestion.as_ref()) {
        if !runs.iter().any(|run| run.run_id == taken.run_id) {
            runs.extend(store.run(&taken.run_id).await?);
        }
    }
    let mut groups = Vec::new();
    let mut deliveries = Vec::new();
    for mut left in group_by_run(events, &runs) {
        load_accepted_events(engine, tape, &mut left).await?;
        let items = std::mem::take(&mut left.accepted);
        let verdict = judge_orphaned(engine, &left, &items, &runs, &acted).await?;
        let run_id = left.run.as_ref().map(|run| run.run_id.clone());
        match verdict {
            RecoveryVerdict::Resume => {
                // The first in line may have been what the process died of; those behind it only waited.
                let was_worked_on = run_id.is_some() || groups.is_empty();
                for event in left.events {
                    batch.push(Fact::AdoptEvent {
                        key: event.key,
                        from: event.owner,
                        owner: me.clone(),
                        was_in_progress: was_worked_on,
                    });
                }
                groups.push(items);
            }
            RecoveryVerdict::Settle(outcome) => {
                for event in left.events {
                    let (key, outcome, run_id) = (event.key, outcome.clone(), run_id.clone());
                    batch.push(Fact::SettleEvent { key, outcome, run_id });
                }
                let ended =
                    |item: AcceptedEvent| (item.into_settled(outcome.clone(), run_id.clone()), 0..0, Vec::new());
                deliveries.extend(items.into_iter().map(ended));
            }
            RecoveryVerdict::GiveUp(why) => {
                let error = TurnError::Run(RunError { message: why, code: None });
                let group = TurnBatch::new(items);
                let said = said.prepare_once(engine, &left.events, group.as_ref(), &error).await;
                let notice = said.text.unwrap_or_else(|| error.public_message());
                let entry = EntryDraft::error("turn", &notice);
                let entry = run_id.as_ref().map_or(entry.clone(), |run_id| entry.with_run_id(run_id));
                for entry in std::iter::once(entry).chain(said.dispatch_entry) {
                    batch.append(tape, EntryDraft { date: Some(now.into()), ..entry });
                }
                let outcome = Outcome::Failed { notice, code: Some(error.code()) };
                for event in left.events {
                    let run_id = run_id.clone();
                    batch.push(Fact::SettleEvent { key: event.key, outcome: outcome.clone(), run_id });
                }
                // One notice, to whoever would have been answered.
                let Some(TurnBatch { lead, others, .. }) = group else { continue };
                let other =
                    |item: AcceptedEvent| (item.into_settled(outcome.clone(), run_id.clone()), 0..0, Vec::new());
                deliveries.extend(others.into_iter().map(other));
                let outbounds = engine.outbound_rows(&lead.key, said.outbound, now);
                let first_row = batch.facts.len();
                batch.facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
                deliveries.push((lead.into_settled(outcome, run_id), first_row..batch.facts.len(), outbounds));
            }
        }
    }
    let committed = services.tapes.commit(batch).await?;
    let mut chats = Vec::new();
    for (delivery, positions, outbounds) in deliveries {
        let rows = assigned_rows(outbounds, committed.outputs.get(positions));
        chats.extend(engine.outbox.enqueue(EventDelivery { rows, ..delivery }));
    }
    engine.outbox.wait_for_capacity(&chats).await;
    Ok(groups)
}

/// Decides about events that were worked on together; `acted` are the actions of every interrupted run.
async fn judge_orphaned(
    engine: &Engine,
    left: &OrphanedEvents,
    accepted: &[AcceptedEvent],
    runs: &[RunRecord],
    acted: &HashMap<RunId, actions::RecordedActions>,
) -> Result<RecoveryVerdict, StoreError> {
    let services = &engine.services;
    if accepted.len() != left.events.len() {
        return Ok(RecoveryVerdict::GiveUp("I was interrupted, and what was asked can no longer be read.".to_owned()));
    }
    if let Some(run) = &left.run {
        let mut open = unanswered_calls(&run.run_id, &run_entries(engine, run).await?);
        open.retain(|name| !services.tool(name).is_some_and(|tool| tool.is_read_only()));
        let (acting, done) = actions::collect_family_actions(run, runs, acted);
        open.extend(acting);
        return Ok(decide_recovery(&left.events, Some((run, &open, &done))));
    }
    if let Some(reason) = &left.no_turn_reason {
        return Ok(RecoveryVerdict::GiveUp(reason.clone()));
    }
    if let ([event], [item]) = (left.events.as_slice(), accepted)
        && services.is_unaddressed(event, &item.inbound).await?
    {
        return Ok(RecoveryVerdict::Settle(Outcome::Dropped));
    }
    Ok(decide_recovery(&left.events, None))
}

/// Whether a run worked on an event.
fn is_event_of_run(event: &InFlightEvent, run: &RunRecord) -> bool {
    let is_taken = event.ingestion.as_ref().is_some_and(|taken| taken.run_id == run.run_id);
    is_taken || run.event == event.key || run.others.contains(&event.key)
}

/// Events in the groups in which they were worked on, in the order they came.
fn group_by_run(events: Vec<InFlightEvent>, runs: &[RunRecord]) -> Vec<OrphanedEvents> {
    let mut groups: Vec<OrphanedEvents> = Vec::new();
    for event in events {
        let run = runs.iter().find(|run| run.parent.is_none() && is_event_of_run(&event, run));
        let same = |left: &&mut OrphanedEvents| left.run.as_ref().map(|run| &run.run_id) == run.map(|run| &run.run_id);
        match groups.iter_mut().filter(|_| run.is_some()).find(same) {
            Some(left) => left.events.push(event),
            None => groups.push(OrphanedEvents {
                run: run.cloned(),
                events: vec![event],
                accepted: Vec::new(),
                no_turn_reason: None,
            }),
        }
    }
    groups
}

/// Whether events can have a turn again; `open` are the tools and actions of their run whose effect is not known, `done`
/// the actions that have ended: the next run would not know of them.
fn decide_recovery(events: &[InFlightEvent], run: Option<(&RunRecord, &[String], &[String])>) -> RecoveryVerdict {
    let tried = events.iter().map(|event| event.adoptions).max().unwrap_or_default();
    if let Some((run, open, done)) = run {
        if run.bypasses_host && run.status != RunStatus::Created {
            return RecoveryVerdict::GiveUp(
                "I was interrupted while I worked on this, and cannot tell what was done. I did not try again: please \
                 check, and ask again if something is missing."
                    .to_owned(),
            );
        }
        if !open.is_empty() {
            return RecoveryVerdict::GiveUp(format!(
                "I was interrupted while {} was at work, and cannot tell whether it finished. I did not try again: \
                 please check, and ask again if something is missing.",
                open.join(", ")
            ));
        }
        if !done.is_empty() {
            return RecoveryVerdict::GiveUp(format!(
                "I was interrupted after {} was asked for. I did not begin again, so that it is not done twice: please \
                 check, and ask again if something is missing.",
                done.join(", ")
            ));
        }
    }
    if run.is_some_and(|(run, ..)| run.cancel_requested) {
        return RecoveryVerdict::Settle(Outcome::Cancelled);
    }
    if tried >= MAX_ADOPTIONS {
        return RecoveryVerdict::GiveUp(format!(
            "I was interrupted {} times while I worked on this, and gave up.",
            tried + 1
        ));
    }
    RecoveryVerdict::Resume
}

/// Reads events as they were accepted.
async fn load_accepted_events(engine: &Engine, tape: &TapeName, left: &mut OrphanedEvents) -> Result<(), StoreError> {
    for event in &left.events {
        let told = engine.services.tapes.read_any_generation(tape, &TapeSlice::single(event.entry)).await?.pop();
        let Some(accepted) = told.as_ref().and_then(EventAcceptance::from_entry) else { continue };
        let Ok(own) = accepted.binding.as_ref().map(StoredBinding::parse).transpose() else { continue };
        let inbound = InboundEvent::new(*accepted.event).with_accepted_at(event.accepted_at);
        left.no_turn_reason = left.no_turn_reason.take().or(accepted.without_turn);
        let kind = match inbound.command_line() {
            Some(_) => ArrivalKind::Command,
            None => ArrivalKind::Message { addressed: true },
        };
        let arrival = EventArrival { kind, ..EventArrival::follow_up() };
        left.accepted.push(AcceptedEvent {
            is_lead: left.run.as_ref().is_some_and(|run| run.event == event.key),
            key: event.key.clone(),
            entry: event.entry,
            own_binding: own.map(Arc::new),
            message_entry: event.ingestion.as_ref().map(|taken| taken.message),
            is_caller_gone: true,
            ..AcceptedEvent::new(inbound, event.session.clone(), arrival)
        });
    }
    Ok(())
}

impl Engine {
    /// Looks for what dead processes left, now and again, until the host stops.
    pub(crate) async fn run_recovery_sweeps(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(RECOVERY_SWEEP_INTERVAL) => {}
                () = self.stop_token.cancelled() => return,
            }
            self.sweep_orphans().await;
        }
    }

    /// Looks for what dead processes left. From then on sessions need not look for themselves.
    pub(crate) async fn sweep_orphans(self: &Arc<Self>) {
        match self.try_sweep_orphans().await {
            Ok(()) => self.is_sweeping.store(true, Ordering::SeqCst),
            Err(error) => tracing::error!(%error, "what dead processes left could not be looked for"),
        }
    }

    /// Wakes every session of this workspace on which a dead process left something, and takes over its messages.
    async fn try_sweep_orphans(self: &Arc<Self>) -> Result<(), StoreError> {
        self.outbox.adopt_orphaned_messages().await?;
        let store = self.services.tapes.store();
        let mut tapes: BTreeMap<TapeName, usize> = BTreeMap::new();
        let mut events = store.in_flight_events(None);
        while let Some(event) = events.next().await? {
            if self.is_orphaned_event(&event).await? {
                *tapes.entry(event.tape).or_default() += 1;
            }
        }
        for (tape, count) in tapes {
            let record = self.services.tapes.record(&tape).await?;
            if record.is_some_and(|record| self.is_workspace_tape(&record))
                && let Ok(reservation) = self.reserve_session(&tape)
            {
                reservation.request_recovery(count);
            }
        }
        Ok(())
    }

    /// Whether a dead process left this event, and it is for this one to go on with it: its channel listens here, or its
    /// caller is gone. Where its source is no channel, it was fed in to be answered on another: nobody listens for it, so
    /// it is anybody's who knows that one.
    pub(crate) async fn is_orphaned_event(&self, event: &InFlightEvent) -> Result<bool, StoreError> {
        let (services, source) = (&self.services, &event.key.source);
        if !services.options.lease_owner.is_orphaned(event.owner.as_deref()) {
            return Ok(false);
        }
        let is_served = services.channels.can_deliver_orphaned(source);
        if is_served || services.channels.get(source).is_some() {
            return Ok(is_served);
        }
        let told = services.tapes.read_any_generation(&event.tape, &TapeSlice::single(event.entry)).await?.pop();
        let told = told.as_ref().and_then(EventAcceptance::from_entry);
        // One that cannot be read any more has nobody to answer.
        Ok(told.is_none_or(|told| services.channels.get(&told.event.channel()).is_some()))
    }

    /// Events of a tape without an outcome: those that a dead process left to this one, and the others. A session has no
    /// more of them than may wait in it.
    pub(crate) async fn partition_orphaned(
        &self,
        tape: &TapeName,
    ) -> Result<(Vec<InFlightEvent>, Vec<InFlightEvent>), StoreError> {
        let (mut left, mut others) = (Vec::new(), Vec::new());
        let mut events = self.services.tapes.store().in_flight_events(Some(tape));
        while let Some(event) = events.next().await? {
            let part = if self.is_orphaned_event(&event).await? { &mut left } else { &mut others };
            part.push(event);
        }
        Ok((left, others))
    }

    /// Tools of a session work in its workspace, so only a host of that workspace may go on with it.
    pub(crate) fn is_workspace_tape(&self, record: &TapeRecord) -> bool {
        record.workspace.as_ref() == Some(&self.services.workspace_id)
    }
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
