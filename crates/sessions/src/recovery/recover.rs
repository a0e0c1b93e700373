//! Decisions about the orphaned events of a session: resume, give up or settle. No effect that may have happened is
//! repeated.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_delivery::{EventDelivery, QueueOverflow};
use capstan_hooks::InboundEvent;
use capstan_protocol::{EventKey, Outcome, RunId, TapeName};
use capstan_runs::{RecordedActions, collect_family_actions, open_runs_with_children};
use capstan_tape::{
    Batch, EntryDraft, EventAcceptance, Fact, Fence, InFlightEvent, RESTORED_OWNER, RunRecord, RunStatus, StoreError,
    StoredBinding, TapeSlice,
};
use capstan_turn::{ArrivalKind, EventArrival, RunError, TurnError};

use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::closing::notices::NoticeCache;
use crate::closing::rows_with_ids;

use super::SessionRecovery;
use super::interrupted_runs::{end_interrupted_runs, run_entries, unanswered_calls};
use super::unaddressed::is_unaddressed;

/// Maximum number of recoveries of an event before it is given up: it may be the cause of the crashes.
const MAX_ADOPTIONS: u32 = 3;
/// Notice for an event that was in flight in a restored copy.
const RESTORED_NOTICE: &str = "I was restored from a backup that was made before I had answered this, and cannot tell \
                               what was done since. I did not begin again: please check, and ask again if something \
                               is missing.";
/// Maximum number of attempts when another process recovers the same events; then they are left to that process.
const MAX_RECOVERY_ATTEMPTS: usize = 8;

/// Decision about orphaned events.
enum RecoveryVerdict {
    /// Serve them in a new turn.
    Resume,
    /// Settle them as failed, with this notice to the user.
    GiveUp(String),
    /// Settle them with this outcome, without a notice.
    SettleQuietly(Outcome),
}

/// Orphaned events that were served together.
struct OrphanedEvents {
    events: Vec<InFlightEvent>,
    /// Interrupted run that served them.
    run: Option<RunRecord>,
    /// Events as accepted, without those that cannot be read any more.
    accepted: Vec<AcceptedEvent>,
    /// Reason why one of them must not get a turn.
    no_turn_reason: Option<String>,
}

/// Events to resume, grouped by turn.
pub(super) type RecoveryResult = Result<Vec<Vec<AcceptedEvent>>, StoreError>;

/// Ends the interrupted runs of a session, and returns the events to resume, in order and grouped by turn.
///
/// The caller holds the lease of the session, so none of those runs is active anywhere.
pub(super) async fn recover_session(recovery: &SessionRecovery, tape: &TapeName, fence: &Fence) -> RecoveryResult {
    let mut notice_cache = NoticeCache::default();
    for _ in 0..MAX_RECOVERY_ATTEMPTS {
        match try_recover_session(recovery, tape, fence, &mut notice_cache).await {
            // Another process settled or adopted one of the events.
            Err(StoreError::EventNotInFlight { .. }) => {}
            result => return result,
        }
    }
    Ok(Vec::new())
}

