//! What was said and done, as rows: those that are finished, and those that may still change.

use std::time::Duration;

use capstan_protocol::{EventId, OutboundKind, OutboundMessage, StreamEvent, Usage};

use super::escape::strip_escapes;
use super::streamed_text::{StreamedText, StreamedTextKind};
use super::styled_line::{ColorMode, RowLayout, StyledLine, TextStyle};
use super::tool_calls::ToolCallLog;
use super::usage_line::format_usage;

/// What stands before what the person said.
pub(super) const INPUT_PROMPT: &str = "› ";
/// How many replies are kept whose message has not come yet.
const MAX_UNSENT_REPLIES: usize = 16;
/// How many rows a line that goes on may have before its first ones are given.
const MAX_LIVE_ROWS: usize = 6;

/// What a channel has to tell a chat.
#[derive(Debug, Clone)]
pub enum ChatUpdate {
    /// An event that a process left when it died is taken up again.
    Recovered {
        /// What was said.
        text: String,
    },
    /// Something happened in the turn of an event.
    Event {
        /// The event the turn serves.
        event: EventId,
        /// Whether that is a command.
        is_command: bool,
        /// What happened.
        body: StreamEvent,
    },
    /// A final message.
    Message(OutboundMessage),
}

/// What was said and done.
pub(super) struct Transcript {
    color_mode: ColorMode,
    width: usize,
    /// Rows that are finished and were not taken yet.
    finished: Vec<StyledLine>,
    ends_with_blank_row: bool,
    /// The text that is being written.
    current_text: Option<StreamedText>,
    /// The event whose turn is shown as it goes on. What comes from others is shown when it is whole.
    shown_event: Option<EventId>,
    /// What was said in answer to events whose message has not come yet.
    streamed_replies: Vec<(EventId, String)>,
    pub(super) tool_calls: ToolCallLog,
    usage: Option<Usage>,
    /// Why the model is asked again, and when.
    retry_wait: Option<(String, Duration)>,
    /// The person wants the run to end: that it did is no surprise.
    pub(super) is_cancelling: bool,
    cut_off: CancelNotice,
    /// The event whose turn was told last to be cancelled.
    last_cancelled: Option<EventId>,
}

/// Whether the turn before was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelNotice {
    NotShown,
    /// That was told, and nothing came after it.
    Shown,
    /// That was told when the next turn began, before the notice of it came.
    ShownEarly,
}

impl Transcript {
    pub(super) fn new(palette: ColorMode, width: usize) -> Self {
        Self {
            color_mode: palette,
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
            cut_off: CancelNotice::NotShown,
            last_cancelled: None,
        }
    }

    pub(super) fn resize(&mut self, width: usize) {
        self.width = width;
    }

    /// Whether a turn is being shown.
    pub(super) fn has_running_turn(&self) -> bool {
        self.shown_event.is_some()
    }

    /// Why the model is asked again, and how long it still takes until then.
    pub(super) fn retry_countdown(&self, now: Duration) -> Option<(&str, Duration)> {
        let (reason, until) = self.retry_wait.as_ref()?;
        Some((reason, until.checked_sub(now)?))
    }

    /// The rows that are finished, once.
    pub(super) fn take_finished(&mut self) -> Vec<StyledLine> {
        if let Some(speech) = &mut self.current_text
            && speech.markdown.live_rows(self.width).len() > MAX_LIVE_ROWS
        {
            let rows = speech.markdown.flush_stable_rows(speech.text_columns(self.width));
            let rows = speech.prefix_rows(rows);
            self.push_rows(rows);
        }
        std::mem::take(&mut self.finished)
    }

    /// The rows that may still change.
    pub(super) fn live_rows(&self, now: Duration) -> Vec<StyledLine> {
        let mut rows = match &self.current_text {
            Some(speech) => speech.prefix_rows(speech.markdown.live_rows(speech.text_columns(self.width))),
            None => Vec::new(),
        };
        rows.extend(self.tool_calls.running(now, self.width));
        rows
    }

