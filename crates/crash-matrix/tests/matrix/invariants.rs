//! Invariants that hold after every crash, at whatever moment.

use std::collections::{BTreeMap, BTreeSet};

use capstan::protocol::Outcome;
use capstan::tape::{Entry, EntryKind, RunStatus};
use serde_json::Value;

use crate::script::{ScriptedMessage, TrialScript};
use crate::snapshot::TrialSnapshot;
use crate::trial::TrialReport;
use crate::{delivery_checks, state_checks};

/// Returns all violations.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(report.platform.refused.iter().map(|refused| format!("refused: {refused}")));
    for snapshot in report.deaths.iter().chain([&report.end]) {
        problems.extend(snapshot.damage.iter().map(|damage| format!("damage: {damage}")));
        check_conservation(snapshot, &mut problems);
    }
    for death in &report.deaths {
        check_entries_unchanged(death, &report.end, &mut problems);
        check_interrupted_runs(death, &report.end, &mut problems);
        check_returned_together(death, &report.end, &mut problems);
    }
    for message in &script.messages {
        check_outcome(message, report, &mut problems);
        check_executions(message, report, &mut problems);
        check_tape(message, &report.end, &mut problems);
    }
    problems.extend(state_checks::find_problems(script, report));
    problems.extend(delivery_checks::find_problems(script, report));
    problems
}

/// X1: every event on a tape is settled or in flight, and recorded once.
fn check_conservation(snapshot: &TrialSnapshot, problems: &mut Vec<String>) {
    let recorded = snapshot.tapes.values().flatten().filter(|entry| entry.name() == Some("event.accepted"));
    let mut recorded: Vec<String> =
        recorded.map(|entry| value_text(&entry.payload["data"]["event"]["event_id"])).collect();
    let settled = snapshot.settled.iter().map(|key| key.event_id.to_string());
    let in_flight = snapshot.in_flight.iter().map(|event| event.key.event_id.to_string());
    let mut accounted: Vec<String> = settled.chain(in_flight).collect();
    recorded.sort();
    accounted.sort();
    if recorded != accounted {
        problems.push(format!("the tapes have {recorded:?}, but settled or in flight are {accounted:?}"));
    }
    for id in &snapshot.acknowledged {
        if !recorded.contains(id) {
            problems.push(format!("{id} was acknowledged, but is on no tape"));
        }
    }
}

/// X2: entries on a tape are never changed or renumbered.
fn check_entries_unchanged(death: &TrialSnapshot, end: &TrialSnapshot, problems: &mut Vec<String>) {
    for (tape, entries) in &death.tapes {
        let final_entries = end.tapes.get(tape).map(Vec::as_slice).unwrap_or_default();
        if final_entries.get(..entries.len()) != Some(entries) {
            problems.push(format!("the entries of {tape} changed"));
        }
    }
}

/// G10: exactly the runs that were running when the host died are marked as interrupted.
fn check_interrupted_runs(death: &TrialSnapshot, end: &TrialSnapshot, problems: &mut Vec<String>) {
    for run in &death.running {
        let status = end.runs.iter().find(|known| known.run_id == run.run_id).map(|known| known.status);
        if status != Some(RunStatus::Interrupted) {
            problems.push(format!("the run of {} was interrupted, but its status is {status:?}", run.event.event_id));
        }
    }
}

/// A9: events that a run had ingested return together.
fn check_returned_together(death: &TrialSnapshot, end: &TrialSnapshot, problems: &mut Vec<String>) {
    let mut final_runs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for event in &death.in_flight {
        let Some(ingestion) = &event.ingestion else { continue };
        let outcome = end.events.get(event.key.event_id.as_str()).and_then(|record| record.outcome.as_ref());
        let run = outcome.and_then(|(_, run_id)| run_id.as_ref()).map(ToString::to_string).unwrap_or_default();
        final_runs.entry(ingestion.run_id.as_str()).or_default().insert(run);
    }
    for (run, ends) in final_runs.into_iter().filter(|(_, ends)| ends.len() > 1) {
        problems.push(format!("the events of {run} did not return together: {ends:?}"));
    }
}

