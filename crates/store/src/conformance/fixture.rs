//! Builders and helpers of the suites.

use capstan_protocol::{
    BindingId, ChatMessage, CommandAccess, EntryId, Event, EventKey, Grant, JsonObject, OutboundMessage, PermissionSet,
    ResourceAccess, RunId, RunnerId, SessionId, TapeAccess, TapeName, Timestamp, ToolCall, ToolOutput,
};
use capstan_tape::{
    Batch, CommitReceipt, Entry, EntryDate, EntryDraft, EntryKind, EntryRef, Fact, NewOutboxMessage, NewTape,
    RunRecord, RunStatus, Store, TapeRepository, TapeSlice,
};
use serde_json::{Value, json};

pub(super) fn tape_name(text: &str) -> TapeName {
    TapeName::parse(text).expect("a valid tape name")
}

pub(super) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn event_key(event_id: &str) -> EventKey {
    EventKey { source: "cli".into(), bot_id: String::new(), event_id: event_id.into() }
}

pub(super) fn user_message(text: &str) -> EntryDraft {
    EntryDraft::message(&ChatMessage::user(text))
}

pub(super) fn tool_call(id: &str) -> EntryDraft {
    EntryDraft::tool_call(&[ToolCall::new(id, "bash", "{}")])
}

pub(super) fn tool_result(id: &str) -> EntryDraft {
    EntryDraft::tool_result(id, &ToolOutput::ok("done"))
}

pub(super) fn anchor(name: &str) -> EntryDraft {
    EntryDraft::anchor(name, &JsonObject::new())
}

/// Entry with a fixed date, as from a file of Bub.
pub(super) fn entry(id: u64, kind: &str, payload: Value) -> Entry {
    Entry {
        id: EntryId(id),
        kind: EntryKind::from(kind),
        payload,
        meta: JsonObject::new(),
        date: EntryDate::verbatim("2026-11-15T20:57:42.680379+00:00"),
        extra: JsonObject::new(),
    }
}

/// Entries that are hard to preserve: unknown kinds and keys, invalid dates, all kinds of numbers and text.
pub(super) fn unusual_entries() -> Vec<Entry> {
    let mut odd =
        entry(2, "bub.custom", json!({"deep": [1, -2.5, 0.1, 1e-7, u64::MAX, {"z": null, "a": "你好 🐋\n\u{0}"}]}));
    odd.meta.insert("nested".into(), json!({"b": 1, "a": [true, 0.300_000_000_000_000_04]}));
    odd.extra.insert("vendor".into(), json!({"preserved": true}));
    odd.date = EntryDate::verbatim("last tuesday");
    let mut bare = entry(7, "message", Value::Null);
    bare.date = EntryDate::verbatim("2026-11-15 20:57:42");
    vec![odd, bare, entry(8, "anchor", json!({"state": {}})), entry(9, "anchor", json!({"name": 7}))]
}

pub(super) fn run_record(id: &str, started_at: Timestamp) -> RunRecord {
    RunRecord {
        run_id: RunId::new(id),
        session: SessionId::new("s"),
        tape: tape_name("t"),
        begins_after: EntryId(3),
        parent: None,
        event: event_key("e"),
        others: Vec::new(),
        binding: BindingId::new("default"),
        runner: RunnerId::new("builtin:agent"),
        grant: Grant {
            may: PermissionSet {
                tools: ResourceAccess::only(["bash"]),
                tape: TapeAccess::Read,
                prompt: true,
                ..PermissionSet::none()
            },
            approvals: Vec::new(),
            state_limits: Default::default(),
            commands: CommandAccess::All,
            shell_commands: false,
        },
        status: RunStatus::Running,
        started_at,
        deadline: None,
        ended_at: None,
        usage: None,
        bypasses_host: false,
        cancel_requested: false,
    }
}

pub(super) fn new_outbound(text: &str) -> NewOutboxMessage {
    let event = Event::message("cli", "local", "hi");
    NewOutboxMessage {
        message: OutboundMessage::reply_to(&event, SessionId::new("s"), text),
        event: event_key("e"),
        staged_at: timestamp(5),
        owner: "p1".to_owned(),
    }
}

/// Batch of one fact.
pub(super) fn single_fact_batch(fact: Fact) -> Batch {
    Batch { facts: vec![fact], ..Batch::default() }
}

pub(super) fn ensure_tape(tape: &TapeName) -> Fact {
    Fact::EnsureTape(NewTape::without_session(tape.clone()))
}

/// Batch that creates a tape and appends to it.
pub(super) fn create_tape_batch(tape: &TapeName, drafts: impl IntoIterator<Item = EntryDraft>) -> Batch {
    let mut batch = single_fact_batch(ensure_tape(tape));
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

/// Batch that appends to a tape.
pub(super) fn append_batch(tape: &TapeName, drafts: impl IntoIterator<Item = EntryDraft>) -> Batch {
    let mut batch = Batch::new();
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

pub(super) async fn commit(store: &dyn Store, batch: Batch) -> CommitReceipt {
    store.commit(batch).await.expect("the batch is applied")
}

pub(super) async fn commit_to_tapes(tapes: &TapeRepository, batch: Batch) -> CommitReceipt {
    tapes.commit(batch).await.expect("the batch is applied")
}

pub(super) async fn read_all(store: &dyn Store, tape: &TapeName) -> Vec<Entry> {
    store.read(tape, &TapeSlice::all()).await.expect("the tape is read")
}

pub(super) fn entry_ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.0).collect()
}

/// Text of each entry: the content of a message, the name of an anchor or event, otherwise the kind.
pub(super) fn entry_texts(entries: &[Entry]) -> Vec<String> {
    let entry_text = |entry: &Entry| {
        let text = entry.payload.get("content").and_then(Value::as_str).or(entry.name());
        text.unwrap_or(entry.kind.as_str()).to_owned()
    };
    entries.iter().map(entry_text).collect()
}

pub(super) async fn read_texts(tapes: &TapeRepository, tape: &TapeName) -> Vec<String> {
    entry_texts(&tapes.read(tape, &TapeSlice::all()).await.expect("the tape is read"))
}

pub(super) fn batch_entry(position: usize) -> EntryRef {
    EntryRef::InBatch(position)
}
