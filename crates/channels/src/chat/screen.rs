//! The whole screen of a chat as a value: what happened goes in, rows come out. No terminal is needed to know what a
//! person sees.

use std::time::Duration;

use capstan_protocol::EventId;

use super::complete::{Completion, Words};
use super::editor::Editor;
use super::key::Key;
use super::line::{Layout, Line, Palette, Style, cut};
use super::transcript::{PROMPT, Told, Transcript};

/// How often the sign that something goes on turns.
pub const TICK: Duration = Duration::from_millis(100);
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How many rows of choices are shown.
const CHOICE_ROWS: usize = 3;
/// The least that is laid out for.
const LEAST: Size = Size { columns: 8, rows: 3 };

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// In columns.
    pub columns: usize,
    /// In rows.
    pub rows: usize,
}

/// What a person sees: rows that scroll away and never change again, and the rows at the bottom that do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Rows to be added above the bottom.
    pub finished: Vec<Line>,
    /// The bottom, which replaces the one before.
    pub bottom: Vec<Line>,
    /// In which row of the bottom the cursor stands.
    pub row: usize,
    /// In which column.
    pub column: usize,
}

/// How a turn of this chat ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// It was cancelled.
    pub cancelled: bool,
    /// What failed, where no notice told it.
    pub failed: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What is to be done after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Nothing,
    /// This is to be said.
    Say(String),
    /// The run is to end.
    Cancel,
    /// The chat is to end.
    Leave,
    /// The chat is to stand still until the shell lets it go on.
    Suspend,
    /// Everything is to be drawn anew.
    Redraw,
}

/// The screen of a chat.
pub struct Screen {
    size: Size,
    /// How many columns there are, also where that is less than is laid out for.
    columns: usize,
    transcript: Transcript,
    editor: Editor,
    words: Words,
    choices: Vec<String>,
    /// How many messages are not answered, and since when something goes on.
    unanswered: usize,
    /// A command was sent while something goes on. It may wait, and what comes then waits for it.
    commanded: bool,
    since: Option<Duration>,
    /// Ctrl-C was pressed with nothing written: once more leaves.
    is_leaving: bool,
}

impl Screen {
    /// A screen of this size. The history has the newest message last.
    pub fn new(size: Size, palette: Palette, history: Vec<String>, words: Words) -> Self {
        Self {
            size: size.at_least(),
            columns: size.columns.max(1),
            transcript: Transcript::new(palette, size.at_least().columns),
            editor: Editor::new(history),
            words,
            choices: Vec::new(),
            unanswered: 0,
            commanded: false,
            since: None,
            is_leaving: false,
        }
    }

    /// The terminal has another size now.
    pub fn resize(&mut self, size: Size) {
        (self.size, self.columns) = (size.at_least(), size.columns.max(1));
        self.transcript.resize(self.size.columns);
    }

    /// Whether something goes on.
    pub fn is_busy(&self) -> bool {
        self.unanswered > 0 || self.transcript.goes_on()
    }

    /// The channel told something.
    pub fn tell(&mut self, told: Told, now: Duration) {
        if matches!(told, Told::Event { .. }) {
            self.since.get_or_insert(now);
        }
        self.transcript.tell(told, now);
        // Nobody waits here for what was taken up: its end is heard of, not answered.
        if !self.is_busy()
            && let Some(since) = self.since.take()
        {
            self.transcript.ended(now.saturating_sub(since), now);
        }
    }

    /// A message was sent.
    pub fn said(&mut self, text: &str, now: Duration) {
        let goes_on = self.is_busy();
        self.transcript.gap();
        self.transcript.said_by_person(text);
        let is_command = text.trim_start().starts_with(',');
        self.commanded = goes_on && (self.commanded || is_command);
        if goes_on && !is_command {
            self.transcript.note(if self.commanded {
                "  (goes to the run that is going on, or after a command that waits)"
            } else {
                "  (goes to the run that is going on, at its next step)"
            });
        }
        self.transcript.set_apart();
        self.unanswered += 1;
        self.since.get_or_insert(now);
    }

