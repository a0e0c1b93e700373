//! The whole screen of a chat as a value: what happened goes in, rows come out. No terminal is needed to know what a
//! person sees.

use std::time::Duration;

use capstan_protocol::EventId;

use super::completion::{CompletionChoices, CompletionWords};
use super::editor::MessageEditor;
use super::key_input::KeyInput;
use super::styled_line::{ColorMode, RowLayout, StyledLine, TextStyle, truncate_line};
use super::transcript::{ChatUpdate, INPUT_PROMPT, Transcript};

/// How often the sign that something goes on turns.
pub const SPINNER_INTERVAL: Duration = Duration::from_millis(100);
const SPINNER_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How many rows of choices are shown.
const MAX_CHOICE_ROWS: usize = 3;
/// The least that is laid out for.
const MIN_TERMINAL_SIZE: TerminalSize = TerminalSize { columns: 8, rows: 3 };

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// In columns.
    pub columns: usize,
    /// In rows.
    pub rows: usize,
}

/// What a person sees: rows that scroll away and never change again, and the rows at the bottom that do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenFrame {
    /// Rows to be added above the bottom.
    pub finished: Vec<StyledLine>,
    /// The bottom, which replaces the one before.
    pub bottom: Vec<StyledLine>,
    /// In which row of the bottom the cursor stands.
    pub cursor_row: usize,
    /// In which column.
    pub cursor_column: usize,
}

/// How a turn of this chat ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnEnding {
    /// It was cancelled.
    pub is_cancelled: bool,
    /// What failed, where no notice told it.
    pub error: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What is to be done after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenAction {
    /// Nothing.
    Nothing,
    /// This is to be said.
    Send(String),
    /// The run is to end.
    Cancel,
    /// The chat is to end.
    Quit,
    /// The chat is to stand still until the shell lets it go on.
    Suspend,
    /// Everything is to be drawn anew.
    Redraw,
}

/// The screen of a chat.
pub struct Screen {
    size: TerminalSize,
    /// How many columns there are, also where that is less than is laid out for.
    columns: usize,
    transcript: Transcript,
    editor: MessageEditor,
    completion_words: CompletionWords,
    choices: Vec<String>,
    /// How many messages are not answered, and since when something goes on.
    unanswered_count: usize,
    /// A command was sent while something goes on. It may wait, and what comes then waits for it.
    has_queued_command: bool,
    busy_since: Option<Duration>,
    /// Ctrl-C was pressed with nothing written: once more leaves.
    is_quit_armed: bool,
}

impl Screen {
    /// A screen of this size. The history has the newest message last.
    pub fn new(size: TerminalSize, palette: ColorMode, history: Vec<String>, words: CompletionWords) -> Self {
        Self {
            size: size.clamp_to_min(),
            columns: size.columns.max(1),
            transcript: Transcript::new(palette, size.clamp_to_min().columns),
            editor: MessageEditor::new(history),
            completion_words: words,
            choices: Vec::new(),
            unanswered_count: 0,
            has_queued_command: false,
            busy_since: None,
            is_quit_armed: false,
        }
    }

    /// The terminal has another size now.
    pub fn resize(&mut self, size: TerminalSize) {
        (self.size, self.columns) = (size.clamp_to_min(), size.columns.max(1));
        self.transcript.resize(self.size.columns);
    }

    /// Whether something goes on.
    pub fn is_busy(&self) -> bool {
        self.unanswered_count > 0 || self.transcript.has_running_turn()
    }

    /// The channel told something.
    pub fn apply_update(&mut self, told: ChatUpdate, now: Duration) {
        if matches!(told, ChatUpdate::Event { .. }) {
            self.busy_since.get_or_insert(now);
        }
        self.transcript.apply_update(told, now);
        // Nobody waits here for what was taken up: its end is heard of, not answered.
        if !self.is_busy()
            && let Some(since) = self.busy_since.take()
        {
            self.transcript.finish_turns(now.saturating_sub(since), now);
        }
    }

