//! Entries: the facts on a tape.

use capstan_protocol::{ChatMessage, EntryId, JsonObject, RunId, Timestamp, ToolCall, ToolOutput};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{EntryDate, EntryKind, EntryRef, FactOutput};

/// Keys of `meta` that mean something to the host.
pub mod meta_keys {
    /// `false`: no view shows the entry.
    pub const CONTEXT: &str = "context";
    /// The run the entry belongs to.
    pub const RUN_ID: &str = "run_id";
    /// Its place among the entries of that run.
    pub const SEQUENCE: &str = "sequence";
    /// On an anchor: the messages its run had taken in.
    pub const MESSAGES: &str = "messages";
    /// Opaque provider data that must go back with the message.
    pub const PROVIDER: &str = "provider";
}

/// Keys of the payload of an event.
mod event_keys {
    /// Name of the event.
    pub(super) const NAME: &str = "name";
    /// Data of the event.
    pub(super) const DATA: &str = "data";
}

/// One fact on a tape. It never changes.
///
/// On the wire it is the object `{"id", "kind", "payload", "meta", "date"}`; other keys are kept in `extra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place on the tape.
    pub id: EntryId,
    /// What it is.
    pub kind: EntryKind,
    /// What it says.
    #[serde(default)]
    pub payload: Value,
    /// What is known about it.
    #[serde(default)]
    pub meta: JsonObject,
    /// When it was written.
    pub date: EntryDate,
    /// Keys of other systems.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl Entry {
    /// Whether views leave it out.
    pub fn is_hidden(&self) -> bool {
        self.meta.get(meta_keys::CONTEXT) == Some(&Value::Bool(false))
    }

    /// The run it belongs to.
    pub fn run_id(&self) -> Option<&str> {
        self.meta.get(meta_keys::RUN_ID)?.as_str()
    }

    /// Its place among the entries of its run.
    pub fn sequence(&self) -> Option<u64> {
        self.meta.get(meta_keys::SEQUENCE)?.as_u64()
    }

    /// The name of an anchor or an event.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.payload)
    }

    /// The data of an event, as it is written.
    pub fn data(&self) -> Option<&Value> {
        self.payload.get(event_keys::DATA)
    }

    /// The messages an anchor names.
    pub fn named_messages(&self) -> Vec<EntryId> {
        let ids = self.meta.get(meta_keys::MESSAGES).and_then(Value::as_array);
        ids.into_iter().flatten().filter_map(Value::as_u64).map(EntryId).collect()
    }
}

/// An entry that is not on a tape yet: the store gives it its id, and its date unless it brings one.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryDraft {
    /// What it is.
    pub kind: EntryKind,
    /// What it says.
    pub payload: Value,
    /// What is known about it.
    pub meta: JsonObject,
    /// When it happened; absent: when it is committed.
    pub date: Option<EntryDate>,
    /// Keys of other systems.
    pub extra: JsonObject,
    /// The messages it names (for an anchor), written to `meta.messages` when their ids are known.
    pub named_messages: Vec<EntryRef>,
}

impl EntryDraft {
    /// An entry of any kind.
    pub fn new(kind: EntryKind, payload: Value) -> Self {
        Self {
            kind,
            payload,
            meta: JsonObject::new(),
            date: None,
            extra: JsonObject::new(),
            named_messages: Vec::new(),
        }
    }

    /// Something said.
    pub fn message(message: &ChatMessage) -> Self {
        Self::new(EntryKind::Message, Value::Object(message.to_payload()))
    }

    /// An event of any name with its data. Events are never part of a view. Capstan's own are made of
    /// [`TapeEvent`](crate::TapeEvent).
    pub fn event(name: &str, data: Value) -> Self {
        let payload = [(event_keys::NAME, Value::from(name)), (event_keys::DATA, data)];
        Self::new(EntryKind::Event, Value::from_iter(payload))
    }

    /// The name of an anchor or an event.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.payload)
    }

    /// An anchor with its state.
    pub fn anchor(name: &str, state: &JsonObject) -> Self {
        Self::new(EntryKind::Anchor, json!({ "name": name, "state": state }))
    }

    /// The calls of one step, recorded before any of them is made.
    pub fn tool_call(calls: &[ToolCall]) -> Self {
        Self::new(EntryKind::ToolCall, json!({ "calls": calls }))
    }

    /// The result of one call.
    pub fn tool_result(call_id: &str, output: &ToolOutput) -> Self {
        let draft = Self::new(EntryKind::ToolResult, json!({ "results": [output.content], "call_ids": [call_id] }));
        if output.is_error { draft.with_meta("is_error", json!(true)) } else { draft }
    }

    /// Something that went wrong.
    pub fn error(stage: &str, message: &str) -> Self {
        Self::new(EntryKind::Error, json!({ "stage": stage, "message": message }))
    }

    /// Adds a key to `meta`.
    pub fn with_meta(mut self, key: &str, value: Value) -> Self {
        self.meta.insert(key.to_owned(), value);
        self
    }

    /// Says which run it belongs to.
    pub fn with_run_id(self, run_id: &RunId) -> Self {
        self.with_meta(meta_keys::RUN_ID, json!(run_id))
    }

    /// The same entry with its place among those of its run.
    pub fn with_sequence(self, number: u64) -> Self {
        self.with_meta(meta_keys::SEQUENCE, json!(number))
    }

    /// Keeps it out of every view.
    pub fn hidden(self) -> Self {
        self.with_meta(meta_keys::CONTEXT, json!(false))
    }

    /// Names the messages a run had taken in.
    pub fn with_named_messages(mut self, messages: Vec<EntryRef>) -> Self {
        self.named_messages = messages;
        self
    }

    /// The entry it becomes under an id, its references resolved against what the batch was given so far.
    ///
    /// Every store calls this, so that all of them write the same entry.
    pub fn into_entry(self, id: EntryId, now: Timestamp, assigned: &[FactOutput]) -> Entry {
        let mut meta = self.meta;
        if !self.named_messages.is_empty() {
            let ids: Vec<EntryId> = self.named_messages.iter().filter_map(|name| name.resolve(assigned)).collect();
            meta.insert(meta_keys::MESSAGES.to_owned(), json!(ids));
        }
        let date = self.date.unwrap_or_else(|| now.into());
        Entry { id, kind: self.kind, payload: self.payload, meta, date, extra: self.extra }
    }
}

fn name_in(payload: &Value) -> Option<&str> {
    payload.get(event_keys::NAME)?.as_str()
}

impl From<Entry> for EntryDraft {
    /// The same fact, to be put on another tape under another id.
    fn from(entry: Entry) -> Self {
        Self {
            kind: entry.kind,
            payload: entry.payload,
            meta: entry.meta,
            date: Some(entry.date),
            extra: entry.extra,
            named_messages: Vec::new(),
        }
    }
}
