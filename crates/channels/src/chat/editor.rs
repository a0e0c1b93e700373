//! Message editor: text, cursor and history.

use unicode_segmentation::UnicodeSegmentation as _;

use super::escape::EscapeStripper;
use super::key_input::KeyInput;
use super::styled_line::grapheme_columns;

/// Maximum number of messages in the history.
pub const MAX_HISTORY_MESSAGES: usize = 1000;

/// Displayed form of a tab.
const TAB_SPACES: &str = "    ";

/// Editor for the message being written.
#[derive(Debug, Clone, Default)]
pub struct MessageEditor {
    text: String,
    /// Byte offset at a grapheme boundary.
    cursor: usize,
    history: Vec<String>,
    /// Index of the recalled history message, and the draft it replaced.
    recalled_message: Option<(usize, String)>,
}

/// Text of the editor, wrapped into rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorLayout {
    /// Wrapped rows.
    pub rows: Vec<String>,
    /// Row of the cursor.
    pub cursor_row: usize,
    /// Column of the cursor.
    pub cursor_column: usize,
}

impl MessageEditor {
    /// Creates an editor with this history, newest message last.
    pub fn new(mut history: Vec<String>) -> Self {
        let excess = history.len().saturating_sub(MAX_HISTORY_MESSAGES);
        history.drain(..excess);
        Self { history, ..Self::default() }
    }

    /// Current text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Text before the cursor.
    pub fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// True if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes the text and adds it to the history.
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

    /// Discards the text.
    pub fn clear(&mut self) {
        self.recalled_message = None;
        self.cursor = 0;
        self.text.clear();
    }

    /// Replaces the given number of bytes before the cursor.
    pub fn replace_before_cursor(&mut self, bytes: usize, replacement: &str) {
        let from = self.cursor.saturating_sub(bytes);
        self.text.replace_range(from..self.cursor, replacement);
        self.cursor = from + replacement.len();
    }

    /// Handles an editing key. Returns false for keys that do not concern the text.
    pub fn press(&mut self, key: &KeyInput) -> bool {
        match key {
            KeyInput::Character(character) => {
                self.insert(&EscapeStripper::for_input().push(character.encode_utf8(&mut [0; 4])));
            }
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
        // Characters between words are skipped together with the word before them.
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

    /// Number of graphemes before the cursor in its line.
    fn graphemes_before_cursor(&self) -> usize {
        self.text[self.line_start()..self.cursor].graphemes(true).count()
    }

    fn move_to_line_above(&mut self) {
        let column = self.graphemes_before_cursor();
        self.cursor = self.line_start() - 1;
        let start = self.line_start();
        self.cursor = grapheme_offset(&self.text[start..self.cursor], column) + start;
    }

    fn move_to_line_below(&mut self) {
        let column = self.graphemes_before_cursor();
        self.cursor = self.line_end() + 1;
        let (start, end) = (self.cursor, self.line_end());
        self.cursor = grapheme_offset(&self.text[start..end], column) + start;
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

    /// Wraps the text into rows of `width` columns.
    pub fn layout(&self, width: usize) -> EditorLayout {
        let width = width.max(2);
        let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
        let mut cursor = None;
        for (at, character) in self.text.grapheme_indices(true) {
            let character = if character == "\t" { TAB_SPACES } else { character };
            let columns = if character == TAB_SPACES { TAB_SPACES.len() } else { grapheme_columns(character) };
            // The cursor needs a column after the last character.
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
        let (cursor_row, cursor_column) = cursor.unwrap_or((rows.len(), used));
        rows.push(row);
        EditorLayout { rows, cursor_row, cursor_column }
    }
}

/// Pasted text with normalised line ends and without terminal control sequences. Tabs are kept.
fn sanitize_paste(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.split('\t').map(|part| EscapeStripper::for_input().push(part)).collect::<Vec<_>>().join("\t")
}

/// Byte offset of the grapheme with this index, or the end of the text.
fn grapheme_offset(text: &str, index: usize) -> usize {
    text.grapheme_indices(true).nth(index).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