    /// A message was sent.
    pub fn add_user_message(&mut self, text: &str, now: Duration) {
        let goes_on = self.is_busy();
        self.transcript.add_gap();
        self.transcript.add_user_message(text);
        let is_command = text.trim_start().starts_with(',');
        self.has_queued_command = goes_on && (self.has_queued_command || is_command);
        if goes_on && !is_command {
            self.transcript.add_note(if self.has_queued_command {
                "  (goes to the run that is going on, or after a command that waits)"
            } else {
                "  (goes to the run that is going on, at its next step)"
            });
        }
        self.transcript.separate_text();
        self.unanswered_count += 1;
        self.busy_since.get_or_insert(now);
    }

    /// A message was answered, or taken into the turn of another.
    pub fn finish_event(&mut self, event: &EventId, ended: &TurnEnding, now: Duration) {
        self.unanswered_count = self.unanswered_count.saturating_sub(1);
        if let Some(failed) = &ended.error {
            self.transcript.add_error(failed);
        }
        if let Some(hint) = &ended.hint {
            self.transcript.add_note(&format!("hint: {hint}"));
        }
        if ended.is_cancelled {
            // What waits has its turn now, which can be cancelled too.
            self.transcript.mark_cancelled(event, now);
        }
        if self.unanswered_count == 0 {
            let took = now.saturating_sub(self.busy_since.take().unwrap_or(now));
            self.transcript.finish_turns(took, now);
            self.transcript.clear_replies();
        }
    }

    /// Says something beside the conversation.
    pub fn add_note(&mut self, text: &str) {
        self.transcript.add_gap();
        self.transcript.add_note(text);
    }

    /// Shows the whole of what a tool gave: by its number, or the last one.
    pub fn show_output(&mut self, number: Option<usize>) {
        if !self.transcript.show_output(number) {
            self.add_note(&match number {
                Some(number) => format!("there is no output {number} (any more)"),
                None => "no tool has answered yet".to_owned(),
            });
        }
    }

    /// A key was pressed. `names` lists a folder for completion.
    pub fn press(&mut self, key: &KeyInput, names: impl Fn(&str) -> Vec<String>) -> ScreenAction {
        self.choices.clear();
        let was_leaving = std::mem::take(&mut self.is_quit_armed);
        match key {
            KeyInput::Enter if self.editor.text().trim().is_empty() => self.editor.clear(),
            KeyInput::Enter => return ScreenAction::Send(self.editor.submit()),
            KeyInput::Tab => self.complete(names),
            KeyInput::Expand => self.show_output(None),
            KeyInput::Redraw => return ScreenAction::Redraw,
            KeyInput::Suspend => return ScreenAction::Suspend,
            KeyInput::EndOfInput if self.editor.is_empty() => return ScreenAction::Quit,
            KeyInput::EndOfInput => {
                self.editor.press(&KeyInput::Delete);
            }
            KeyInput::Interrupt if self.is_busy() => {
                if std::mem::replace(&mut self.transcript.is_cancelling, true) {
                    return ScreenAction::Quit;
                }
                // It may be over before the next key: a second one leaves all the same.
                self.is_quit_armed = self.editor.is_empty();
                return ScreenAction::Cancel;
            }
            KeyInput::Interrupt if was_leaving => return ScreenAction::Quit,
            KeyInput::Interrupt if self.editor.is_empty() => self.is_quit_armed = true,
            KeyInput::Interrupt => self.editor.clear(),
            key => {
                self.editor.press(key);
            }
        }
        ScreenAction::Nothing
    }

    fn complete(&mut self, names: impl Fn(&str) -> Vec<String>) {
        let Some(completion) = self.completion_words.complete(self.editor.before_cursor(), names) else { return };
        let CompletionChoices { replaced_bytes: replaces, .. } = completion;
        let common = completion.common_prefix();
        if common.len() > replaces || completion.choices.len() == 1 {
            self.editor.replace_before_cursor(replaces, &common);
        }
        if completion.choices.len() > 1 {
            self.choices = completion.choices;
        }
    }

