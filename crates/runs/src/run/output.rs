//! Output of a run: its messages, on the tape and as one text.

use capstan_protocol::{ChatMessage, Content, JsonObject, StreamEvent};
use capstan_tape::{DroppedResult, EntryDraft, TapeEvent, meta_keys};
use serde_json::Value;

use super::{Run, TerminalResult};

/// What stands between two messages of one run, where they are shown as one reply.
const MESSAGE_SEPARATOR: &str = "\n\n";

/// The entry that tells of a result that was not heeded.
pub(crate) fn dropped_result_entry(kind: &str, why: &str) -> EntryDraft {
    TapeEvent::ResultDropped(DroppedResult { kind: kind.to_owned(), reason: why.to_owned() }).into()
}

impl Run {
    /// The delta as it is shown: a new message of the same run is set apart from the one before.
    pub(crate) fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let begins = progress.partial_text.is_empty() && !progress.completed_text.is_empty();
        progress.partial_text.push_str(delta);
        if begins { format!("{MESSAGE_SEPARATOR}{delta}") } else { delta.to_owned() }
    }

    /// A whole message: onto the tape, into the output.
    pub(crate) fn complete_message(&self, content: Content, provider_meta: JsonObject) -> Vec<StreamEvent> {
        self.ingest_message();
        let text = content.text();
        let mut entry = EntryDraft::message(&ChatMessage::assistant(content));
        if !provider_meta.is_empty() {
            entry = entry.with_meta(meta_keys::PROVIDER, Value::Object(provider_meta));
        }
        if !self.is_command() {
            self.append(entry);
        }
        let was_streamed = !self.progress().partial_text.is_empty();
        let shown = if was_streamed || text.is_empty() { None } else { Some(self.add_delta(&text)) };
        let mut progress = self.progress();
        // Not its room: a long message may have taken much.
        progress.partial_text = String::new();
        if !progress.completed_text.is_empty() && !text.is_empty() {
            progress.completed_text.push_str(MESSAGE_SEPARATOR);
        }
        progress.completed_text.push_str(&text);
        shown.map(StreamEvent::text).into_iter().collect()
    }

    /// Entries of the run, which stand after the message it serves.
    pub(crate) fn append_entries(&self, entries: Vec<EntryDraft>) {
        if !entries.is_empty() {
            self.ingest_message();
        }
        for entry in entries {
            self.append(entry);
        }
    }

    /// What the runner told of its own tool calls and is not on the tape yet.
    pub(crate) fn flush_runner_tool_calls(&self) {
        let steps = self.progress().runner_tool_calls.finish();
        self.append_entries(steps);
    }

    /// What was only streamed is a message of its own, once something else follows it.
    pub(crate) fn complete_partial(&self) {
        let partial = self.progress().partial_text.clone();
        if !partial.is_empty() {
            self.complete_message(Content::Text(partial), JsonObject::new());
        }
    }

    pub(crate) fn set_terminal(&self, terminal: TerminalResult) {
        self.progress().terminal.get_or_insert(terminal);
    }

    /// A run that was broken off: what it had said of a message stays on the tape, marked as unfinished.
    pub(crate) fn save_partial(&self) {
        self.flush_runner_tool_calls();
        self.write_deferred_handoffs();
        let (partial, is_stand_in) = {
            let mut progress = self.progress();
            (std::mem::take(&mut progress.partial_text), !progress.runner_started)
        };
        // Whatever became of the run, its message was said. One that looks like a command may be one.
        if is_stand_in || !partial.is_empty() || self.context.event.command_line().is_none() {
            self.ingest_message();
        }
        if !partial.is_empty() {
            let entry = EntryDraft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// What the run has said, as one text.
    pub(crate) fn output(&self) -> String {
        self.progress().completed_text.clone()
    }
}