/// X1, X2: the outcome is one of the allowed ones; an event is abandoned exactly if its effects are unknown.
fn check_outcome(message: &ScriptedMessage, report: &TrialReport, problems: &mut Vec<String>) {
    let id = message.id.as_str();
    let Some(outcome) = report.end.events.get(id).and_then(|record| record.outcome.as_ref()) else {
        return problems.push(format!("{id} has no outcome"));
    };
    let must_be_abandoned = report.deaths.iter().any(|death| has_unknown_effects(id, death));
    let is_abandoned = is_abandoned(&outcome.0);
    if must_be_abandoned != is_abandoned {
        problems.push(format!(
            "{id}: abandoned is {is_abandoned}, expected {must_be_abandoned}; its outcome is {:?}",
            outcome.0
        ));
    }
    if !is_abandoned && !message.allowed_outcomes.contains(&outcome.0.name()) {
        problems.push(format!("{id} ended as {:?}, which is not one of {:?}", outcome.0, message.allowed_outcomes));
    }
}

/// Returns true for the outcome of an event that was not retried.
pub fn is_abandoned(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { notice, .. } if notice.contains("I was interrupted"))
}

/// Returns true if the effects of an event's run are unknown after the host died.
fn has_unknown_effects(id: &str, death: &TrialSnapshot) -> bool {
    let Some(run) = death.run_serving(id) else { return false };
    run.bypasses_host || {
        let entries = death.tapes.get(&run.tape).map(Vec::as_slice).unwrap_or_default();
        has_open_effect(entries.iter().filter(|entry| entry.run_id() == Some(run.run_id.as_str())))
    }
}

fn has_open_effect<'a>(entries: impl Iterator<Item = &'a Entry>) -> bool {
    let mut open_effects: Vec<String> = Vec::new();
    for entry in entries {
        match (&entry.kind, entry.name()) {
            (EntryKind::ToolCall, _) => {
                let calls = entry.payload["calls"].as_array().expect("calls");
                let effects = calls
                    .iter()
                    .filter(|call| !matches!(value_text(&call["function"]["name"]).as_str(), "look" | "watch"));
                open_effects.extend(effects.map(|call| value_text(&call["id"])));
            }
            (EntryKind::ToolResult, _) => {
                let answered: Vec<String> =
                    entry.payload["call_ids"].as_array().expect("ids").iter().map(value_text).collect();
                open_effects.retain(|id| !answered.contains(id));
            }
            (EntryKind::Event, Some("command.start")) if entry.payload["data"]["name"] == "effect" => {
                open_effects.push(String::new());
            }
            (EntryKind::Event, Some("command")) => open_effects.retain(|id| !id.is_empty()),
            _ => {}
        }
    }
    !open_effects.is_empty()
}

/// X2: no effect is executed twice, and an event reported as done was executed.
fn check_executions(message: &ScriptedMessage, report: &TrialReport, problems: &mut Vec<String>) {
    let is_done = matches!(report.end.outcome(&message.id), Some("replied" | "folded" | "silent"));
    for effect in message.effects() {
        let count = report.executions.iter().filter(|line| **line == effect).count();
        if count > 1 || (is_done && count == 0) {
            problems.push(format!("{effect} was executed {count} times"));
        }
    }
}

/// A message is on the tape once, and so is its reply; a command is not there as a message.
fn check_tape(message: &ScriptedMessage, end: &TrialSnapshot, problems: &mut Vec<String>) {
    let Some(record) = end.events.get(&message.id) else { return };
    let entries = end.tapes.get(&record.tape).map(Vec::as_slice).unwrap_or_default();
    let of_role = |role: &'static str| {
        let messages =
            entries.iter().filter(move |entry| entry.kind == EntryKind::Message && entry.payload["role"] == role);
        messages.map(|entry| value_text(&entry.payload["content"])).collect::<Vec<_>>()
    };
    let occurrences = of_role("user").iter().filter(|text| text.lines().any(|line| line == message.text)).count();
    let outcome = record.outcome.as_ref().map(|(outcome, _)| outcome);
    let is_required = match outcome {
        Some(Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. }) => !message.is_command(),
        _ => false,
    };
    if occurrences > 1 || (is_required && occurrences == 0) || (message.is_command() && occurrences > 0) {
        problems.push(format!("{:?} is on the tape {occurrences} times", message.text));
    }
    let mut replies = of_role("assistant");
    let count = replies.len();
    replies.sort();
    replies.dedup();
    if replies.len() < count {
        problems.push(format!("a reply is on the tape of {} twice", message.id));
    }
    if let Some(key) = message.text.split("[handoff ").nth(1).and_then(|text| text.strip_suffix(']')) {
        let anchors =
            entries.iter().filter(|entry| entry.kind == EntryKind::Anchor && entry.name() == Some(key)).count();
        if anchors > 1 || (is_required && anchors == 0) {
            problems.push(format!("the anchor {key} is on the tape {anchors} times"));
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
