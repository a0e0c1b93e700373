//! What must hold after every crash, whenever it came.

use std::collections::{BTreeMap, BTreeSet};

use capstan::protocol::Outcome;
use capstan::tape::{Entry, EntryKind, RunStatus};
use serde_json::Value;

use crate::script::{ScriptedMessage, TrialScript};
use crate::snapshot::TrialSnapshot;
use crate::trial::TrialReport;
use crate::{delivery_checks, state_checks};

/// Everything that does not hold; nothing if all is well.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(report.platform.refused.iter().map(|refused| format!("refused: {refused}")));
    for snapshot in report.deaths.iter().chain([&report.end]) {
        found.extend(snapshot.damage.iter().map(|damage| format!("damage: {damage}")));
        check_conservation(snapshot, &mut found);
    }
    for death in &report.deaths {
        check_entries_unchanged(death, &report.end, &mut found);
        check_interrupted_runs(death, &report.end, &mut found);
        check_returned_together(death, &report.end, &mut found);
    }
    for said in &script.messages {
        check_outcome(said, report, &mut found);
        check_executions(said, report, &mut found);
        check_tape(said, &report.end, &mut found);
    }
    found.extend(state_checks::find_problems(script, report));
    found.extend(delivery_checks::find_problems(script, report));
    found
}

/// X1: every event that a tape tells of has ended or is in flight, and is told of once.
fn check_conservation(snapshot: &TrialSnapshot, found: &mut Vec<String>) {
    let told = snapshot.tapes.values().flatten().filter(|entry| entry.name() == Some("event.accepted"));
    let mut told: Vec<String> = told.map(|entry| value_text(&entry.payload["data"]["event"]["event_id"])).collect();
    let settled = snapshot.settled.iter().map(|key| key.event_id.to_string());
    let flying = snapshot.in_flight.iter().map(|event| event.key.event_id.to_string());
    let mut known: Vec<String> = settled.chain(flying).collect();
    told.sort();
    known.sort();
    if told != known {
        found.push(format!("the tapes tell of {told:?}, but ended or in flight are {known:?}"));
    }
    for id in &snapshot.acknowledged {
        if !told.contains(id) {
            found.push(format!("{id} was acknowledged, and no tape tells of it"));
        }
    }
}

/// X2: what stood on a tape stands there still, under the same id.
fn check_entries_unchanged(death: &TrialSnapshot, end: &TrialSnapshot, found: &mut Vec<String>) {
    for (tape, entries) in &death.tapes {
        let now = end.tapes.get(tape).map(Vec::as_slice).unwrap_or_default();
        if now.get(..entries.len()) != Some(entries) {
            found.push(format!("the entries of {tape} changed"));
        }
    }
}

/// G10: a run that went on when the host died is marked as interrupted, and no other is.
fn check_interrupted_runs(death: &TrialSnapshot, end: &TrialSnapshot, found: &mut Vec<String>) {
    for run in &death.running {
        let status = end.runs.iter().find(|known| known.run_id == run.run_id).map(|known| known.status);
        if status != Some(RunStatus::Interrupted) {
            found.push(format!("the run of {} was cut off, and is {status:?}", run.event.event_id));
        }
    }
}

/// A9: events that a run had taken in return together.
fn check_returned_together(death: &TrialSnapshot, end: &TrialSnapshot, found: &mut Vec<String>) {
    let mut together: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for event in &death.in_flight {
        let Some(taken) = &event.ingestion else { continue };
        let ended = end.events.get(event.key.event_id.as_str()).and_then(|record| record.outcome.as_ref());
        let run = ended.and_then(|(_, run_id)| run_id.as_ref()).map(ToString::to_string).unwrap_or_default();
        together.entry(taken.run_id.as_str()).or_default().insert(run);
    }
    for (run, ends) in together.into_iter().filter(|(_, ends)| ends.len() > 1) {
        found.push(format!("the events of {run} did not return together: {ends:?}"));
    }
}

