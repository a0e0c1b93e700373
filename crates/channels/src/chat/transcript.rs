//! What was said and done, as rows: those that are finished, and those that may still change.

use std::time::Duration;

use capstan_protocol::{EventId, Outbound, OutboundKind, StreamEvent, Usage};

use super::calls::Calls;
use super::figures::figures;
use super::line::{Layout, Line, Palette, Style};
use super::speech::{Kind, Speech};
use super::tame::tame;

/// What stands before what the person said.
pub(super) const PROMPT: &str = "› ";
/// How many replies are kept whose message has not come yet.
const UNSENT: usize = 16;
/// How many rows a line that goes on may have before its first ones are given.
const LIVE: usize = 6;

/// What a channel has to tell a chat.
#[derive(Debug, Clone)]
pub enum Told {
    /// An event that a process left when it died is taken up again.
    TakenUp {
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
    Message(Outbound),
}

/// What was said and done.
pub(super) struct Transcript {
    palette: Palette,
    width: usize,
    /// Rows that are finished and were not taken yet.
    finished: Vec<Line>,
    ends_blank: bool,
    /// The text that is being written.
    speech: Option<Speech>,
    /// The event whose turn is shown as it goes on. What comes from others is shown when it is whole.
    lead: Option<EventId>,
    /// What was said in answer to events whose message has not come yet.
    said: Vec<(EventId, String)>,
    pub(super) calls: Calls,
    usage: Option<Usage>,
    /// Why the model is asked again, and when.
    waiting: Option<(String, Duration)>,
    /// The person wants the run to end: that it did is no surprise.
    pub(super) is_cancelling: bool,
    cut_off: CutOff,
    /// The event whose turn was told last to be cancelled.
    told: Option<EventId>,
}

/// Whether the turn before was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CutOff {
    No,
    /// That was told, and nothing came after it.
    Told,
    /// That was told when the next turn began, before the notice of it came.
    BeforeNotice,
}

impl Transcript {
    pub(super) fn new(palette: Palette, width: usize) -> Self {
        Self {
            palette,
            width,
            finished: Vec::new(),
            ends_blank: true,
            speech: None,
            lead: None,
            said: Vec::new(),
            calls: Calls::default(),
            usage: None,
            waiting: None,
            is_cancelling: false,
            cut_off: CutOff::No,
            told: None,
        }
    }

    pub(super) fn resize(&mut self, width: usize) {
        self.width = width;
    }

    /// Whether a turn is being shown.
    pub(super) fn goes_on(&self) -> bool {
        self.lead.is_some()
    }

    /// Why the model is asked again, and how long it still takes until then.
    pub(super) fn waits(&self, now: Duration) -> Option<(&str, Duration)> {
        let (reason, until) = self.waiting.as_ref()?;
        Some((reason, until.checked_sub(now)?))
    }

    /// The rows that are finished, once.
    pub(super) fn take_finished(&mut self) -> Vec<Line> {
        if let Some(speech) = &mut self.speech
            && speech.markdown.live(self.width).len() > LIVE
        {
            let rows = speech.markdown.settle(speech.width(self.width));
            let rows = speech.rows(rows);
            self.give(rows);
        }
        std::mem::take(&mut self.finished)
    }

    /// The rows that may still change.
    pub(super) fn live(&self, now: Duration) -> Vec<Line> {
        let mut rows = match &self.speech {
            Some(speech) => speech.rows(speech.markdown.live(speech.width(self.width))),
            None => Vec::new(),
        };
        rows.extend(self.calls.running(now, self.width));
        rows
    }

    pub(super) fn tell(&mut self, told: Told, now: Duration) {
        match told {
            Told::TakenUp { text } => {
                self.gap();
                self.line("taken up again, after an interruption:", Style::Aside);
                self.said_by_person(&text);
            }
            Told::Event { event, is_command, body } => self.happened(&event, is_command, body, now),
            Told::Message(message) => self.message(&message, now),
        }
    }

