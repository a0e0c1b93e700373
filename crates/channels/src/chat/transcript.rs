//! Transcript of a chat as rows: finished ones, and live ones that may still change.

use std::time::Duration;

use capstan_protocol::{EventId, OutboundKind, OutboundMessage, StreamEvent, Usage};

use super::escape::strip_escapes;
use super::streamed_text::{StreamedText, StreamedTextKind};
use super::styled_line::{ColorMode, RowLayout, StyledLine, TextStyle};
use super::tool_calls::ToolCallLog;
use super::usage_line::format_usage;

/// Prefix of user messages.
pub(super) const INPUT_PROMPT: &str = "› ";
/// Maximum number of streamed replies whose final message has not arrived.
const MAX_UNSENT_REPLIES: usize = 16;
/// Maximum number of live rows before the first ones of a long line are emitted.
const MAX_LIVE_ROWS: usize = 6;

/// Update from the channel.
#[derive(Debug, Clone)]
pub enum ChatUpdate {
    /// An event orphaned by an earlier process is being recovered.
    Recovered {
        /// Text of the message.
        text: String,
    },
    /// Stream event of a turn.
    Event {
        /// Event that the turn serves.
        event: EventId,
        /// True if that event is a command.
        is_command: bool,
        /// Stream event.
        body: StreamEvent,
    },
    /// Final message.
    Message(OutboundMessage),
}

/// Transcript of a chat.
pub(super) struct Transcript {
    color_mode: ColorMode,
    width: usize,
    /// Finished rows that were not taken yet.
    finished: Vec<StyledLine>,
    ends_with_blank_row: bool,
    /// Text that is being streamed.
    current_text: Option<StreamedText>,
    /// Event whose turn is shown live. Output of other turns is shown when it is complete.
    shown_event: Option<EventId>,
    /// Replies streamed so far whose final message has not arrived.
    streamed_replies: Vec<(EventId, String)>,
    pub(super) tool_calls: ToolCallLog,
    usage: Option<Usage>,
    /// Reason and time of the next retry of a model call.
    retry_wait: Option<(String, Duration)>,
    /// True after the user requested cancellation; its effects are then not reported as failures.
    pub(super) is_cancelling: bool,
    cancel_notice: CancelNotice,
    /// Event whose turn was last reported as cancelled.
    last_cancelled: Option<EventId>,
}

/// Display state of the cancellation of the previous turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelNotice {
    NotShown,
    /// Shown, with no output after it.
    Shown,
    /// Shown at the start of the next turn, before the notice of the channel arrived.
    ShownEarly,
}

impl Transcript {
    pub(super) fn new(color_mode: ColorMode, width: usize) -> Self {
        Self {
            color_mode,
            width,
            finished: Vec::new(),
            ends_with_blank_row: true,
            current_text: None,
            shown_event: None,
            streamed_replies: Vec::new(),
            tool_calls: ToolCallLog::default(),
            usage: None,
            retry_wait: None,
            is_cancelling: false,
            cancel_notice: CancelNotice::NotShown,
            last_cancelled: None,
        }
    }

    pub(super) fn resize(&mut self, width: usize) {
        self.width = width;
    }

    /// True while a turn is being shown.
    pub(super) fn has_running_turn(&self) -> bool {
        self.shown_event.is_some()
    }

    /// Reason of the next retry, and the remaining delay.
    pub(super) fn retry_countdown(&self, now: Duration) -> Option<(&str, Duration)> {
        let (reason, until) = self.retry_wait.as_ref()?;
        Some((reason, until.checked_sub(now)?))
    }

    /// Takes the finished rows.
    pub(super) fn take_finished(&mut self) -> Vec<StyledLine> {
        if let Some(text) = &mut self.current_text
            && text.markdown.live_rows(self.width).len() > MAX_LIVE_ROWS
        {
            let rows = text.markdown.flush_stable_rows(text.text_columns(self.width));
            let rows = text.prefix_rows(rows);
            self.push_rows(rows);
        }
        std::mem::take(&mut self.finished)
    }

    /// Rows that may still change.
    pub(super) fn live_rows(&self, now: Duration) -> Vec<StyledLine> {
        let mut rows = match &self.current_text {
            Some(text) => text.prefix_rows(text.markdown.live_rows(text.text_columns(self.width))),
            None => Vec::new(),
        };
        rows.extend(self.tool_calls.running(now, self.width));
        rows
    }

    pub(super) fn apply_update(&mut self, update: ChatUpdate, now: Duration) {
        match update {
            ChatUpdate::Recovered { text } => {
                self.add_gap();
                self.add_line("resumed after an interruption:", TextStyle::Muted);
                self.add_user_message(&text);
            }
            ChatUpdate::Event { event, is_command, body } => self.apply_event(&event, is_command, body, now),
            ChatUpdate::Message(message) => self.apply_message(&message, now),
        }
    }