async fn try_recover_session(
    recovery: &SessionRecovery,
    tape: &TapeName,
    fence: &Fence,
    notice_cache: &mut NoticeCache,
) -> RecoveryResult {
    let store = recovery.tapes.store();
    let (events, not_ours) = recovery.partition_orphaned(tape).await?;
    let mut runs = open_runs_with_children(store.as_ref(), tape).await?;
    runs.retain(|run| !recovery.active_runs.contains(&run.run_id));
    // Runs of events that another process recovers stay as they are: that process decides by the run.
    runs.retain(|run| !not_ours.iter().any(|event| is_event_of_run(event, run)));
    if events.is_empty() && runs.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<EventKey> = events.iter().map(|event| event.key.clone()).collect();
    let now = recovery.clock.now();
    let owner_name = recovery.owner.name().to_owned();
    let mut batch = Batch { fence: Some(fence.clone()), ..Batch::new() };
    let actions = end_interrupted_runs(recovery, tape, &runs, &mut batch).await?;
    // A process may have died after it adopted events and before their new run began: such events still belong to the run
    // that was interrupted first.
    for ingestion in events.iter().filter_map(|event| event.ingestion.as_ref()) {
        if !runs.iter().any(|run| run.run_id == ingestion.run_id) {
            runs.extend(store.run(&ingestion.run_id).await?);
        }
    }
    let mut resumed = Vec::new();
    let mut deliveries = Vec::new();
    for mut orphaned in group_by_run(events, &runs) {
        load_accepted_events(recovery, tape, &mut orphaned).await?;
        let accepted = std::mem::take(&mut orphaned.accepted);
        let verdict = load_and_decide(recovery, &orphaned, &accepted, &runs, &actions).await?;
        let run_id = orphaned.run.as_ref().map(|run| run.run_id.clone());
        match verdict {
            RecoveryVerdict::Resume => {
                // Events without a run were queued, except the first, which may have caused the crash.
                let was_in_progress = run_id.is_some() || resumed.is_empty();
                for event in orphaned.events {
                    batch.push(Fact::AdoptEvent {
                        key: event.key,
                        from: event.owner,
                        owner: owner_name.clone(),
                        was_in_progress,
                    });
                }
                resumed.push(accepted);
            }
            RecoveryVerdict::SettleQuietly(outcome) => {
                for event in orphaned.events {
                    let (key, outcome, run_id) = (event.key, outcome.clone(), run_id.clone());
                    batch.push(Fact::SettleEvent { key, outcome, run_id });
                }
                let settled =
                    |event: AcceptedEvent| (event.into_settled(outcome.clone(), run_id.clone()), 0..0, Vec::new());
                deliveries.extend(accepted.into_iter().map(settled));
            }
            RecoveryVerdict::GiveUp(message) => {
                let error = TurnError::Run(RunError { message, code: None });
                let turn_batch = TurnBatch::new(accepted);
                let prepared = notice_cache
                    .prepare_once(&recovery.closer.notices, &orphaned.events, turn_batch.as_ref(), &error)
                    .await;
                let notice = prepared.text.unwrap_or_else(|| error.public_message());
                let entry = EntryDraft::error("turn", &notice);
                let entry = run_id.as_ref().map_or(entry.clone(), |run_id| entry.with_run_id(run_id));
                for entry in std::iter::once(entry).chain(prepared.dispatch_entry).chain(prepared.effects.entries) {
                    batch.append(tape, EntryDraft { date: Some(now.into()), ..entry });
                }
                let outcome = Outcome::Failed { notice, code: Some(error.code()) };
                for event in orphaned.events {
                    let run_id = run_id.clone();
                    batch.push(Fact::SettleEvent { key: event.key, outcome: outcome.clone(), run_id });
                }
                // One notice, to the sender of the event that the turn would have replied to.
                let Some(TurnBatch { lead, others, .. }) = turn_batch else { continue };
                let settled =
                    |event: AcceptedEvent| (event.into_settled(outcome.clone(), run_id.clone()), 0..0, Vec::new());
                deliveries.extend(others.into_iter().map(settled));
                let outbounds = prepared.outbound.into_iter().chain(prepared.effects.outbounds);
                let outbounds = recovery.closer.outbound_rows(&lead.key, outbounds, now);
                let first_row = batch.facts.len();
                batch.facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
                deliveries.push((lead.into_settled(outcome, run_id), first_row..batch.facts.len(), outbounds));
            }
        }
    }
    let committed = recovery.tapes.commit(batch).await?;
    for key in &keys {
        recovery.unserved_events.remove(key);
    }
    let mut chats = Vec::new();
    for (delivery, positions, outbounds) in deliveries {
        let rows = rows_with_ids(outbounds, committed.outputs.get(positions));
        chats.extend(recovery.outbox.enqueue(EventDelivery { rows, ..delivery }, QueueOverflow::Enqueue));
    }
    recovery.outbox.wait_for_capacity(&chats).await;
    Ok(resumed)
}

/// Loads the unanswered calls of the run that served these events together, and decides about the events. `actions` are
/// the platform actions of every interrupted run.
async fn load_and_decide(
    recovery: &SessionRecovery,
    orphaned: &OrphanedEvents,
    accepted: &[AcceptedEvent],
    runs: &[RunRecord],
    actions: &HashMap<RunId, RecordedActions>,
) -> Result<RecoveryVerdict, StoreError> {
    if accepted.len() != orphaned.events.len() {
        return Ok(RecoveryVerdict::GiveUp(
            "I was interrupted, and your message can no longer be read. Please send it again.".to_owned(),
        ));
    }
    if let Some(run) = &orphaned.run {
        let mut unanswered = unanswered_calls(&run.run_id, &run_entries(recovery, run).await?);
        unanswered.retain(|name| !recovery.tools.get(name).is_some_and(|tool| tool.is_read_only()));
        let (unfinished, finished) = collect_family_actions(run, runs, actions);
        unanswered.extend(unfinished);
        return Ok(decide_recovery(
            &orphaned.events,
            Some(InterruptedRun { record: run, unfinished: &unanswered, finished: &finished }),
        ));
    }
    if let Some(reason) = &orphaned.no_turn_reason {
        return Ok(RecoveryVerdict::GiveUp(reason.clone()));
    }
    if let ([event], [accepted]) = (orphaned.events.as_slice(), accepted)
        && is_unaddressed(&recovery.tapes, &recovery.intake_policy, event, &accepted.inbound).await?
    {
        return Ok(RecoveryVerdict::SettleQuietly(Outcome::Dropped));
    }
    Ok(decide_recovery(&orphaned.events, None))
}

