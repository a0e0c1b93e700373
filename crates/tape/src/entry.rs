//! Entries of a tape.

use capstan_protocol::{ChatMessage, EntryId, JsonObject, RunId, Timestamp, ToolCall, ToolOutput};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{EntryDate, EntryKind, EntryRef, FactOutput};

/// Keys of `meta` that the host uses.
pub mod meta_keys {
    /// `false` hides the entry from all views.
    pub const CONTEXT: &str = "context";
    /// Run that the entry belongs to.
    pub const RUN_ID: &str = "run_id";
    /// Position among the entries of the run.
    pub const SEQUENCE: &str = "sequence";
    /// Messages that the run of an anchor had ingested.
    pub const MESSAGES: &str = "messages";
    /// Opaque provider data that later requests must include with the message.
    pub const PROVIDER: &str = "provider";
    /// Keys of the events that a message was built from.
    pub const EVENTS: &str = "events";
    /// Plugin whose hook requested the entry.
    pub const PLUGIN: &str = "plugin";
}

/// Keys of the payload of an event.
mod event_keys {
    /// Name of the event.
    pub(super) const NAME: &str = "name";
    /// Data of the event.
    pub(super) const DATA: &str = "data";
}

/// Immutable entry of a tape.
///
/// Its JSON form is the object `{"id", "kind", "payload", "meta", "date"}`; other keys are preserved in `extra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Position on the tape.
    pub id: EntryId,
    /// Kind of entry.
    pub kind: EntryKind,
    /// Content, by its kind.
    #[serde(default)]
    pub payload: Value,
    /// Metadata, see [`meta_keys`].
    #[serde(default)]
    pub meta: JsonObject,
    /// Date of the entry.
    pub date: EntryDate,
    /// Keys of other systems.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl Entry {
    /// Returns true if views omit the entry.
    pub fn is_hidden(&self) -> bool {
        self.meta.get(meta_keys::CONTEXT) == Some(&Value::Bool(false))
    }

    /// Run that the entry belongs to.
    pub fn run_id(&self) -> Option<&str> {
        self.meta.get(meta_keys::RUN_ID)?.as_str()
    }

    /// Position among the entries of the run.
    pub fn sequence(&self) -> Option<u64> {
        self.meta.get(meta_keys::SEQUENCE)?.as_u64()
    }

    /// Name of an anchor or an event.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.payload)
    }

    /// Raw data of an event.
    pub fn data(&self) -> Option<&Value> {
        self.payload.get(event_keys::DATA)
    }

    /// Messages that an anchor carries over into its window.
    pub fn named_messages(&self) -> Vec<EntryId> {
        let ids = self.meta.get(meta_keys::MESSAGES).and_then(Value::as_array);
        ids.into_iter().flatten().filter_map(Value::as_u64).map(EntryId).collect()
    }
}

/// Entry to be appended. The store assigns its id, and its date if it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryDraft {
    /// Kind of entry.
    pub kind: EntryKind,
    /// Content, by its kind.
    pub payload: Value,
    /// Metadata, see [`meta_keys`].
    pub meta: JsonObject,
    /// Date of the entry; absent: the time of the commit.
    pub date: Option<EntryDate>,
    /// Keys of other systems.
    pub extra: JsonObject,
    /// Messages that an anchor carries over, written to `meta.messages` when their ids are known.
    pub named_messages: Vec<EntryRef>,
}

impl EntryDraft {
    /// Entry of any kind.
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

    /// Chat message.
    pub fn message(message: &ChatMessage) -> Self {
        Self::new(EntryKind::Message, Value::Object(message.to_payload()))
    }

    /// Event with any name and data. Views do not show events. Capstan's own events are created from
    /// [`TapeEvent`](crate::TapeEvent).
    pub fn event(name: &str, data: Value) -> Self {
        let payload = [(event_keys::NAME, Value::from(name)), (event_keys::DATA, data)];
        Self::new(EntryKind::Event, Value::from_iter(payload))
    }

    /// Name of an anchor or an event.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.payload)
    }

    /// Anchor with its state.
    pub fn anchor(name: &str, state: &JsonObject) -> Self {
        Self::new(EntryKind::Anchor, json!({ "name": name, "state": state }))
    }

    /// Tool calls of one step, recorded before the first of them is made.
    pub fn tool_call(calls: &[ToolCall]) -> Self {
        Self::new(EntryKind::ToolCall, json!({ "calls": calls }))
    }

    /// Result of one tool call.
    pub fn tool_result(call_id: &str, output: &ToolOutput) -> Self {
        let draft = Self::new(EntryKind::ToolResult, json!({ "results": [output.content], "call_ids": [call_id] }));
        if output.is_error { draft.with_meta("is_error", json!(true)) } else { draft }
    }

    /// Error in a stage of the turn.
    pub fn error(stage: &str, message: &str) -> Self {
        Self::new(EntryKind::Error, json!({ "stage": stage, "message": message }))
    }

    /// Adds a key to `meta`.
    pub fn with_meta(mut self, key: &str, value: Value) -> Self {
        self.meta.insert(key.to_owned(), value);
        self
    }

    /// Sets the run.
    pub fn with_run_id(self, run_id: &RunId) -> Self {
        self.with_meta(meta_keys::RUN_ID, json!(run_id))
    }

    /// Sets the position among the entries of the run.
    pub fn with_sequence(self, number: u64) -> Self {
        self.with_meta(meta_keys::SEQUENCE, json!(number))
    }

    /// Hides the entry from all views.
    pub fn hidden(self) -> Self {
        self.with_meta(meta_keys::CONTEXT, json!(false))
    }

    /// Sets the messages that an anchor carries over.
    pub fn with_named_messages(mut self, messages: Vec<EntryRef>) -> Self {
        self.named_messages = messages;
        self
    }

    /// Converts the draft into an entry, resolving its references with the outputs of the batch so far.
    ///
    /// All stores use this function, so that they write identical entries.
    pub fn into_entry(self, id: EntryId, now: Timestamp, outputs: &[FactOutput]) -> Entry {
        let mut meta = self.meta;
        if !self.named_messages.is_empty() {
            let ids: Vec<EntryId> = self.named_messages.iter().filter_map(|entry| entry.resolve(outputs)).collect();
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
    /// Copies an entry, to be appended to another tape with another id.
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