    fn apply_event(&mut self, event: &EventId, is_command: bool, body: StreamEvent, now: Duration) {
        if self.shown_event.as_ref().is_some_and(|shown| shown != event) {
            if is_command {
                return self.apply_concurrent_command(event, &body);
            }
            // Messages have their turns one after the other, but not every failed turn sends a final event.
            if self.is_cancelling {
                self.show_cancelled(now);
                self.cancel_notice = CancelNotice::ShownEarly;
            } else {
                self.abort_turn(now);
            }
        }
        if self.shown_event.is_none() {
            self.shown_event = Some(event.clone());
            if self.cancel_notice == CancelNotice::Shown {
                self.cancel_notice = CancelNotice::NotShown;
            }
        }
        self.retry_wait = None;
        match body {
            StreamEvent::Text { delta } => {
                self.record_reply(event, &delta);
                self.stream_text(
                    if is_command { StreamedTextKind::CommandOutput } else { StreamedTextKind::Reply },
                    &delta,
                );
            }
            StreamEvent::Reasoning { delta } => self.stream_text(StreamedTextKind::Reasoning, &delta),
            StreamEvent::ToolCall { call } => {
                self.finish_text();
                self.tool_calls.start_call(&call, now);
            }
            StreamEvent::ToolResult { call_id, name, output } => {
                self.finish_text();
                let rows = self.tool_calls.finish_call(&call_id, &name, &output, now, self.width);
                self.add_gap();
                self.push_rows(rows);
            }
            StreamEvent::Usage { usage } => self.usage = Some(self.usage.take().unwrap_or_default().plus(&usage)),
            StreamEvent::Waiting { reason, seconds, .. } => {
                let delay = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.retry_wait =
                    Some((strip_escapes(&reason).lines().collect::<Vec<_>>().join(" "), now.saturating_add(delay)));
            }
            // A notice at the end of the turn reports the error.
            StreamEvent::Error { .. } => {}
            // The cancellation is shown together with the aborted calls.
            StreamEvent::Final { ok: false, .. } if self.is_cancelling => {}
            StreamEvent::Final { .. } => {
                self.finish_text();
                self.shown_event = None;
            }
        }
    }

    /// Handles an event of a command that runs concurrently with the shown turn.
    fn apply_concurrent_command(&mut self, event: &EventId, body: &StreamEvent) {
        match body {
            StreamEvent::Text { delta } => self.record_reply(event, delta),
            StreamEvent::Final { .. } => {
                let reply = self.streamed_replies.iter().find(|(of, _)| of == event).map(|(_, text)| text.clone());
                self.add_block(&reply.unwrap_or_default(), StreamedTextKind::CommandOutput);
            }
            _ => {}
        }
    }

    fn record_reply(&mut self, event: &EventId, delta: &str) {
        if let Some((_, reply)) = self.streamed_replies.iter_mut().find(|(of, _)| of == event) {
            reply.push_str(delta);
            return;
        }
        self.streamed_replies.push((event.clone(), delta.to_owned()));
        if self.streamed_replies.len() > MAX_UNSENT_REPLIES {
            self.streamed_replies.remove(0);
        }
    }

    /// Shows the part of a message that was not streamed.
    fn apply_message(&mut self, message: &OutboundMessage, now: Duration) {
        let text = message.content.text();
        if message.kind == OutboundKind::Notice {
            if self.is_cancelling {
                self.show_cancelled(now);
            } else if self.cancel_notice == CancelNotice::ShownEarly {
                self.cancel_notice = CancelNotice::NotShown;
            } else {
                self.finish_text();
                self.add_error(&text);
            }
            return;
        }
        let streamed =
            self.streamed_replies.iter().position(|(_, reply)| !reply.is_empty() && text.starts_with(reply.as_str()));
        let rest = match streamed.map(|position| self.streamed_replies.remove(position)) {
            Some((_, reply)) => text[reply.len()..].to_owned(),
            None => text,
        };
        if message.is_possible_duplicate() && !rest.is_empty() {
            self.add_gap();
            self.add_line("this may have been shown before:", TextStyle::Muted);
        }
        self.add_block(&rest, StreamedTextKind::Reply);
    }

    /// Adds a complete text.
    fn add_block(&mut self, text: &str, kind: StreamedTextKind) {
        if text.trim().is_empty() {
            return;
        }
        let mut streamed = StreamedText::new(kind, self.color_mode);
        let width = streamed.text_columns(self.width);
        let text = streamed.escape_stripper.push(text);
        let mut rows = streamed.markdown.push(&text, width);
        rows.extend(streamed.markdown.finish(width));
        let rows = streamed.prefix_rows(rows);
        self.add_gap();
        self.push_rows(rows);
        self.separate_text();
    }

    fn stream_text(&mut self, kind: StreamedTextKind, delta: &str) {
        if self.current_text.as_ref().is_some_and(|current| current.kind != kind) {
            self.finish_text();
        }
        if self.current_text.is_none() {
            self.add_gap();
        }
        let color_mode = self.color_mode;
        let current = self.current_text.get_or_insert_with(|| StreamedText::new(kind, color_mode));
        let text = current.escape_stripper.push(delta);
        let rows = current.markdown.push(&text, current.text_columns(self.width));
        let rows = current.prefix_rows(rows);
        self.push_rows(rows);
    }

