//! What runners keep in the host, after every crash: whole or not at all, told of on the tape, and once.

use capstan::tape::{Entry, blob_hash};
use serde_json::{Value, json};

use crate::script::{ScriptedMessage, TrialScript};
use crate::snapshot::TrialSnapshot;
use crate::trial::TrialReport;

/// Everything that does not hold.
pub fn find_problems(script: &TrialScript, report: &TrialReport) -> Vec<String> {
    let mut found = Vec::new();
    for said in script.messages.iter().filter(|said| said.for_state_runner) {
        for snapshot in report.deaths.iter().chain([&report.end]) {
            check_recorded(said, snapshot, &mut found);
        }
        check_final_state(said, &report.end, &mut found);
    }
    found
}

/// What is kept under a key that no other message asks for.
fn stored_value<'a>(snapshot: &'a TrialSnapshot, kind: &str, key: &str) -> Option<&'a Value> {
    let of_key = |((space, known), _): &(&(String, String), &Value)| space.starts_with(kind) && known == key;
    snapshot.stored_values.iter().find(of_key).map(|(_, value)| value)
}

/// How often the tape tells of it.
fn count_entries(snapshot: &TrialSnapshot, said: &ScriptedMessage, is_it: impl Fn(&Entry, &Value) -> bool) -> usize {
    let Some(record) = snapshot.events.get(&said.id) else { return 0 };
    let entries = snapshot.tapes.get(&record.tape).map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| is_it(entry, &entry.payload["data"])).count()
}

fn count_state_changes(snapshot: &TrialSnapshot, said: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, said, |entry, data| {
        entry.name() == Some("state.changed") && data["changes"][0]["key"] == key
    })
}

fn count_storage_puts(snapshot: &TrialSnapshot, said: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, said, |entry, data| entry.name() == Some("storage.changed") && data["name"] == key)
}

fn count_artifacts(snapshot: &TrialSnapshot, said: &ScriptedMessage, key: &str) -> usize {
    count_entries(snapshot, said, |entry, data| entry.name() == Some("artifact.created") && data["name"] == key)
}

/// At every moment: what is kept is told of and what is told of is kept; what belongs to the end of a run is there when
/// its event has ended, and not before.
fn check_recorded(said: &ScriptedMessage, snapshot: &TrialSnapshot, found: &mut Vec<String>) {
    let has_ended = snapshot.outcome(&said.id).is_some();
    for (task, key) in said.state_tasks() {
        let (is_kept, is_told) = match task {
            "count" | "set" => {
                (stored_value(snapshot, "state:", key).is_some(), count_state_changes(snapshot, said, key) > 0)
            }
            "put" => (stored_value(snapshot, "storage:", key).is_some(), count_storage_puts(snapshot, said, key) > 0),
            // Whether the content is whole is looked at where all of them are.
            _ => (count_artifacts(snapshot, said, key) > 0, count_artifacts(snapshot, said, key) > 0),
        };
        if is_kept != is_told {
            found.push(format!("{task} {key}: kept is {is_kept}, told of is {is_told}"));
        }
        if matches!(task, "count" | "yield") && is_kept != has_ended {
            found.push(format!("{task} {key}: kept is {is_kept}, but that its event has ended is {has_ended}"));
        }
    }
}

/// At the end: what was asked for, and what belongs to the end of a run once.
fn check_final_state(said: &ScriptedMessage, end: &TrialSnapshot, found: &mut Vec<String>) {
    if end.outcome(&said.id) != Some("replied") {
        return;
    }
    let runs = end.runs.iter().filter(|run| run.event.event_id.as_str() == said.id).count();
    for (task, key) in said.state_tasks() {
        let is_right = match task {
            "count" => stored_value(end, "state:", key) == Some(&json!(1)) && count_state_changes(end, said, key) == 1,
            "set" => {
                stored_value(end, "state:", key) == Some(&json!(said.id)) && count_state_changes(end, said, key) <= runs
            }
            "put" => {
                let hash = stored_value(end, "storage:", key).map(|place| &place["hash"]);
                hash == Some(&json!(blob_hash(said.text.as_bytes()))) && count_storage_puts(end, said, key) <= runs
            }
            "yield" => count_artifacts(end, said, key) == 1,
            // One for each run that came so far: the one that was cut off has its own.
            "make" => (1..=runs).contains(&count_artifacts(end, said, key)),
            _ => true,
        };
        if !is_right {
            found.push(format!("{task} {key} is not as it was asked for, after {runs} runs: {:?}", end.stored_values));
        }
    }
}