    pub(super) fn apply_update(&mut self, told: ChatUpdate, now: Duration) {
        match told {
            ChatUpdate::Recovered { text } => {
                self.add_gap();
                self.add_line("taken up again, after an interruption:", TextStyle::Muted);
                self.add_user_message(&text);
            }
            ChatUpdate::Event { event, is_command, body } => self.apply_event(&event, is_command, body, now),
            ChatUpdate::Message(message) => self.apply_message(&message, now),
        }
    }

    fn apply_event(&mut self, event: &EventId, is_command: bool, body: StreamEvent, now: Duration) {
        if self.shown_event.as_ref().is_some_and(|lead| lead != event) {
            if is_command {
                return self.apply_concurrent_command(event, &body);
            }
            // Messages have their turns one after the other; not every turn that goes wrong has an end of its own.
            if self.is_cancelling {
                self.cut_off(now);
                self.cut_off = CancelNotice::ShownEarly;
            } else {
                self.abort_turn(now);
            }
        }
        if self.shown_event.is_none() {
            self.shown_event = Some(event.clone());
            if self.cut_off == CancelNotice::Shown {
                self.cut_off = CancelNotice::NotShown;
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
            StreamEvent::Waiting { reason, seconds } => {
                let wait = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.retry_wait =
                    Some((strip_escapes(&reason).lines().collect::<Vec<_>>().join(" "), now.saturating_add(wait)));
            }
            // A notice tells, when the turn has ended.
            StreamEvent::Error { .. } => {}
            // Whoever cancelled it is told so, with what was cut off.
            StreamEvent::Final { ok: false, .. } if self.is_cancelling => {}
            StreamEvent::Final { .. } => {
                self.finish_text();
                self.shown_event = None;
            }
        }
    }

    /// What happens beside the turn that is shown: a command that only looks.
    fn apply_concurrent_command(&mut self, event: &EventId, body: &StreamEvent) {
        match body {
            StreamEvent::Text { delta } => self.record_reply(event, delta),
            StreamEvent::Final { .. } => {
                let said = self.streamed_replies.iter().find(|(of, _)| of == event).map(|(_, text)| text.clone());
                self.add_block(&said.unwrap_or_default(), StreamedTextKind::CommandOutput);
            }
            _ => {}
        }
    }

    fn record_reply(&mut self, event: &EventId, delta: &str) {
        if let Some((_, said)) = self.streamed_replies.iter_mut().find(|(of, _)| of == event) {
            said.push_str(delta);
            return;
        }
        self.streamed_replies.push((event.clone(), delta.to_owned()));
        if self.streamed_replies.len() > MAX_UNSENT_REPLIES {
            self.streamed_replies.remove(0);
        }
    }

    /// A message adds only what was not shown as it came.
    fn apply_message(&mut self, message: &OutboundMessage, now: Duration) {
        let text = message.content.text();
        if message.kind == OutboundKind::Notice {
            if self.is_cancelling {
                self.cut_off(now);
            } else if self.cut_off == CancelNotice::ShownEarly {
                self.cut_off = CancelNotice::NotShown;
            } else {
                self.finish_text();
                self.add_error(&text);
            }
            return;
        }
        let shown =
            self.streamed_replies.iter().position(|(_, said)| !said.is_empty() && text.starts_with(said.as_str()));
        let rest = match shown.map(|position| self.streamed_replies.remove(position)) {
            Some((_, said)) => text[said.len()..].to_owned(),
            None => text,
        };
        if message.is_possible_duplicate() && !rest.is_empty() {
            self.add_gap();
            self.add_line("this may have been shown before:", TextStyle::Muted);
        }
        self.add_block(&rest, StreamedTextKind::Reply);
    }

    /// A text that came at once.
    fn add_block(&mut self, text: &str, kind: StreamedTextKind) {
        if text.trim().is_empty() {
            return;
        }
        let mut speech = StreamedText::new(kind, self.color_mode);
        let width = speech.text_columns(self.width);
        let text = speech.escape_stripper.push(text);
        let mut rows = speech.markdown.push(&text, width);
        rows.extend(speech.markdown.finish(width));
        let rows = speech.prefix_rows(rows);
        self.add_gap();
        self.push_rows(rows);
        self.separate_text();
    }

    fn stream_text(&mut self, kind: StreamedTextKind, delta: &str) {
        if self.current_text.as_ref().is_some_and(|speech| speech.kind != kind) {
            self.finish_text();
        }
        if self.current_text.is_none() {
            self.add_gap();
        }
        let palette = self.color_mode;
        let speech = self.current_text.get_or_insert_with(|| StreamedText::new(kind, palette));
        let text = speech.escape_stripper.push(delta);
        let rows = speech.markdown.push(&text, speech.text_columns(self.width));
        let rows = speech.prefix_rows(rows);
        self.push_rows(rows);
    }

    fn finish_text(&mut self) {
        if let Some(mut speech) = self.current_text.take() {
            let rows = speech.markdown.finish(speech.text_columns(self.width));
            let rows = speech.prefix_rows(rows);
            self.push_rows(rows);
        }
    }

    /// What the person said.
    pub(super) fn add_user_message(&mut self, text: &str) {
        for (index, line) in strip_escapes(text).lines().enumerate() {
            let first = if index == 0 { INPUT_PROMPT } else { "  " };
            let layout = RowLayout {
                width: self.width,
                first_prefix: first,
                next_prefix: "  ",
                prefix_style: TextStyle::UserInput,
            };
            let rows = layout.rows(&StyledLine::styled(line, TextStyle::UserInput));
            self.push_rows(rows);
        }
    }

    /// The turn of an event was cancelled. That is told once, and before anything of the next.
    pub(super) fn mark_cancelled(&mut self, event: &EventId, now: Duration) {
        let is_told = match &self.shown_event {
            Some(lead) => lead != event,
            None => self.cut_off != CancelNotice::NotShown || self.last_cancelled.as_ref() == Some(event),
        };
        if !is_told {
            self.cut_off(now);
        } else if self.cut_off == CancelNotice::ShownEarly {
            self.cut_off = CancelNotice::NotShown;
        }
    }

    fn cut_off(&mut self, now: Duration) {
        self.last_cancelled = self.shown_event.clone();
        self.abort_turn(now);
        self.cut_off = CancelNotice::Shown;
        self.add_gap();
        self.add_line("■ cancelled", TextStyle::Error);
    }

    /// Nothing more comes of the turn that is shown.
    fn abort_turn(&mut self, now: Duration) {
        self.finish_text();
        let left = self.tool_calls.abort_running(now, self.width);
        if !left.is_empty() {
            self.add_gap();
            self.push_rows(left);
        }
        self.shown_event = None;
        self.retry_wait = None;
        self.is_cancelling = false;
    }

    /// What was said has been sent too: whatever message comes next belongs to something else.
    pub(super) fn clear_replies(&mut self) {
        self.streamed_replies.clear();
    }

    /// Nothing goes on any more: what it used, and how long it took.
    pub(super) fn finish_turns(&mut self, took: Duration, now: Duration) {
        self.abort_turn(now);
        self.cut_off = CancelNotice::NotShown;
        if let Some(usage) = self.usage.take() {
            self.add_gap();
            self.add_line(&format_usage(&usage, took), TextStyle::Muted);
        }
    }

    /// Something failed.
    pub(super) fn add_error(&mut self, text: &str) {
        self.add_gap();
        for line in strip_escapes(text).lines() {
            self.add_line(&format!("✗ {line}"), TextStyle::Error);
        }
    }

    /// Says something beside the conversation.
    pub(super) fn add_note(&mut self, text: &str) {
        for line in strip_escapes(text).lines() {
            self.add_line(line, TextStyle::Muted);
        }
    }

    /// Shows the whole of what a tool gave; says whether there was something.
    pub(super) fn show_output(&mut self, number: Option<usize>) -> bool {
        let Some((title, text)) = self.tool_calls.output(number) else { return false };
        let text = if text.trim().is_empty() { "(it gave nothing)".to_owned() } else { text.to_owned() };
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

    /// Sets what was said in between apart from the text that goes on.
    pub(super) fn separate_text(&mut self) {
        if self.current_text.is_some() {
            self.add_gap();
        }
    }

    /// A blank row between what does not belong together.
    pub(super) fn add_gap(&mut self) {
        if !self.ends_with_blank_row {
            self.push_rows(vec![StyledLine::default()]);
        }
    }

    /// Whether what comes below does not belong to the last row.
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
