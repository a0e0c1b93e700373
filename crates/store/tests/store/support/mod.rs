//! Builders and helpers for the tests of this crate.
use capstan_protocol::{ChatMessage, EntryId, JsonObject, TapeName};
use capstan_tape::{Batch, Entry, EntryDate, EntryDraft, EntryKind, Fact, NewTape, Store, TapeSlice};
use serde_json::{Value, json};

pub fn name(text: &str) -> TapeName {
    TapeName::parse(text).unwrap()
}

pub fn user(text: &str) -> EntryDraft {
    EntryDraft::message(&ChatMessage::user(text))
}

/// Batch that creates a tape and appends messages to it.
pub fn messages(tape: &TapeName, texts: &[&str]) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    for text in texts {
        batch.append(tape, user(text));
    }
    batch
}

pub fn entry(id: u64, kind: &str, payload: Value) -> Entry {
    Entry {
        id: EntryId(id),
        kind: EntryKind::from(kind),
        payload,
        meta: JsonObject::new(),
        date: EntryDate::verbatim("2026-11-15T20:57:42.680379+00:00"),
        extra: JsonObject::new(),
    }
}

pub fn message(id: u64, text: &str) -> Entry {
    entry(id, "message", json!({"role": "user", "content": text}))
}

pub fn ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.0).collect()
}

pub fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.payload["content"].as_str().unwrap_or_default().to_owned()).collect()
}

pub async fn all(store: &dyn Store, tape: &TapeName) -> Vec<Entry> {
    store.read(tape, &TapeSlice::all()).await.unwrap()
}

/// Path of a tape file that Bub wrote.
pub fn sample() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tape-sample.jsonl")
}
