//! What runners keep in the host, after every crash: whole or not at all, told of on the tape, and once.

use capstan::tape::{Entry, blob_hash};
use serde_json::{Value, json};

use crate::script::{Said, Script};
use crate::snapshot::Snapshot;
use crate::trial::Report;

/// Everything that does not hold.
pub fn problems(script: &Script, report: &Report) -> Vec<String> {
    let mut found = Vec::new();
    for said in script.said.iter().filter(|said| said.for_keeper) {
        for snapshot in report.deaths.iter().chain([&report.end]) {
            told_of(said, snapshot, &mut found);
        }
        as_asked(said, &report.end, &mut found);
    }
    found
}

/// What is kept under a key that no other message asks for.
fn kept<'a>(snapshot: &'a Snapshot, kind: &str, key: &str) -> Option<&'a Value> {
    let of_key = |((space, known), _): &(&(String, String), &Value)| space.starts_with(kind) && known == key;
    snapshot.kept.iter().find(of_key).map(|(_, value)| value)
}

/// How often the tape tells of it.
fn told(snapshot: &Snapshot, said: &Said, is_it: impl Fn(&Entry, &Value) -> bool) -> usize {
    let Some(record) = snapshot.events.get(&said.id) else { return 0 };
    let entries = snapshot.tapes.get(&record.tape).map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| is_it(entry, &entry.payload["data"])).count()
}

fn changes(snapshot: &Snapshot, said: &Said, key: &str) -> usize {
    told(snapshot, said, |entry, data| entry.name() == Some("state.changed") && data["changes"][0]["key"] == key)
}

fn puts(snapshot: &Snapshot, said: &Said, key: &str) -> usize {
    told(snapshot, said, |entry, data| entry.name() == Some("storage.changed") && data["name"] == key)
}

fn artifacts(snapshot: &Snapshot, said: &Said, key: &str) -> usize {
    told(snapshot, said, |entry, data| entry.name() == Some("artifact.created") && data["name"] == key)
}

/// At every moment: what is kept is told of and what is told of is kept; what belongs to the end of a run is there when
/// its event has ended, and not before.
fn told_of(said: &Said, snapshot: &Snapshot, found: &mut Vec<String>) {
    let has_ended = snapshot.outcome(&said.id).is_some();
    for (task, key) in said.kept() {
        let (is_kept, is_told) = match task {
            "count" | "set" => (kept(snapshot, "state:", key).is_some(), changes(snapshot, said, key) > 0),
            "put" => (kept(snapshot, "storage:", key).is_some(), puts(snapshot, said, key) > 0),
            // Whether the content is whole is looked at where all of them are.
            _ => (artifacts(snapshot, said, key) > 0, artifacts(snapshot, said, key) > 0),
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
fn as_asked(said: &Said, end: &Snapshot, found: &mut Vec<String>) {
    if end.outcome(&said.id) != Some("replied") {
        return;
    }
    let runs = end.runs.iter().filter(|run| run.event.event_id.as_str() == said.id).count();
    for (task, key) in said.kept() {
        let is_right = match task {
            "count" => kept(end, "state:", key) == Some(&json!(1)) && changes(end, said, key) == 1,
            "set" => kept(end, "state:", key) == Some(&json!(said.id)) && changes(end, said, key) <= runs,
            "put" => {
                let hash = kept(end, "storage:", key).map(|place| &place["hash"]);
                hash == Some(&json!(blob_hash(said.text.as_bytes()))) && puts(end, said, key) <= runs
            }
            "yield" => artifacts(end, said, key) == 1,
            // One for each run that came so far: the one that was cut off has its own.
            "make" => (1..=runs).contains(&artifacts(end, said, key)),
            _ => true,
        };
        if !is_right {
            found.push(format!("{task} {key} is not as it was asked for, after {runs} runs: {:?}", end.kept));
        }
    }
}
