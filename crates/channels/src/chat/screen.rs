//! User interface of a chat as a value: events go in, rows come out. It can be tested without a terminal.

use std::time::Duration;

use capstan_protocol::EventId;

use super::completion::{CompletionChoices, CompletionWords};
use super::editor::MessageEditor;
use super::key_input::KeyInput;
use super::styled_line::{ColorMode, RowLayout, StyledLine, TextStyle, truncate_line};
use super::transcript::{ChatUpdate, INPUT_PROMPT, Transcript};

/// Frame interval of the spinner.
pub const SPINNER_INTERVAL: Duration = Duration::from_millis(100);
const SPINNER_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Maximum number of rows for completion choices.
const MAX_CHOICE_ROWS: usize = 3;
/// Minimum size used for the layout.
const MIN_TERMINAL_SIZE: TerminalSize = TerminalSize { columns: 8, rows: 3 };

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of columns.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Visible state: rows that scroll away and never change again, and the rows at the bottom that are redrawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenFrame {
    /// Rows to append above the bottom.
    pub finished: Vec<StyledLine>,
    /// New bottom, which replaces the previous one.
    pub bottom: Vec<StyledLine>,
    /// Row of the cursor within the bottom.
    pub cursor_row: usize,
    /// Column of the cursor.
    pub cursor_column: usize,
}

/// Result of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnEnding {
    /// True if the turn was cancelled.
    pub is_cancelled: bool,
    /// Failure that was not reported by a notice.
    pub error: Option<String>,
    /// Suggested fix.
    pub hint: Option<String>,
}

/// Action requested by a key press.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenAction {
    /// No action.
    Nothing,
    /// Send a message.
    Send(String),
    /// Cancel the run.
    Cancel,
    /// End the chat.
    Quit,
    /// Suspend the process until the shell resumes it.
    Suspend,
    /// Redraw the screen.
    Redraw,
}

/// Screen of a chat.
pub struct Screen {
    size: TerminalSize,
    /// Actual number of columns, which may be less than the minimum used for the layout.
    columns: usize,
    transcript: Transcript,
    editor: MessageEditor,
    completion_words: CompletionWords,
    choices: Vec<String>,
    /// Number of unanswered messages.
    unanswered_count: usize,
    /// True if a command was sent during a run. It may be queued, and later messages are queued behind it.
    has_queued_command: bool,
    /// Start of the current activity.
    busy_since: Option<Duration>,
    /// True after Ctrl-C on an empty line: a second one quits.
    is_quit_armed: bool,
}

impl Screen {
    /// Creates a screen. The history has the newest message last.
    pub fn new(size: TerminalSize, color_mode: ColorMode, history: Vec<String>, words: CompletionWords) -> Self {
        Self {
            size: size.clamp_to_min(),
            columns: size.columns.max(1),
            transcript: Transcript::new(color_mode, size.clamp_to_min().columns),
            editor: MessageEditor::new(history),
            completion_words: words,
            choices: Vec::new(),
            unanswered_count: 0,
            has_queued_command: false,
            busy_since: None,
            is_quit_armed: false,
        }
    }

    /// Adapts to a new terminal size.
    pub fn resize(&mut self, size: TerminalSize) {
        (self.size, self.columns) = (size.clamp_to_min(), size.columns.max(1));
        self.transcript.resize(self.size.columns);
    }

    /// True while a message is unanswered or a turn is running.
    pub fn is_busy(&self) -> bool {
        self.unanswered_count > 0 || self.transcript.has_running_turn()
    }

    /// Applies an update of the channel.
    pub fn apply_update(&mut self, update: ChatUpdate, now: Duration) {
        if matches!(update, ChatUpdate::Event { .. }) {
            self.busy_since.get_or_insert(now);
        }
        self.transcript.apply_update(update, now);
        // A recovered event has no waiting caller: it ends with its last update.
        if !self.is_busy()
            && let Some(since) = self.busy_since.take()
        {
            self.transcript.finish_turns(now.saturating_sub(since), now);
        }
    }

    /// Shows a message that was sent.
    pub fn add_user_message(&mut self, text: &str, now: Duration) {
        let was_busy = self.is_busy();
        self.transcript.add_gap();
        self.transcript.add_user_message(text);
        let is_command = text.trim_start().starts_with(',');
        self.has_queued_command = was_busy && (self.has_queued_command || is_command);
        if was_busy && !is_command {
            self.transcript.add_note(if self.has_queued_command {
                "  (steers the current run, or waits behind a queued command)"
            } else {
                "  (steers the current run at its next step)"
            });
        }
        self.transcript.separate_text();
        self.unanswered_count += 1;
        self.busy_since.get_or_insert(now);
    }

