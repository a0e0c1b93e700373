//! Checks of stored state after every crash: complete or absent, recorded on the tape, and exactly once.

use capstan::tape::{Entry, blob_hash};
use serde_json::{Value, json};

use crate::script::{ScriptedMessage, TrialScript};
use crate::snapshot::TrialSnapshot;
use crate::trial::TrialReport;

/// Returns all violations.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut problems = Vec::new();
    for message in script.messages.iter().filter(|message| message.for_state_runner) {
        for snapshot in report.deaths.iter().chain([&report.end]) {
            check_recorded(message, snapshot, &mut problems);
        }
        check_final_state(message, &report.end, &mut problems);
    }
    problems
}

/// Returns the value stored under a key that only one message uses.
fn stored_value<'a>(snapshot: &'a TrialSnapshot, kind: &str, key: &str) -> Option<&'a Value> {
    let matches =
        |((namespace, stored_key), _): &(&(String, String), &Value)| namespace.starts_with(kind) && stored_key == key;
    snapshot.stored_values.iter().find(matches).map(|(_, value)| value)
}

/// Counts the entries of a message's tape that match.
fn count_entries(
    snapshot: &TrialSnapshot,
    message: &ScriptedMessage,
    matches: impl Fn(&Entry, &Value) -> bool,
) -> usize {
    let Some(record) = snapshot.events.get(&message.id) else { return 0 };
    let entries = snapshot.tapes.get(&record.tape).map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| matches(entry, &entry.payload["data"])).count()
}

fn count_state_changes(snapshot: &TrialSnapshot, message: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, message, |entry, data| {
        entry.name() == Some("state.changed") && data["changes"][0]["key"] == key
    })
}

fn count_storage_puts(snapshot: &TrialSnapshot, message: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, message, |entry, data| entry.name() == Some("storage.changed") && data["name"] == key)
}

fn count_artifacts(snapshot: &TrialSnapshot, message: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, message, |entry, data| entry.name() == Some("artifact.created") && data["name"] == key)
}

/// At every moment: a value is stored exactly if its entry is on the tape; results of a run are stored exactly if its
/// event has ended.
fn check_recorded(message: &ScriptedMessage, snapshot: &TrialSnapshot, problems: &mut Vec<String>) {
    let has_ended = snapshot.outcome(&message.id).is_some();
    for (task, key) in message.state_tasks() {
        let (is_stored, is_recorded) = match task {
            "count" | "set" => {
                (stored_value(snapshot, "state:", key).is_some(), count_state_changes(snapshot, message, key) > 0)
            }
            "put" => {
                (stored_value(snapshot, "storage:", key).is_some(), count_storage_puts(snapshot, message, key) > 0)
            }
            // The content itself is checked with all others in the snapshot.
            _ => (count_artifacts(snapshot, message, key) > 0, count_artifacts(snapshot, message, key) > 0),
        };
        if is_stored != is_recorded {
            problems.push(format!("{task} {key}: stored is {is_stored}, recorded is {is_recorded}"));
        }
        if matches!(task, "count" | "yield") && is_stored != has_ended {
            problems.push(format!("{task} {key}: stored is {is_stored}, but the event has ended is {has_ended}"));
        }
    }
}

/// At the end: the requested values are stored, results of a run once.
fn check_final_state(message: &ScriptedMessage, end: &TrialSnapshot, problems: &mut Vec<String>) {
    if end.outcome(&message.id) != Some("replied") {
        return;
    }
    let runs = end.runs.iter().filter(|run| run.event.event_id.as_str() == message.id).count();
    for (task, key) in message.state_tasks() {
        let is_correct = match task {
            "count" => {
                stored_value(end, "state:", key) == Some(&json!(1)) && count_state_changes(end, message, key) == 1
            }
            "set" => {
                stored_value(end, "state:", key) == Some(&json!(message.id))
                    && count_state_changes(end, message, key) <= runs
            }
            "put" => {
                let hash = stored_value(end, "storage:", key).map(|reference| &reference["hash"]);
                hash == Some(&json!(blob_hash(message.text.as_bytes())))
                    && count_storage_puts(end, message, key) <= runs
            }
            "yield" => count_artifacts(end, message, key) == 1,
            // At least one, and at most one for each run, including the interrupted one.
            "make" => (1..=runs).contains(&count_artifacts(end, message, key)),
            _ => true,
        };
        if !is_correct {
            problems.push(format!("{task} {key} is not as requested, after {runs} runs: {:?}", end.stored_values));
        }
    }
}
