//! What is being written: text, a cursor, and the messages before.

use unicode_segmentation::UnicodeSegmentation as _;

use super::escape::strip_escapes;
use super::key_input::KeyInput;
use super::styled_line::grapheme_columns;

/// How many messages are remembered.
pub const MAX_HISTORY_MESSAGES: usize = 1000;

/// How a tab is shown.
const TAB_SPACES: &str = "    ";

/// The text that is being written.
#[derive(Debug, Clone, Default)]
pub struct MessageEditor {
    text: String,
    /// A byte between two characters.
    cursor: usize,
    history: Vec<String>,
    /// Which message of the history is shown, and what was being written before.
    recalled_message: Option<(usize, String)>,
}

/// What is written, in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorLayout {
    /// The rows.
    pub rows: Vec<String>,
    /// In which row the cursor stands.
    pub cursor_row: usize,
    /// In which column.
    pub cursor_column: usize,
}

impl MessageEditor {
    /// An editor that remembers these messages, the newest last.
    pub fn new(mut history: Vec<String>) -> Self {
        let superfluous = history.len().saturating_sub(MAX_HISTORY_MESSAGES);
        history.drain(..superfluous);
        Self { history, ..Self::default() }
    }

    /// What is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is written before the cursor.
    pub fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes what is written, and remembers it.
    pub fn submit(&mut self) -> String {
        self.recalled_message = None;
        self.cursor = 0;
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            self.history.push(text.clone());
            if self.history.len() > MAX_HISTORY_MESSAGES {
                self.history.remove(0);
            }
        }
        text
    }

    /// Lets go of what is written.
    pub fn clear(&mut self) {
        self.recalled_message = None;
        self.cursor = 0;
        self.text.clear();
    }

    /// Puts this in place of the last characters before the cursor.
    pub fn replace_before_cursor(&mut self, bytes: usize, with: &str) {
        let from = self.cursor.saturating_sub(bytes);
        self.text.replace_range(from..self.cursor, with);
        self.cursor = from + with.len();
    }

    /// Does what a key asks for that concerns the text alone. Says whether it was such a key.
    pub fn press(&mut self, key: &KeyInput) -> bool {
        match key {
            KeyInput::Character(character) => self.insert(&strip_escapes(character.encode_utf8(&mut [0; 4]))),
            KeyInput::Paste(text) => self.insert(&sanitize_paste(text)),
            KeyInput::NewLine => self.insert("\n"),
            KeyInput::Backspace => self.delete(self.left_of_cursor()..self.cursor),
            KeyInput::Delete => self.delete(self.cursor..self.right_of_cursor()),
            KeyInput::DeleteWord => self.delete(self.word_left_of_cursor()..self.cursor),
            KeyInput::DeleteToStart => self.delete(self.line_start()..self.cursor),
            KeyInput::DeleteToEnd => self.delete(self.cursor..self.line_end()),
            KeyInput::Left => self.cursor = self.left_of_cursor(),
            KeyInput::Right => self.cursor = self.right_of_cursor(),
            KeyInput::WordLeft => self.cursor = self.word_left_of_cursor(),
            KeyInput::WordRight => self.cursor = self.word_right_of_cursor(),
            KeyInput::Home => self.cursor = self.line_start(),
            KeyInput::End => self.cursor = self.line_end(),
            KeyInput::Up if self.line_start() > 0 => self.move_to_line_above(),
            KeyInput::Up => self.recall_earlier(),
            KeyInput::Down if self.line_end() < self.text.len() => self.move_to_line_below(),
            KeyInput::Down => self.recall_later(),
            KeyInput::Enter
            | KeyInput::Tab
            | KeyInput::Interrupt
            | KeyInput::EndOfInput
            | KeyInput::Suspend
            | KeyInput::Redraw
            | KeyInput::Expand => {
                return false;
            }
        }
        true
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    fn delete(&mut self, range: std::ops::Range<usize>) {
        self.cursor = range.start;
        self.text.replace_range(range, "");
    }

    fn left_of_cursor(&self) -> usize {
        let last = self.text[..self.cursor].grapheme_indices(true).next_back();
        last.map_or(0, |(at, _)| at)
    }

    fn right_of_cursor(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn word_left_of_cursor(&self) -> usize {
        let before = &self.text[..self.cursor];
        let word = before.unicode_word_indices().next_back();
        // What stands between words is a word of its own kind.
        word.map_or(0, |(at, _)| at)
    }

    fn word_right_of_cursor(&self) -> usize {
        let after = &self.text[self.cursor..];
        let word = after.unicode_word_indices().next();
        word.map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    /// How many characters stand before the cursor in its line.
    fn graphemes_before_cursor(&self) -> usize {
        self.text[self.line_start()..self.cursor].graphemes(true).count()
    }

    fn move_to_line_above(&mut self) {
        let place = self.graphemes_before_cursor();
        self.cursor = self.line_start() - 1;
        let start = self.line_start();
        self.cursor = grapheme_offset(&self.text[start..self.cursor], place) + start;
    }

    fn move_to_line_below(&mut self) {
        let place = self.graphemes_before_cursor();
        self.cursor = self.line_end() + 1;
        let (start, end) = (self.cursor, self.line_end());
        self.cursor = grapheme_offset(&self.text[start..end], place) + start;
    }

    fn recall_earlier(&mut self) {
        let at = self.recalled_message.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(earlier) = at.checked_sub(1) else { return };
        let draft = match self.recalled_message.take() {
            Some((_, draft)) => draft,
            None => self.text.clone(),
        };
        self.set_text(self.history[earlier].clone());
        self.recalled_message = Some((earlier, draft));
    }

    fn recall_later(&mut self) {
        let Some((at, draft)) = self.recalled_message.take() else { return };
        match self.history.get(at + 1).cloned() {
            Some(later) => {
                self.set_text(later);
                self.recalled_message = Some((at + 1, draft));
            }
            None => self.set_text(draft),
        }
    }

    fn set_text(&mut self, text: String) {
        self.text = text;
        self.cursor = self.text.len();
    }

    /// What is written, in rows of this many columns.
    pub fn layout(&self, width: usize) -> EditorLayout {
        let width = width.max(2);
        let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
        let mut cursor = None;
        for (at, character) in self.text.grapheme_indices(true) {
            let character = if character == "\t" { TAB_SPACES } else { character };
            let columns = if character == TAB_SPACES { TAB_SPACES.len() } else { grapheme_columns(character) };
            // The cursor needs a column of its own.
            if character != "\n" && used + columns >= width {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            if at == self.cursor {
                cursor = Some((rows.len(), used));
            }
            if character == "\n" {
                rows.push(std::mem::take(&mut row));
                used = 0;
            } else {
                row.push_str(character);
                used += columns;
            }
        }
        let (row_of_cursor, column) = cursor.unwrap_or((rows.len(), used));
        rows.push(row);
        EditorLayout { rows, cursor_row: row_of_cursor, cursor_column: column }
    }
}

/// A text that was pasted as it is taken in: what would drive the terminal is left out, tabs are not.
fn sanitize_paste(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.split('\t').map(strip_escapes).collect::<Vec<_>>().join("\t")
}

/// Where the character of this number begins, or the end of the text.
fn grapheme_offset(text: &str, number: usize) -> usize {
    text.grapheme_indices(true).nth(number).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
