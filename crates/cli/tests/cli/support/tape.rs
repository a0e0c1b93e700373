//! Queries on the entries of a tape.

use std::fmt::Write as _;
use std::path::Path;

use md5::{Digest as _, Md5};
use serde_json::Value;

/// Name of a session's tape, computed from its specification (P5).
pub fn tape_name(workspace: &Path, session: &str) -> String {
    let workspace = workspace.to_str().expect("a workspace with a plain name");
    format!("{}__{}", short_md5(workspace), short_md5(session))
}

fn short_md5(text: &str) -> String {
    let mut hex = String::new();
    for byte in Md5::digest(text) {
        write!(hex, "{byte:02x}").expect("writing to a string succeeds");
    }
    hex.truncate(16);
    hex
}

/// Entries of a kind.
pub fn entries_of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["kind"] == kind).collect()
}

/// Events and anchors with a name.
pub fn entries_named<'a>(entries: &'a [Value], name: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["payload"]["name"] == name).collect()
}

/// Ids of entries.
pub fn entry_ids(entries: &[Value]) -> Vec<u64> {
    entries.iter().map(|entry| entry["id"].as_u64().expect("an id is a number")).collect()
}