    /// A message was answered, or taken into the turn of another.
    pub fn answered(&mut self, event: &EventId, ended: &Ended, now: Duration) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(failed) = &ended.failed {
            self.transcript.fail(failed);
        }
        if let Some(hint) = &ended.hint {
            self.transcript.note(&format!("hint: {hint}"));
        }
        if ended.cancelled {
            // What waits has its turn now, which can be cancelled too.
            self.transcript.cancelled(event, now);
        }
        if self.unanswered == 0 {
            let took = now.saturating_sub(self.since.take().unwrap_or(now));
            self.transcript.ended(took, now);
            self.transcript.forget();
        }
    }

    /// Says something beside the conversation.
    pub fn note(&mut self, text: &str) {
        self.transcript.gap();
        self.transcript.note(text);
    }

    /// Shows the whole of what a tool gave: by its number, or the last one.
    pub fn expand(&mut self, number: Option<usize>) {
        if !self.transcript.expand(number) {
            self.note(&match number {
                Some(number) => format!("there is no output {number} (any more)"),
                None => "no tool has answered yet".to_owned(),
            });
        }
    }

    /// A key was pressed. `names` lists a folder for completion.
    pub fn press(&mut self, key: &Key, names: impl Fn(&str) -> Vec<String>) -> Wish {
        self.choices.clear();
        let was_leaving = std::mem::take(&mut self.is_leaving);
        match key {
            Key::Enter if self.editor.text().trim().is_empty() => self.editor.clear(),
            Key::Enter => return Wish::Say(self.editor.take()),
            Key::Tab => self.complete(names),
            Key::Expand => self.expand(None),
            Key::Redraw => return Wish::Redraw,
            Key::Suspend => return Wish::Suspend,
            Key::EndOfInput if self.editor.is_empty() => return Wish::Leave,
            Key::EndOfInput => {
                self.editor.press(&Key::Delete);
            }
            Key::Interrupt if self.is_busy() => {
                if std::mem::replace(&mut self.transcript.is_cancelling, true) {
                    return Wish::Leave;
                }
                // It may be over before the next key: a second one leaves all the same.
                self.is_leaving = self.editor.is_empty();
                return Wish::Cancel;
            }
            Key::Interrupt if was_leaving => return Wish::Leave,
            Key::Interrupt if self.editor.is_empty() => self.is_leaving = true,
            Key::Interrupt => self.editor.clear(),
            key => {
                self.editor.press(key);
            }
        }
        Wish::Nothing
    }

    fn complete(&mut self, names: impl Fn(&str) -> Vec<String>) {
        let Some(completion) = self.words.complete(self.editor.before_cursor(), names) else { return };
        let Completion { replaces, .. } = completion;
        let common = completion.common();
        if common.len() > replaces || completion.choices.len() == 1 {
            self.editor.replace_before_cursor(replaces, &common);
        }
        if completion.choices.len() > 1 {
            self.choices = completion.choices;
        }
    }

    /// What is to be seen now. Rows that are finished are given once.
    pub fn frame(&mut self, now: Duration) -> Frame {
        let finished = self.transcript.take_finished();
        let rows = self.size.rows;
        let mut below = self.status(now);
        below.extend(self.choice_rows());
        let (input, row, column) = self.input(rows.saturating_sub(below.len()).max(1) / 2 + 1);
        let room = rows.saturating_sub(below.len() + input.len());
        let mut live = self.transcript.live(now);
        let hidden = live.len().saturating_sub(room);
        live.drain(..hidden);
        let mut bottom = Vec::new();
        if self.transcript.wants_gap() && live.len() < room {
            bottom.push(Line::default());
        }
        bottom.extend(live);
        if bottom.last().is_some_and(|row| *row != Line::default()) && bottom.len() < room {
            bottom.push(Line::default());
        }
        bottom.extend(below);
        let row = bottom.len() + row;
        bottom.extend(input);
        // A row that the terminal broke in two would not be found again.
        let bottom: Vec<Line> = bottom.iter().map(|line| cut(line, self.columns)).collect();
        let column = column.min(self.columns.saturating_sub(1));
        // A terminal of one or two rows shows the last ones.
        let hidden = bottom.len().saturating_sub(rows);
        Frame { finished, row: row.saturating_sub(hidden), column, bottom: bottom[hidden..].to_vec() }
    }

    /// What is left when the chat has ended: everything, and no input.
    pub fn last_frame(&mut self, now: Duration) -> Frame {
        let mut finished = self.transcript.take_finished();
        finished.extend(self.transcript.live(now));
        Frame { finished, bottom: Vec::new(), row: 0, column: 0 }
    }

    fn status(&self, now: Duration) -> Vec<Line> {
        if !self.is_busy() {
            let told = self.is_leaving.then(|| Line::of("ctrl-c again leaves", Style::Aside));
            return told.into_iter().collect();
        }
        let time = super::calls::elapsed(now.saturating_sub(self.since.unwrap_or(now)));
        let spinner = SPINNER[usize::try_from(now.as_millis() / TICK.as_millis()).unwrap_or(0) % SPINNER.len()];
        let said = if self.transcript.is_cancelling {
            format!("{spinner} cancelling · ctrl-c again leaves")
        } else if let Some((reason, left)) = self.transcript.waits(now) {
            // The beginning is what a narrow window shows.
            let left = left.as_secs() + 1;
            format!("{spinner} {time} · ctrl-c cancels · asks again in {left}s: {reason}")
        } else {
            format!("{spinner} {time} · ctrl-c cancels")
        };
        vec![Line::of(said, Style::Aside)]
    }

    fn choice_rows(&self) -> Vec<Line> {
        if self.choices.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = self.choices.iter().map(|choice| choice.trim()).collect();
        let mut rows = Layout::plain(self.size.columns).rows(&Line::of(names.join("  "), Style::Aside));
        if rows.len() > CHOICE_ROWS {
            rows.truncate(CHOICE_ROWS - 1);
            rows.push(Line::of("…", Style::Aside));
        }
        rows
    }

    /// The rows of what is being written, and where the cursor stands in them.
    fn input(&self, most: usize) -> (Vec<Line>, usize, usize) {
        let before = PROMPT.chars().count();
        let written = self.editor.written(self.size.columns.saturating_sub(before));
        let row = |(index, text): (usize, &String)| {
            Line::of(if index == 0 { PROMPT } else { "  " }, Style::Said).and(text, Style::Plain)
        };
        let rows: Vec<Line> = written.rows.iter().enumerate().map(row).collect();
        // The cursor is always to be seen.
        let from = (written.row + 1).saturating_sub(most).min(rows.len().saturating_sub(most));
        let to = (from + most).min(rows.len());
        (rows[from..to].to_vec(), written.row - from, written.column + before)
    }
}

impl Size {
    fn at_least(self) -> Self {
        Self { columns: self.columns.max(LEAST.columns), rows: self.rows.max(LEAST.rows) }
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