    fn happened(&mut self, event: &EventId, is_command: bool, body: StreamEvent, now: Duration) {
        if self.lead.as_ref().is_some_and(|lead| lead != event) {
            if is_command {
                return self.beside(event, &body);
            }
            // Messages have their turns one after the other; not every turn that goes wrong has an end of its own.
            if self.is_cancelling {
                self.cut_off(now);
                self.cut_off = CutOff::BeforeNotice;
            } else {
                self.break_off(now);
            }
        }
        if self.lead.is_none() {
            self.lead = Some(event.clone());
            if self.cut_off == CutOff::Told {
                self.cut_off = CutOff::No;
            }
        }
        self.waiting = None;
        match body {
            StreamEvent::Text { delta } => {
                self.remember(event, &delta);
                self.speak(if is_command { Kind::Output } else { Kind::Reply }, &delta);
            }
            StreamEvent::Reasoning { delta } => self.speak(Kind::Reasoning, &delta),
            StreamEvent::ToolCall { call } => {
                self.end_speech();
                self.calls.begin(&call, now);
            }
            StreamEvent::ToolResult { call_id, name, output } => {
                self.end_speech();
                let rows = self.calls.end(&call_id, &name, &output, now, self.width);
                self.gap();
                self.give(rows);
            }
            StreamEvent::Usage { usage } => self.usage = Some(self.usage.take().unwrap_or_default().plus(&usage)),
            StreamEvent::Waiting { reason, seconds } => {
                let wait = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.waiting = Some((tame(&reason).lines().collect::<Vec<_>>().join(" "), now.saturating_add(wait)));
            }
            // A notice tells, when the turn has ended.
            StreamEvent::Error { .. } => {}
            // Whoever cancelled it is told so, with what was cut off.
            StreamEvent::Final { ok: false, .. } if self.is_cancelling => {}
            StreamEvent::Final { .. } => {
                self.end_speech();
                self.lead = None;
            }
        }
    }

    /// What happens beside the turn that is shown: a command that only looks.
    fn beside(&mut self, event: &EventId, body: &StreamEvent) {
        match body {
            StreamEvent::Text { delta } => self.remember(event, delta),
            StreamEvent::Final { .. } => {
                let said = self.said.iter().find(|(of, _)| of == event).map(|(_, text)| text.clone());
                self.block(&said.unwrap_or_default(), Kind::Output);
            }
            _ => {}
        }
    }

    fn remember(&mut self, event: &EventId, delta: &str) {
        if let Some((_, said)) = self.said.iter_mut().find(|(of, _)| of == event) {
            said.push_str(delta);
            return;
        }
        self.said.push((event.clone(), delta.to_owned()));
        if self.said.len() > UNSENT {
            self.said.remove(0);
        }
    }

    /// A message adds only what was not shown as it came.
    fn message(&mut self, message: &Outbound, now: Duration) {
        let text = message.content.text();
        if message.kind == OutboundKind::Notice {
            if self.is_cancelling {
                self.cut_off(now);
            } else if self.cut_off == CutOff::BeforeNotice {
                self.cut_off = CutOff::No;
            } else {
                self.end_speech();
                self.fail(&text);
            }
            return;
        }
        let shown = self.said.iter().position(|(_, said)| !said.is_empty() && text.starts_with(said.as_str()));
        let rest = match shown.map(|position| self.said.remove(position)) {
            Some((_, said)) => text[said.len()..].to_owned(),
            None => text,
        };
        if message.is_possible_duplicate() && !rest.is_empty() {
            self.gap();
            self.line("this may have been shown before:", Style::Aside);
        }
        self.block(&rest, Kind::Reply);
    }

    /// A text that came at once.
    fn block(&mut self, text: &str, kind: Kind) {
        if text.trim().is_empty() {
            return;
        }
        let mut speech = Speech::new(kind, self.palette);
        let width = speech.width(self.width);
        let text = speech.tame.push(text);
        let mut rows = speech.markdown.push(&text, width);
        rows.extend(speech.markdown.end(width));
        let rows = speech.rows(rows);
        self.gap();
        self.give(rows);
        self.set_apart();
    }

    fn speak(&mut self, kind: Kind, delta: &str) {
        if self.speech.as_ref().is_some_and(|speech| speech.kind != kind) {
            self.end_speech();
        }
        if self.speech.is_none() {
            self.gap();
        }
        let palette = self.palette;
        let speech = self.speech.get_or_insert_with(|| Speech::new(kind, palette));
        let text = speech.tame.push(delta);
        let rows = speech.markdown.push(&text, speech.width(self.width));
        let rows = speech.rows(rows);
        self.give(rows);
    }

