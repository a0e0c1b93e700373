//! After a crash: what a dead process left is ended or taken up again, and nothing is done twice that may have been
//! done.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_delivery::EventDelivery;
use capstan_hooks::InboundEvent;
use capstan_protocol::{Outcome, RunId, TapeName};
use capstan_runs::{RecordedActions, collect_family_actions, open_runs_with_children};
use capstan_tape::{
    Batch, EntryDraft, EventAcceptance, Fact, Fence, InFlightEvent, RunRecord, RunStatus, StoreError, StoredBinding,
    TapeSlice,
};
use capstan_turn::{ArrivalKind, EventArrival, RunError, TurnError};

use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::closing::assigned_rows;
use crate::closing::notices::NoticeCache;

use super::SessionRecovery;
use super::interrupted_runs::{end_interrupted_runs, run_entries, unanswered_calls};
use super::unaddressed::is_unaddressed;

/// How often an event is taken up again before it is given up: it may be what kills the host.
const MAX_ADOPTIONS: u32 = 3;
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
pub(super) type RecoveredEvents = Result<Vec<Vec<AcceptedEvent>>, StoreError>;

/// Ends the runs that a dead process left on a session, and gives the events that are to have a turn again: those of
/// one run together, in order.
///
/// The caller holds the session's lease, so none of those runs can be going on anywhere.
pub(super) async fn recover_session(recovery: &SessionRecovery, tape: &TapeName, fence: &Fence) -> RecoveredEvents {
    let mut said = NoticeCache::default();
    for _ in 0..RECOVERY_CONFLICT_RETRIES {
        match try_recover_session(recovery, tape, fence, &mut said).await {
            // Another process was faster with one of them.
            Err(StoreError::EventNotInFlight { .. }) => {}
            done => return done,
        }
    }
    Ok(Vec::new())
}

async fn try_recover_session(
    recovery: &SessionRecovery,
    tape: &TapeName,
    fence: &Fence,
    said: &mut NoticeCache,
) -> RecoveredEvents {
    let store = recovery.tapes.store();
    let (events, not_ours) = recovery.partition_orphaned(tape).await?;
    let mut runs = open_runs_with_children(store.as_ref(), tape).await?;
    runs.retain(|run| !recovery.active_runs.contains(&run.run_id));
    // What an event that is not judged here was in stays as it is: whoever judges it must find its run.
    runs.retain(|run| !not_ours.iter().any(|event| is_event_of_run(event, run)));
    if events.is_empty() && runs.is_empty() {
        return Ok(Vec::new());
    }
    let now = recovery.clock.now();
    let me = recovery.owner.name().to_owned();
    let mut batch = Batch { fence: Some(fence.clone()), ..Batch::new() };
    let acted = end_interrupted_runs(recovery, tape, &runs, &mut batch).await?;
    // Who took them up before died too, before a new run had begun: they are still those of the run that was cut off.
    for taken in events.iter().filter_map(|event| event.ingestion.as_ref()) {
        if !runs.iter().any(|run| run.run_id == taken.run_id) {
            runs.extend(store.run(&taken.run_id).await?);
        }
    }
    let mut groups = Vec::new();
    let mut deliveries = Vec::new();
    for mut left in group_by_run(events, &runs) {
        load_accepted_events(recovery, tape, &mut left).await?;
        let items = std::mem::take(&mut left.accepted);
        let verdict = judge_orphaned(recovery, &left, &items, &runs, &acted).await?;
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
                let said = said.prepare_once(&recovery.closer.notices, &left.events, group.as_ref(), &error).await;
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
                let outbounds = recovery.closer.outbound_rows(&lead.key, said.outbound, now);
                let first_row = batch.facts.len();
                batch.facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
                deliveries.push((lead.into_settled(outcome, run_id), first_row..batch.facts.len(), outbounds));
            }
        }
    }
    let committed = recovery.tapes.commit(batch).await?;
    let mut chats = Vec::new();
    for (delivery, positions, outbounds) in deliveries {
        let rows = assigned_rows(outbounds, committed.outputs.get(positions));
        chats.extend(recovery.outbox.enqueue(EventDelivery { rows, ..delivery }));
    }
    recovery.outbox.wait_for_capacity(&chats).await;
    Ok(groups)
}

/// Decides about events that were worked on together; `acted` are the actions of every interrupted run.
async fn judge_orphaned(
    recovery: &SessionRecovery,
    left: &OrphanedEvents,
    accepted: &[AcceptedEvent],
    runs: &[RunRecord],
    acted: &HashMap<RunId, RecordedActions>,
) -> Result<RecoveryVerdict, StoreError> {
    if accepted.len() != left.events.len() {
        return Ok(RecoveryVerdict::GiveUp("I was interrupted, and what was asked can no longer be read.".to_owned()));
    }
    if let Some(run) = &left.run {
        let mut open = unanswered_calls(&run.run_id, &run_entries(recovery, run).await?);
        open.retain(|name| !recovery.tools.get(name).is_some_and(|tool| tool.is_read_only()));
        let (acting, done) = collect_family_actions(run, runs, acted);
        open.extend(acting);
        return Ok(decide_recovery(&left.events, Some((run, &open, &done))));
    }
    if let Some(reason) = &left.no_turn_reason {
        return Ok(RecoveryVerdict::GiveUp(reason.clone()));
    }
    if let ([event], [item]) = (left.events.as_slice(), accepted)
        && is_unaddressed(&recovery.tapes, &recovery.intake_policy, event, &item.inbound).await?
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
async fn load_accepted_events(
    recovery: &SessionRecovery,
    tape: &TapeName,
    left: &mut OrphanedEvents,
) -> Result<(), StoreError> {
    for event in &left.events {
        let told = recovery.tapes.read_any_generation(tape, &TapeSlice::single(event.entry)).await?.pop();
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

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
