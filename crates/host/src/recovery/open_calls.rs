//! The tools that a run was waiting for when it was cut off.

use capstan_protocol::RunId;
use capstan_tape::{Entry, Kind};
use serde_json::Value;

use super::left::{COMMAND, COMMAND_START};

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
