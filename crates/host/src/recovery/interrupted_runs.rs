//! Runs that were cut off: what they had done, and what they were waiting for.

use std::collections::HashMap;

use capstan_protocol::{RunId, TapeName, Usage};
use capstan_tape::{Batch, Entry, EntryDraft, EntryKind, Fact, RunRecord, RunStatus, StoreError, TapeSlice};
use serde::Deserialize as _;
use serde_json::Value;

use super::recover::{COMMAND_EVENT, COMMAND_START_EVENT};
use crate::actions::{self, RecordedActions};
use crate::api::models::MODEL_CALL_ENDED;
use crate::engine::Engine;
use crate::runs::child_run;

/// Ends runs that were cut off: of actions that they had begun the tape tells that nobody knows. Gives what each had done
/// on the platform.
pub(super) async fn end_interrupted_runs(
    engine: &Engine,
    tape: &TapeName,
    runs: &[RunRecord],
    batch: &mut Batch,
) -> Result<HashMap<RunId, RecordedActions>, StoreError> {
    let services = &engine.services;
    let now = services.options.clock.now();
    let mut acted = HashMap::new();
    for run in runs {
        let entries = run_entries(engine, run).await?;
        let did = actions::read_recorded_actions(&run.run_id, &entries);
        for entry in did.unknown_end_entries() {
            batch.append(tape, EntryDraft { date: Some(now.into()), ..entry.with_run_id(&run.run_id) });
        }
        acted.insert(run.run_id.clone(), did);
        let (run_id, usage) = (run.run_id.clone(), sum_usage(&run.run_id, &entries));
        batch.push(Fact::EndRun { run_id, status: RunStatus::Interrupted, usage, ended_at: now });
        if child_run::has_open_fork(&services.tapes, run).await? {
            batch.push(Fact::CloseFork { fork: run.tape.clone(), is_merged: false });
        }
    }
    Ok(acted)
}

/// What stands on the tape since a run began.
pub(super) async fn run_entries(engine: &Engine, run: &RunRecord) -> Result<Vec<Entry>, StoreError> {
    engine.services.tapes.read_any_generation(&run.tape, &TapeSlice::after(run.begins_after)).await
}

/// What a run had used, as far as models have said.
fn sum_usage(run_id: &RunId, entries: &[Entry]) -> Option<Usage> {
    let is_call = |entry: &&Entry| entry.run_id() == Some(run_id.as_str()) && entry.name() == Some(MODEL_CALL_ENDED);
    let calls = entries.iter().filter(|entry| entry.kind == EntryKind::Event).filter(is_call);
    let usages = calls.filter_map(|entry| Usage::deserialize(&entry.payload["data"]["usage"]).ok());
    usages.reduce(|sum, usage| sum.plus(&usage))
}

/// The tools that a run had called and that had not answered: what they did is not known.
pub(super) fn unanswered_calls(run_id: &RunId, entries: &[Entry]) -> Vec<String> {
    let mut open: Vec<(String, String)> = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for entry in entries.iter().filter(|entry| entry.run_id() == Some(run_id.as_str())) {
        match (&entry.kind, entry.name()) {
            (EntryKind::ToolCall, _) => {
                let calls = entry.payload["calls"].as_array().into_iter().flatten();
                open.extend(calls.map(|call| (text(&call["id"]), text(&call["function"]["name"]))));
            }
            (EntryKind::ToolResult, _) => {
                for id in entry.payload["call_ids"].as_array().into_iter().flatten().map(text) {
                    // Ids may be used again in a later step: the newest call is meant.
                    if let Some(position) = open.iter().rposition(|(call, _)| *call == id) {
                        open.remove(position);
                    }
                }
            }
            (EntryKind::Event, Some(COMMAND_START_EVENT)) => {
                open.push((COMMAND_START_EVENT.to_owned(), text(&entry.payload["data"]["name"])));
            }
            (EntryKind::Event, Some(COMMAND_EVENT)) => open.retain(|(id, _)| id != COMMAND_START_EVENT),
            _ => {}
        }
    }
    let mut names: Vec<String> = open.into_iter().map(|(_, name)| name).collect();
    names.dedup();
    names
}