    fn finish_text(&mut self) {
        if let Some(mut text) = self.current_text.take() {
            let rows = text.markdown.finish(text.text_columns(self.width));
            let rows = text.prefix_rows(rows);
            self.push_rows(rows);
        }
    }

    /// Adds a message of the user.
    pub(super) fn add_user_message(&mut self, text: &str) {
        for (index, line) in strip_escapes(text).lines().enumerate() {
            let first_prefix = if index == 0 { INPUT_PROMPT } else { "  " };
            let layout =
                RowLayout { width: self.width, first_prefix, next_prefix: "  ", prefix_style: TextStyle::UserInput };
            let rows = layout.rows(&StyledLine::styled(line, TextStyle::UserInput));
            self.push_rows(rows);
        }
    }

    /// Records that the turn of an event was cancelled. The cancellation is shown once, before any output of the next turn.
    pub(super) fn mark_cancelled(&mut self, event: &EventId, now: Duration) {
        let is_shown = match &self.shown_event {
            Some(shown) => shown != event,
            None => self.cancel_notice != CancelNotice::NotShown || self.last_cancelled.as_ref() == Some(event),
        };
        if !is_shown {
            self.show_cancelled(now);
        } else if self.cancel_notice == CancelNotice::ShownEarly {
            self.cancel_notice = CancelNotice::NotShown;
        }
    }

    fn show_cancelled(&mut self, now: Duration) {
        self.last_cancelled = self.shown_event.clone();
        self.abort_turn(now);
        self.cancel_notice = CancelNotice::Shown;
        self.add_gap();
        self.add_line("■ cancelled", TextStyle::Error);
    }

    /// Ends the shown turn without further output.
    fn abort_turn(&mut self, now: Duration) {
        self.finish_text();
        let aborted = self.tool_calls.abort_running(now, self.width);
        if !aborted.is_empty() {
            self.add_gap();
            self.push_rows(aborted);
        }
        self.shown_event = None;
        self.retry_wait = None;
        self.is_cancelling = false;
    }

    /// Forgets the streamed replies: their messages have arrived, and later messages belong to other events.
    pub(super) fn clear_replies(&mut self) {
        self.streamed_replies.clear();
    }

    /// Ends all turns and shows their usage and elapsed time.
    pub(super) fn finish_turns(&mut self, elapsed: Duration, now: Duration) {
        self.abort_turn(now);
        self.cancel_notice = CancelNotice::NotShown;
        if let Some(usage) = self.usage.take() {
            self.add_gap();
            self.add_line(&format_usage(&usage, elapsed), TextStyle::Muted);
        }
    }

    /// Adds an error.
    pub(super) fn add_error(&mut self, text: &str) {
        self.add_gap();
        for line in strip_escapes(text).lines() {
            self.add_line(&format!("✗ {line}"), TextStyle::Error);
        }
    }

    /// Adds a note that is not part of the conversation.
    pub(super) fn add_note(&mut self, text: &str) {
        for line in strip_escapes(text).lines() {
            self.add_line(line, TextStyle::Muted);
        }
    }

    /// Shows the full output of a tool call. Returns false if there is none.
    pub(super) fn show_output(&mut self, number: Option<usize>) -> bool {
        let Some((title, text)) = self.tool_calls.output(number) else { return false };
        let text = if text.trim().is_empty() { "(no output)".to_owned() } else { text.to_owned() };
        self.add_gap();
        let rows = RowLayout::plain(self.width).rows(&title);
        self.push_rows(rows);
        for line in text.lines() {
            let rows = RowLayout::plain(self.width)
                .with_prefix("  ", TextStyle::Plain)
                .rows(&StyledLine::styled(line, TextStyle::Plain));
            self.push_rows(rows);
        }
        true
    }

    fn add_line(&mut self, text: &str, style: TextStyle) {
        let rows = RowLayout::plain(self.width).rows(&StyledLine::styled(text, style));
        self.push_rows(rows);
    }

    /// Separates inserted rows from the text that continues after them.
    pub(super) fn separate_text(&mut self) {
        if self.current_text.is_some() {
            self.add_gap();
        }
    }

    /// Adds a blank row, unless the last row is blank.
    pub(super) fn add_gap(&mut self) {
        if !self.ends_with_blank_row {
            self.push_rows(vec![StyledLine::default()]);
        }
    }

    /// True if rows below do not continue the last row.
    pub(super) fn needs_gap(&self) -> bool {
        !self.ends_with_blank_row && self.current_text.is_none()
    }

    fn push_rows(&mut self, rows: Vec<StyledLine>) {
        if let Some(last) = rows.last() {
            self.ends_with_blank_row = last.text().is_empty();
        }
        self.finished.extend(rows);
    }
}
