//! Interrupted runs: their actions, their usage, and the tool calls without a result.

use std::collections::HashMap;

use capstan_protocol::{RunId, TapeName, Usage};
use capstan_runs::{RecordedActions, has_open_fork, read_recorded_actions};
use capstan_tape::{
    Batch, Entry, EntryDraft, EntryKind, Fact, RunRecord, RunStatus, StoreError, TapeEvent, TapeEventKind, TapeSlice,
};
use serde_json::Value;

use super::SessionRecovery;

/// Ends interrupted runs, and records for each action in progress that its result is unknown. Returns the platform actions
/// of each run.
pub(super) async fn end_interrupted_runs(
    recovery: &SessionRecovery,
    tape: &TapeName,
    runs: &[RunRecord],
    batch: &mut Batch,
) -> Result<HashMap<RunId, RecordedActions>, StoreError> {
    let now = recovery.clock.now();
    let mut actions = HashMap::new();
    for run in runs {
        let entries = run_entries(recovery, run).await?;
        let recorded = read_recorded_actions(&run.run_id, &entries);
        for entry in recorded.unknown_end_entries() {
            batch.append(tape, EntryDraft { date: Some(now.into()), ..entry.with_run_id(&run.run_id) });
        }
        actions.insert(run.run_id.clone(), recorded);
        let (run_id, usage) = (run.run_id.clone(), sum_usage(&run.run_id, &entries));
        batch.push(Fact::EndRun { run_id, status: RunStatus::Interrupted, usage, ended_at: now });
        if has_open_fork(&recovery.tapes, run).await? {
            batch.push(Fact::CloseFork { fork: run.tape.clone(), is_merged: false });
        }
    }
    Ok(actions)
}

/// Entries of the tape since a run began.
pub(super) async fn run_entries(recovery: &SessionRecovery, run: &RunRecord) -> Result<Vec<Entry>, StoreError> {
    recovery.tapes.read_any_generation(&run.tape, &TapeSlice::after(run.begins_after)).await
}

/// Sums the usage of a run, as far as model calls have reported it.
fn sum_usage(run_id: &RunId, entries: &[Entry]) -> Option<Usage> {
    let of_run = entries.iter().filter(|entry| entry.run_id() == Some(run_id.as_str()));
    let usages = of_run.filter_map(TapeEvent::from_entry).filter_map(|event| match event {
        TapeEvent::ModelCallEnded(end) => end.usage,
        _ => None,
    });
    usages.reduce(|sum, usage| sum.plus(&usage))
}

/// Names of the tools and commands that a run called and that have no result, so that their effect is unknown.
pub(super) fn unanswered_calls(run_id: &RunId, entries: &[Entry]) -> Vec<String> {
    // Tool calls have an id; commands have none.
    let mut open: Vec<(Option<String>, String)> = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for entry in entries.iter().filter(|entry| entry.run_id() == Some(run_id.as_str())) {
        match (&entry.kind, entry.event_kind()) {
            (EntryKind::ToolCall, _) => {
                let calls = entry.payload["calls"].as_array().into_iter().flatten();
                open.extend(calls.map(|call| (Some(text(&call["id"])), text(&call["function"]["name"]))));
            }
            (EntryKind::ToolResult, _) => {
                for id in entry.payload["call_ids"].as_array().into_iter().flatten().map(text) {
                    // A later step may reuse an id: the result belongs to the newest call.
                    if let Some(position) = open.iter().rposition(|(call, _)| call.as_ref() == Some(&id)) {
                        open.remove(position);
                    }
                }
            }
            (_, Some(TapeEventKind::CommandStart)) => {
                let name = match TapeEvent::from_entry(entry) {
                    Some(TapeEvent::CommandStart(start)) => start.name.to_string(),
                    // Unreadable, but some command began.
                    _ => String::new(),
                };
                open.push((None, name));
            }
            (_, Some(TapeEventKind::Command)) => open.retain(|(id, _)| id.is_some()),
            _ => {}
        }
    }
    let mut names: Vec<String> = open.into_iter().map(|(_, name)| name).collect();
    names.dedup();
    names
}
