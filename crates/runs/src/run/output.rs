//! Output of a run: its messages, on the tape and as one text.

use capstan_protocol::{ChatMessage, Content, ContentPart, JsonObject, KnownPart, StreamEvent};
use capstan_tape::{DroppedResult, EntryDraft, TapeEvent, meta_keys};
use serde_json::Value;

use super::{Run, TerminalResult};

/// Separator between messages of one run that are shown as one reply.
const MESSAGE_SEPARATOR: &str = "\n\n";

/// The entry that records a dropped result.
pub(crate) fn dropped_result_entry(kind: &str, reason: &str) -> EntryDraft {
    TapeEvent::ResultDropped(DroppedResult { kind: kind.to_owned(), reason: reason.to_owned() }).into()
}

impl Run {
    /// Adds a delta and returns the text to show: the first delta of a further message begins with a separator.
    pub(crate) fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let is_further_message = progress.partial_text.is_empty() && !progress.completed_text.is_empty();
        progress.partial_text.push_str(delta);
        if is_further_message { format!("{MESSAGE_SEPARATOR}{delta}") } else { delta.to_owned() }
    }

    /// Writes a complete message to the tape and to the output.
    pub(crate) fn complete_message(&self, content: Content, provider_meta: JsonObject) -> Vec<StreamEvent> {
        self.ingest_message();
        let text = content.text();
        let mut parts = match &content {
            Content::Text(text) => vec![ContentPart::from_text(text)],
            Content::Parts(parts) => parts.clone(),
        };
        let mut entry = EntryDraft::message(&ChatMessage::assistant(content));
        if !provider_meta.is_empty() {
            entry = entry.with_meta(meta_keys::PROVIDER, Value::Object(provider_meta));
        }
        if !self.is_command() {
            self.append(entry);
        }
        let was_streamed = !self.progress().partial_text.is_empty() && self.streams_deltas();
        if !was_streamed {
            self.progress().partial_text = String::new();
        }
        let shown_text = if was_streamed || text.is_empty() { None } else { Some(self.add_delta(&text)) };
        let mut progress = self.progress();
        // A new string instead of `clear`, to release the memory of a long message.
        progress.partial_text = String::new();
        if !progress.completed_text.is_empty() && !text.is_empty() {
            progress.completed_text.push_str(MESSAGE_SEPARATOR);
            // Parts are joined by one line break.
            if let Some(ContentPart::Known(KnownPart::Text { text })) =
                parts.iter_mut().find(|part| part.as_text().is_some())
            {
                text.insert(0, '\n');
            }
        }
        progress.completed_text.push_str(&text);
        progress.completed_parts.extend(parts);
        shown_text.map(StreamEvent::text).into_iter().collect()
    }

    /// Appends entries of the run after the message it serves.
    pub(crate) fn append_entries(&self, entries: Vec<EntryDraft>) {
        if !entries.is_empty() {
            self.ingest_message();
        }
        for entry in entries {
            self.append(entry);
        }
    }

    /// Writes the tool calls that the runner reported and that are not on the tape yet.
    pub(crate) fn flush_runner_tool_calls(&self) {
        let steps = self.progress().runner_tool_calls.finish();
        self.append_entries(steps);
    }

    /// Completes a message that came in deltas only, because another result follows it. Returns the events of a message
    /// whose deltas were not shown.
    pub(crate) fn complete_partial(&self) -> Vec<StreamEvent> {
        let partial = self.progress().partial_text.clone();
        if partial.is_empty() { Vec::new() } else { self.complete_message(Content::Text(partial), JsonObject::new()) }
    }

    /// Returns true if deltas are shown as they come: the runner has the capability `streaming`, or a plugin takes its
    /// place.
    pub(crate) fn streams_deltas(&self) -> bool {
        self.runner.descriptor.capabilities.streaming || !self.progress().runner_started
    }

    pub(crate) fn set_terminal(&self, terminal: TerminalResult) {
        self.progress().terminal.get_or_insert(terminal);
    }

    /// Saves the streamed part of a message of an interrupted run, marked as interrupted.
    pub(crate) fn save_partial(&self) {
        self.flush_runner_tool_calls();
        self.write_deferred_handoffs();
        let (partial, is_plugin_run) = {
            let mut progress = self.progress();
            (std::mem::take(&mut progress.partial_text), !progress.runner_started)
        };
        // The message of an interrupted run is recorded too, unless it may be a command.
        if is_plugin_run || !partial.is_empty() || self.context.event.command_line().is_none() {
            self.ingest_message();
        }
        if !partial.is_empty() {
            let entry = EntryDraft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// The completed messages of the run as one content: plain text unless a message has an image, a file or an
    /// artifact.
    pub(crate) fn output_content(&self) -> Content {
        let progress = self.progress();
        let parts = Content::Parts(progress.completed_parts.clone());
        if parts.has_media() { parts } else { Content::Text(progress.completed_text.clone()) }
    }

    /// The completed messages of the run, as one text.
    pub(crate) fn output(&self) -> String {
        self.progress().completed_text.clone()
    }
}