/// X1, X2: one of the outcomes it may have; given up exactly where nobody can tell what was done.
fn check_outcome(said: &ScriptedMessage, report: &TrialReport, found: &mut Vec<String>) {
    let id = said.id.as_str();
    let Some(ended) = report.end.events.get(id).and_then(|record| record.outcome.as_ref()) else {
        return found.push(format!("{id} has no outcome"));
    };
    let must_be_given_up = report.deaths.iter().any(|death| has_unknown_effects(id, death));
    let is_given_up = is_given_up(&ended.0);
    if must_be_given_up != is_given_up {
        found.push(format!("{id} was given up: {is_given_up}, but should be: {must_be_given_up}; it is {:?}", ended.0));
    }
    if !is_given_up && !said.allowed_outcomes.contains(&ended.0.name()) {
        found.push(format!("{id} ended as {:?}, and not as one of {:?}", ended.0, said.allowed_outcomes));
    }
}

/// Whether this is the end of an event that was not tried again.
pub fn is_given_up(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { notice, .. } if notice.contains("I was interrupted"))
}

/// Whether nobody can tell what the run of an event had done when the host died.
fn has_unknown_effects(id: &str, death: &TrialSnapshot) -> bool {
    let Some(run) = death.run_serving(id) else { return false };
    run.bypasses_host || {
        let entries = death.tapes.get(&run.tape).map(Vec::as_slice).unwrap_or_default();
        has_open_effect(entries.iter().filter(|entry| entry.run_id() == Some(run.run_id.as_str())))
    }
}

fn has_open_effect<'a>(entries: impl Iterator<Item = &'a Entry>) -> bool {
    let mut open: Vec<String> = Vec::new();
    for entry in entries {
        match (&entry.kind, entry.name()) {
            (EntryKind::ToolCall, _) => {
                let calls = entry.payload["calls"].as_array().expect("calls");
                let effects = calls
                    .iter()
                    .filter(|call| !matches!(value_text(&call["function"]["name"]).as_str(), "look" | "watch"));
                open.extend(effects.map(|call| value_text(&call["id"])));
            }
            (EntryKind::ToolResult, _) => {
                let answered: Vec<String> =
                    entry.payload["call_ids"].as_array().expect("ids").iter().map(value_text).collect();
                open.retain(|id| !answered.contains(id));
            }
            (EntryKind::Event, Some("command.start")) if entry.payload["data"]["name"] == "effect" => {
                open.push(String::new());
            }
            (EntryKind::Event, Some("command")) => open.retain(|id| !id.is_empty()),
            _ => {}
        }
    }
    !open.is_empty()
}

/// X2: nothing with an effect is done twice, and what is said to be done was done.
fn check_executions(said: &ScriptedMessage, report: &TrialReport, found: &mut Vec<String>) {
    let is_done = matches!(report.end.outcome(&said.id), Some("replied" | "folded" | "silent"));
    for effect in said.effects() {
        let count = report.executions.iter().filter(|line| **line == effect).count();
        if count > 1 || (is_done && count == 0) {
            found.push(format!("{effect} was done {count} times"));
        }
    }
}

/// A message stands on the tape once, and so does what was answered; a command stands there as none.
fn check_tape(said: &ScriptedMessage, end: &TrialSnapshot, found: &mut Vec<String>) {
    let Some(record) = end.events.get(&said.id) else { return };
    let entries = end.tapes.get(&record.tape).map(Vec::as_slice).unwrap_or_default();
    let of_role = |role: &'static str| {
        let messages =
            entries.iter().filter(move |entry| entry.kind == EntryKind::Message && entry.payload["role"] == role);
        messages.map(|entry| value_text(&entry.payload["content"])).collect::<Vec<_>>()
    };
    let heard = of_role("user").iter().filter(|message| message.lines().any(|line| line == said.text)).count();
    let outcome = record.outcome.as_ref().map(|(outcome, _)| outcome);
    let must_stand = match outcome {
        Some(Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. }) => !said.is_command(),
        _ => false,
    };
    if heard > 1 || (must_stand && heard == 0) || (said.is_command() && heard > 0) {
        found.push(format!("{:?} stands on the tape {heard} times", said.text));
    }
    let mut answers = of_role("assistant");
    let count = answers.len();
    answers.sort();
    answers.dedup();
    if answers.len() < count {
        found.push(format!("an answer stands on the tape of {} twice", said.id));
    }
    if let Some(key) = said.text.split("[handoff ").nth(1).and_then(|text| text.strip_suffix(']')) {
        let anchors =
            entries.iter().filter(|entry| entry.kind == EntryKind::Anchor && entry.name() == Some(key)).count();
        if anchors > 1 || (must_stand && anchors == 0) {
            found.push(format!("the anchor {key} stands on the tape {anchors} times"));
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
