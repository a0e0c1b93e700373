//! Helpers of the tape tests.
pub mod grammar;
pub mod random;

use capstan_protocol::{ChatMessage, TapeName, ToolCall, ToolOutput};
use capstan_tape::{Batch, Entry, EntryDraft, EntryRef, Fact, NewTape, TapeRepository};

pub fn name(text: &str) -> TapeName {
    TapeName::parse(text).unwrap()
}

pub fn user(text: &str) -> EntryDraft {
    EntryDraft::message(&ChatMessage::user(text))
}

pub fn assistant(text: &str) -> EntryDraft {
    EntryDraft::message(&ChatMessage::assistant(text))
}

pub fn calls(ids: &[&str]) -> EntryDraft {
    let calls: Vec<ToolCall> = ids.iter().map(|id| ToolCall::new(*id, "bash", "{}")).collect();
    EntryDraft::tool_call(&calls)
}

pub fn result(id: &str, text: &str) -> EntryDraft {
    EntryDraft::tool_result(id, &ToolOutput::ok(text))
}

/// Creates a tape if needed, appends entries and returns their ids.
pub async fn write(tapes: &TapeRepository, tape: &TapeName, drafts: impl IntoIterator<Item = EntryDraft>) -> Vec<u64> {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    let entries: Vec<EntryRef> = drafts.into_iter().map(|draft| batch.append(tape, draft)).collect();
    let receipt = tapes.commit(batch).await.unwrap();
    entries.into_iter().filter_map(|entry| receipt.entry_id(entry)).map(|id| id.0).collect()
}

/// Entries of the sample tape, which was written by Bub.
pub fn sample() -> Vec<Entry> {
    let lines = include_str!("../../../../store/tests/data/tape-sample.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs an async test body on the current thread.
pub fn run<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(body)
}