    /// Records that a message was answered, or folded into the turn of another.
    pub fn finish_event(&mut self, event: &EventId, ending: &TurnEnding, now: Duration) {
        self.unanswered_count = self.unanswered_count.saturating_sub(1);
        if let Some(error) = &ending.error {
            self.transcript.add_error(error);
        }
        if let Some(hint) = &ending.hint {
            self.transcript.add_note(&format!("hint: {hint}"));
        }
        if ending.is_cancelled {
            // The next queued message starts its turn, which can be cancelled too.
            self.transcript.mark_cancelled(event, now);
        }
        if self.unanswered_count == 0 {
            let elapsed = now.saturating_sub(self.busy_since.take().unwrap_or(now));
            self.transcript.finish_turns(elapsed, now);
            self.transcript.clear_replies();
        }
    }

    /// Shows a note that is not part of the conversation.
    pub fn add_note(&mut self, text: &str) {
        self.transcript.add_gap();
        self.transcript.add_note(text);
    }

    /// Shows the full output of a tool call, by number or the last one.
    pub fn show_output(&mut self, number: Option<usize>) {
        if !self.transcript.show_output(number) {
            self.add_note(&match number {
                Some(number) => format!("there is no output {number} (or no longer)"),
                None => "no tool output yet".to_owned(),
            });
        }
    }

    /// Handles a key press. `names` lists the entries of a folder for completion.
    pub fn press(&mut self, key: &KeyInput, names: impl Fn(&str) -> Vec<String>) -> ScreenAction {
        self.choices.clear();
        let was_quit_armed = std::mem::take(&mut self.is_quit_armed);
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
                // The run may end before the next key: a second Ctrl-C quits all the same.
                self.is_quit_armed = self.editor.is_empty();
                return ScreenAction::Cancel;
            }
            KeyInput::Interrupt if was_quit_armed => return ScreenAction::Quit,
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
        let CompletionChoices { replaced_bytes, .. } = completion;
        let common = completion.common_prefix();
        if common.len() > replaced_bytes || completion.choices.len() == 1 {
            self.editor.replace_before_cursor(replaced_bytes, &common);
        }
        if completion.choices.len() > 1 {
            self.choices = completion.choices;
        }
    }

    /// Current frame. Each finished row is returned once.
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
        // A row wrapped by the terminal itself could not be redrawn.
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

    /// Final frame at the end of the chat: all rows, without the input.
    pub fn last_frame(&mut self, now: Duration) -> ScreenFrame {
        let mut finished = self.transcript.take_finished();
        finished.extend(self.transcript.live_rows(now));
        ScreenFrame { finished, bottom: Vec::new(), cursor_row: 0, cursor_column: 0 }
    }

    fn status_rows(&self, now: Duration) -> Vec<StyledLine> {
        if !self.is_busy() {
            let hint = self.is_quit_armed.then(|| StyledLine::styled("ctrl-c again quits", TextStyle::Muted));
            return hint.into_iter().collect();
        }
        let time = super::tool_calls::format_elapsed(now.saturating_sub(self.busy_since.unwrap_or(now)));
        let spinner = SPINNER_FRAMES
            [usize::try_from(now.as_millis() / SPINNER_INTERVAL.as_millis()).unwrap_or(0) % SPINNER_FRAMES.len()];
        let status = if self.transcript.is_cancelling {
            format!("{spinner} cancelling · ctrl-c again quits")
        } else if let Some((reason, remaining)) = self.transcript.retry_countdown(now) {
            // The reason comes last, since a narrow terminal cuts off the end.
            let seconds = remaining.as_secs() + 1;
            format!("{spinner} {time} · ctrl-c cancels · retry in {seconds}s: {reason}")
        } else {
            format!("{spinner} {time} · ctrl-c cancels")
        };
        vec![StyledLine::styled(status, TextStyle::Muted)]
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

    /// Rows of the editor, at most `max_rows`, and the cursor position within them.
    fn input_rows(&self, max_rows: usize) -> (Vec<StyledLine>, usize, usize) {
        let prompt_columns = INPUT_PROMPT.chars().count();
        let layout = self.editor.layout(self.size.columns.saturating_sub(prompt_columns));
        let row = |(index, text): (usize, &String)| {
            StyledLine::styled(if index == 0 { INPUT_PROMPT } else { "  " }, TextStyle::UserInput)
                .with_text(text, TextStyle::Plain)
        };
        let rows: Vec<StyledLine> = layout.rows.iter().enumerate().map(row).collect();
        // The row of the cursor stays visible.
        let from = (layout.cursor_row + 1).saturating_sub(max_rows).min(rows.len().saturating_sub(max_rows));
        let to = (from + max_rows).min(rows.len());
        (rows[from..to].to_vec(), layout.cursor_row - from, layout.cursor_column + prompt_columns)
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