    /// What is to be seen now. Rows that are finished are given once.
    pub fn frame(&mut self, now: Duration) -> ScreenFrame {
        let finished = self.transcript.take_finished();
        let rows = self.size.rows;
        let mut below = self.status_rows(now);
        below.extend(self.choice_rows());
        let (input, row, column) = self.input_rows(rows.saturating_sub(below.len()).max(1) / 2 + 1);
        let room = rows.saturating_sub(below.len() + input.len());
        let mut live = self.transcript.live_rows(now);
        let hidden = live.len().saturating_sub(room);
        live.drain(..hidden);
        let mut bottom = Vec::new();
        if self.transcript.needs_gap() && live.len() < room {
            bottom.push(StyledLine::default());
        }
        bottom.extend(live);
        if bottom.last().is_some_and(|row| *row != StyledLine::default()) && bottom.len() < room {
            bottom.push(StyledLine::default());
        }
        bottom.extend(below);
        let row = bottom.len() + row;
        bottom.extend(input);
        // A row that the terminal broke in two would not be found again.
        let bottom: Vec<StyledLine> = bottom.iter().map(|line| truncate_line(line, self.columns)).collect();
        let column = column.min(self.columns.saturating_sub(1));
        // A terminal of one or two rows shows the last ones.
        let hidden = bottom.len().saturating_sub(rows);
        ScreenFrame {
            finished,
            cursor_row: row.saturating_sub(hidden),
            cursor_column: column,
            bottom: bottom[hidden..].to_vec(),
        }
    }

    /// What is left when the chat has ended: everything, and no input.
    pub fn last_frame(&mut self, now: Duration) -> ScreenFrame {
        let mut finished = self.transcript.take_finished();
        finished.extend(self.transcript.live_rows(now));
        ScreenFrame { finished, bottom: Vec::new(), cursor_row: 0, cursor_column: 0 }
    }

    fn status_rows(&self, now: Duration) -> Vec<StyledLine> {
        if !self.is_busy() {
            let told = self.is_quit_armed.then(|| StyledLine::styled("ctrl-c again leaves", TextStyle::Muted));
            return told.into_iter().collect();
        }
        let time = super::tool_calls::format_elapsed(now.saturating_sub(self.busy_since.unwrap_or(now)));
        let spinner = SPINNER_FRAMES
            [usize::try_from(now.as_millis() / SPINNER_INTERVAL.as_millis()).unwrap_or(0) % SPINNER_FRAMES.len()];
        let said = if self.transcript.is_cancelling {
            format!("{spinner} cancelling · ctrl-c again leaves")
        } else if let Some((reason, left)) = self.transcript.retry_countdown(now) {
            // The beginning is what a narrow window shows.
            let left = left.as_secs() + 1;
            format!("{spinner} {time} · ctrl-c cancels · asks again in {left}s: {reason}")
        } else {
            format!("{spinner} {time} · ctrl-c cancels")
        };
        vec![StyledLine::styled(said, TextStyle::Muted)]
    }

    fn choice_rows(&self) -> Vec<StyledLine> {
        if self.choices.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = self.choices.iter().map(|choice| choice.trim()).collect();
        let mut rows =
            RowLayout::plain(self.size.columns).rows(&StyledLine::styled(names.join("  "), TextStyle::Muted));
        if rows.len() > MAX_CHOICE_ROWS {
            rows.truncate(MAX_CHOICE_ROWS - 1);
            rows.push(StyledLine::styled("…", TextStyle::Muted));
        }
        rows
    }

    /// The rows of what is being written, and where the cursor stands in them.
    fn input_rows(&self, most: usize) -> (Vec<StyledLine>, usize, usize) {
        let before = INPUT_PROMPT.chars().count();
        let written = self.editor.layout(self.size.columns.saturating_sub(before));
        let row = |(index, text): (usize, &String)| {
            StyledLine::styled(if index == 0 { INPUT_PROMPT } else { "  " }, TextStyle::UserInput)
                .with_text(text, TextStyle::Plain)
        };
        let rows: Vec<StyledLine> = written.rows.iter().enumerate().map(row).collect();
        // The cursor is always to be seen.
        let from = (written.cursor_row + 1).saturating_sub(most).min(rows.len().saturating_sub(most));
        let to = (from + most).min(rows.len());
        (rows[from..to].to_vec(), written.cursor_row - from, written.cursor_column + before)
    }
}

impl TerminalSize {
    fn clamp_to_min(self) -> Self {
        Self { columns: self.columns.max(MIN_TERMINAL_SIZE.columns), rows: self.rows.max(MIN_TERMINAL_SIZE.rows) }
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
