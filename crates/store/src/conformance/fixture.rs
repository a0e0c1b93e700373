//! What the suites are arranged with.

use capstan_protocol::{
    Authority, BindingId, ChatMessage, EntryId, Event, EventKey, Grant, Map, Outbound, RunId, RunnerId, SessionId,
    TapeAccess, TapeName, Timestamp, ToolCall, ToolOutput, Uses,
};
use capstan_tape::{
    Batch, Committed, Draft, Entry, EntryDate, EntryRef, Fact, Kind, NewOutbound, NewTape, RunRecord, RunStatus, Slice,
    Store, Tapes,
};
use serde_json::{Value, json};

pub(super) fn name(text: &str) -> TapeName {
    TapeName::parse(text).expect("a name of these suites is valid")
}

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn key(event_id: &str) -> EventKey {
    EventKey { source: "cli".into(), bot_id: String::new(), event_id: event_id.into() }
}

pub(super) fn user(text: &str) -> Draft {
    Draft::message(&ChatMessage::user(text))
}

pub(super) fn call(id: &str) -> Draft {
    Draft::tool_call(&[ToolCall::new(id, "bash", "{}")])
}

pub(super) fn result(id: &str) -> Draft {
    Draft::tool_result(id, &ToolOutput::ok("done"))
}

pub(super) fn anchor(name: &str) -> Draft {
    Draft::anchor(name, &Map::new())
}

/// An entry as a file of another system might have it.
pub(super) fn entry(id: u64, kind: &str, payload: Value) -> Entry {
    Entry {
        id: EntryId(id),
        kind: Kind::from(kind),
        payload,
        meta: Map::new(),
        date: EntryDate::verbatim("2026-11-15T20:57:42.680379+00:00"),
        extra: Map::new(),
    }
}

/// Entries that are hard to keep: unknown kinds, foreign keys and dates, numbers and text of every kind.
pub(super) fn odd_entries() -> Vec<Entry> {
    let mut odd =
        entry(2, "bub.custom", json!({"deep": [1, -2.5, 0.1, 1e-7, u64::MAX, {"z": null, "a": "你好 🐋\n\u{0}"}]}));
    odd.meta.insert("nested".into(), json!({"b": 1, "a": [true, 0.300_000_000_000_000_04]}));
    odd.extra.insert("vendor".into(), json!({"kept": true}));
    odd.date = EntryDate::verbatim("last tuesday");
    let mut bare = entry(7, "message", Value::Null);
    bare.date = EntryDate::verbatim("2026-11-15 20:57:42");
    vec![odd, bare, entry(8, "anchor", json!({"state": {}})), entry(9, "anchor", json!({"name": 7}))]
}

pub(super) fn run_record(id: &str, started_at: Timestamp) -> RunRecord {
    RunRecord {
        run_id: RunId::new(id),
        session: SessionId::new("s"),
        tape: name("t"),
        begins_after: EntryId(3),
        parent: None,
        event: key("e"),
        others: Vec::new(),
        binding: BindingId::new("default"),
        runner: RunnerId::new("builtin:agent"),
        grant: Grant {
            may: Authority { tools: Uses::only(["bash"]), tape: TapeAccess::Read, prompt: true, ..Authority::none() },
            approvals: Vec::new(),
            state_limits: Default::default(),
            shell_commands: false,
        },
        status: RunStatus::Running,
        started_at,
        ended_at: None,
        usage: None,
        bypasses_host: false,
        cancel_requested: false,
    }
}

pub(super) fn outbound(text: &str) -> NewOutbound {
    let event = Event::message("cli", "local", "hi");
    NewOutbound {
        message: Outbound::reply_to(&event, SessionId::new("s"), text),
        event: key("e"),
        at: at(5),
        owner: "p1".to_owned(),
    }
}

/// One fact as a batch.
pub(super) fn just(fact: Fact) -> Batch {
    Batch { facts: vec![fact], ..Batch::default() }
}

pub(super) fn ensure(tape: &TapeName) -> Fact {
    Fact::EnsureTape(NewTape::named(tape.clone()))
}

/// A batch that makes a tape known and appends to it.
pub(super) fn begin(tape: &TapeName, drafts: impl IntoIterator<Item = Draft>) -> Batch {
    let mut batch = just(ensure(tape));
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

/// A batch that appends to a tape.
pub(super) fn more(tape: &TapeName, drafts: impl IntoIterator<Item = Draft>) -> Batch {
    let mut batch = Batch::new();
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

pub(super) async fn commit(store: &dyn Store, batch: Batch) -> Committed {
    store.commit(batch).await.expect("the batch is applied")
}

pub(super) async fn write(tapes: &Tapes, batch: Batch) -> Committed {
    tapes.commit(batch).await.expect("the batch is applied")
}

pub(super) async fn all(store: &dyn Store, tape: &TapeName) -> Vec<Entry> {
    store.read(tape, &Slice::all()).await.expect("the tape is read")
}

pub(super) fn ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.0).collect()
}

/// What a reader would take each entry for: the text of a message, the name of an anchor or event, else the kind.
pub(super) fn said(entries: &[Entry]) -> Vec<String> {
    let say = |entry: &Entry| {
        let text = entry.payload.get("content").and_then(Value::as_str).or(entry.name());
        text.unwrap_or(entry.kind.as_str()).to_owned()
    };
    entries.iter().map(say).collect()
}

pub(super) async fn seen(tapes: &Tapes, tape: &TapeName) -> Vec<String> {
    said(&tapes.read(tape, &Slice::all()).await.expect("the tape is read"))
}

pub(super) fn in_batch(position: usize) -> EntryRef {
    EntryRef::InBatch(position)
}
