//! Runs that were cut off: what they had done, and what they were waiting for.

use std::collections::HashMap;

use capstan_protocol::{RunId, TapeName, Usage};
use capstan_tape::{Batch, Draft, Entry, Fact, Kind, RunRecord, RunStatus, Slice, StoreError};
use serde::Deserialize as _;
use serde_json::Value;

use super::left::{COMMAND, COMMAND_START};
use crate::actions::{self, Acted};
use crate::api::models::MODEL_CALL_ENDED;
use crate::engine::Engine;
use crate::runs::child;

/// Ends runs that were cut off: of actions that they had begun the tape tells that nobody knows. Gives what each had done
/// on the platform.
pub(super) async fn end_runs(
    engine: &Engine,
    tape: &TapeName,
    runs: &[RunRecord],
    batch: &mut Batch,
) -> Result<HashMap<RunId, Acted>, StoreError> {
    let services = &engine.services;
    let now = services.settings.clock.now();
    let mut acted = HashMap::new();
    for run in runs {
        let entries = entries_of(engine, run).await?;
        let did = actions::acted(&run.run_id, &entries);
        for entry in did.unknown() {
            batch.append(tape, Draft { date: Some(now.into()), ..entry.of_run(&run.run_id) });
        }
        acted.insert(run.run_id.clone(), did);
        let (run_id, usage) = (run.run_id.clone(), used(&run.run_id, &entries));
        batch.push(Fact::EndRun { run_id, status: RunStatus::Interrupted, usage, at: now });
        if child::has_open_fork(&services.tapes, run).await? {
            batch.push(Fact::CloseFork { fork: run.tape.clone(), merged: false });
        }
    }
    Ok(acted)
}

/// What stands on the tape since a run began.
pub(super) async fn entries_of(engine: &Engine, run: &RunRecord) -> Result<Vec<Entry>, StoreError> {
    engine.services.tapes.read_any_generation(&run.tape, &Slice::after(run.begins_after)).await
}

/// What a run had used, as far as models have said.
fn used(run_id: &RunId, entries: &[Entry]) -> Option<Usage> {
    let is_call = |entry: &&Entry| entry.run_id() == Some(run_id.as_str()) && entry.name() == Some(MODEL_CALL_ENDED);
    let calls = entries.iter().filter(|entry| entry.kind == Kind::Event).filter(is_call);
    let usages = calls.filter_map(|entry| Usage::deserialize(&entry.payload["data"]["usage"]).ok());
    usages.reduce(|sum, usage| sum.plus(&usage))
}

/// The tools that a run had called and that had not answered: what they did is not known.
pub(super) fn open_calls(run_id: &RunId, entries: &[Entry]) -> Vec<String> {
    let mut open: Vec<(String, String)> = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for entry in entries.iter().filter(|entry| entry.run_id() == Some(run_id.as_str())) {
        match (&entry.kind, entry.name()) {
            (Kind::ToolCall, _) => {
                let calls = entry.payload["calls"].as_array().into_iter().flatten();
                open.extend(calls.map(|call| (text(&call["id"]), text(&call["function"]["name"]))));
            }
            (Kind::ToolResult, _) => {
                for id in entry.payload["call_ids"].as_array().into_iter().flatten().map(text) {
                    // Ids may be used again in a later step: the newest call is meant.
                    if let Some(position) = open.iter().rposition(|(call, _)| *call == id) {
                        open.remove(position);
                    }
                }
            }
            (Kind::Event, Some(COMMAND_START)) => {
                open.push((COMMAND_START.to_owned(), text(&entry.payload["data"]["name"])));
            }
            (Kind::Event, Some(COMMAND)) => open.retain(|(id, _)| id != COMMAND_START),
            _ => {}
        }
    }
    let mut names: Vec<String> = open.into_iter().map(|(_, name)| name).collect();
    names.dedup();
    names
}