    fn end_speech(&mut self) {
        if let Some(mut speech) = self.speech.take() {
            let rows = speech.markdown.end(speech.width(self.width));
            let rows = speech.rows(rows);
            self.give(rows);
        }
    }

    /// What the person said.
    pub(super) fn said_by_person(&mut self, text: &str) {
        for (index, line) in tame(text).lines().enumerate() {
            let first = if index == 0 { PROMPT } else { "  " };
            let layout = Layout { width: self.width, first, further: "  ", style: Style::Said };
            let rows = layout.rows(&Line::of(line, Style::Said));
            self.give(rows);
        }
    }

    /// The turn of an event was cancelled. That is told once, and before anything of the next.
    pub(super) fn cancelled(&mut self, event: &EventId, now: Duration) {
        let is_told = match &self.lead {
            Some(lead) => lead != event,
            None => self.cut_off != CutOff::No || self.told.as_ref() == Some(event),
        };
        if !is_told {
            self.cut_off(now);
        } else if self.cut_off == CutOff::BeforeNotice {
            self.cut_off = CutOff::No;
        }
    }

    fn cut_off(&mut self, now: Duration) {
        self.told = self.lead.clone();
        self.break_off(now);
        self.cut_off = CutOff::Told;
        self.gap();
        self.line("■ cancelled", Style::Failed);
    }

    /// Nothing more comes of the turn that is shown.
    fn break_off(&mut self, now: Duration) {
        self.end_speech();
        let left = self.calls.break_off(now, self.width);
        if !left.is_empty() {
            self.gap();
            self.give(left);
        }
        self.lead = None;
        self.waiting = None;
        self.is_cancelling = false;
    }

    /// What was said has been sent too: whatever message comes next belongs to something else.
    pub(super) fn forget(&mut self) {
        self.said.clear();
    }

    /// Nothing goes on any more: what it used, and how long it took.
    pub(super) fn ended(&mut self, took: Duration, now: Duration) {
        self.break_off(now);
        self.cut_off = CutOff::No;
        if let Some(usage) = self.usage.take() {
            self.gap();
            self.line(&figures(&usage, took), Style::Aside);
        }
    }

    /// Something failed.
    pub(super) fn fail(&mut self, text: &str) {
        self.gap();
        for line in tame(text).lines() {
            self.line(&format!("✗ {line}"), Style::Failed);
        }
    }

    /// Says something beside the conversation.
    pub(super) fn note(&mut self, text: &str) {
        for line in tame(text).lines() {
            self.line(line, Style::Aside);
        }
    }

    /// Shows the whole of what a tool gave; says whether there was something.
    pub(super) fn expand(&mut self, number: Option<usize>) -> bool {
        let Some((title, text)) = self.calls.output(number) else { return false };
        let text = if text.trim().is_empty() { "(it gave nothing)".to_owned() } else { text.to_owned() };
        self.gap();
        let rows = Layout::plain(self.width).rows(&title);
        self.give(rows);
        for line in text.lines() {
            let rows = Layout::plain(self.width).after("  ", Style::Plain).rows(&Line::of(line, Style::Plain));
            self.give(rows);
        }
        true
    }

    fn line(&mut self, text: &str, style: Style) {
        let rows = Layout::plain(self.width).rows(&Line::of(text, style));
        self.give(rows);
    }

    /// Sets what was said in between apart from the text that goes on.
    pub(super) fn set_apart(&mut self) {
        if self.speech.is_some() {
            self.gap();
        }
    }

    /// A blank row between what does not belong together.
    pub(super) fn gap(&mut self) {
        if !self.ends_blank {
            self.give(vec![Line::default()]);
        }
    }

    /// Whether what comes below does not belong to the last row.
    pub(super) fn wants_gap(&self) -> bool {
        !self.ends_blank && self.speech.is_none()
    }

    fn give(&mut self, rows: Vec<Line>) {
        if let Some(last) = rows.last() {
            self.ends_blank = last.text().is_empty();
        }
        self.finished.extend(rows);
    }
}