/// Returns true if a run served or ingested an event.
fn is_event_of_run(event: &InFlightEvent, run: &RunRecord) -> bool {
    let is_ingested = event.ingestion.as_ref().is_some_and(|ingestion| ingestion.run_id == run.run_id);
    is_ingested || run.event == event.key || run.others.contains(&event.key)
}

/// Groups events by the run that served them, in the order of their acceptance. An event without a run forms a
/// group of its own.
fn group_by_run(events: Vec<InFlightEvent>, runs: &[RunRecord]) -> Vec<OrphanedEvents> {
    let mut groups: Vec<OrphanedEvents> = Vec::new();
    for event in events {
        let run = runs.iter().find(|run| run.parent.is_none() && is_event_of_run(&event, run));
        let has_same_run =
            |group: &&mut OrphanedEvents| group.run.as_ref().map(|run| &run.run_id) == run.map(|run| &run.run_id);
        match groups.iter_mut().filter(|_| run.is_some()).find(has_same_run) {
            Some(group) => group.events.push(event),
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

/// Interrupted run with the effects that it had or may have had.
#[derive(Clone, Copy)]
struct InterruptedRun<'a> {
    record: &'a RunRecord,
    /// Names of tools and actions that were begun and may have taken effect.
    unfinished: &'a [String],
    /// Names of finished actions, which the next run would not know about.
    finished: &'a [String],
}

/// Decides about events by the number of their recoveries and by the run that served them, if there is one.
fn decide_recovery(events: &[InFlightEvent], run: Option<InterruptedRun<'_>>) -> RecoveryVerdict {
    let adoptions = events.iter().map(|event| event.adoptions).max().unwrap_or_default();
    if let Some(InterruptedRun { record, unfinished, finished }) = run {
        if record.bypasses_host && record.status != RunStatus::Created {
            return RecoveryVerdict::GiveUp(
                "I was interrupted while working on this and cannot tell what was done, so I did not retry. Please \
                 check, and ask again if something is missing."
                    .to_owned(),
            );
        }
        if !unfinished.is_empty() {
            return RecoveryVerdict::GiveUp(format!(
                "I was interrupted while {} was at work, and cannot tell whether it finished. I did not try again: \
                 please check, and ask again if something is missing.",
                unfinished.join(", ")
            ));
        }
        if !finished.is_empty() {
            return RecoveryVerdict::GiveUp(format!(
                "I was interrupted after {} was asked for. I did not begin again, so that it is not done twice: please \
                 check, and ask again if something is missing.",
                finished.join(", ")
            ));
        }
    }
    if run.is_some_and(|run| run.record.cancel_requested) {
        return RecoveryVerdict::SettleQuietly(Outcome::Cancelled);
    }
    if events.iter().any(|event| event.owner.as_deref() == Some(RESTORED_OWNER)) {
        return RecoveryVerdict::GiveUp(RESTORED_NOTICE.to_owned());
    }
    if adoptions >= MAX_ADOPTIONS {
        return RecoveryVerdict::GiveUp(format!(
            "I was interrupted {} times while I worked on this, and gave up.",
            adoptions + 1
        ));
    }
    RecoveryVerdict::Resume
}

/// Loads events as they were accepted.
async fn load_accepted_events(
    recovery: &SessionRecovery,
    tape: &TapeName,
    orphaned: &mut OrphanedEvents,
) -> Result<(), StoreError> {
    for event in &orphaned.events {
        let entry = recovery.tapes.read_any_generation(tape, &TapeSlice::single(event.entry)).await?.pop();
        let Some(accepted) = entry.as_ref().and_then(EventAcceptance::from_entry) else { continue };
        let Ok(own_binding) = accepted.binding.as_ref().map(StoredBinding::parse).transpose() else { continue };
        let origin = accepted.origin();
        let inbound = InboundEvent::new(*accepted.event).with_origin(origin).with_accepted_at(event.accepted_at);
        let inbound = inbound.with_entry(event.entry);
        orphaned.no_turn_reason = orphaned.no_turn_reason.take().or(accepted.without_turn);
        let kind = match inbound.command_line() {
            Some(_) => ArrivalKind::Command,
            None => ArrivalKind::Message { addressed: true },
        };
        let arrival = EventArrival { kind, ..EventArrival::follow_up() };
        orphaned.accepted.push(AcceptedEvent {
            is_lead: orphaned.run.as_ref().is_some_and(|run| run.event == event.key),
            key: event.key.clone(),
            entry: event.entry,
            own_binding: own_binding.map(Arc::new),
            message_entry: event.ingestion.as_ref().map(|ingestion| ingestion.message_entry),
            is_caller_disconnected: true,
            ..AcceptedEvent::new(inbound, event.session.clone(), arrival)
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
