//! Removal of terminal control sequences from text written by models and tools.

use capstan_protocol::{HiddenCharDetector, push_escape};

/// Removes escape sequences and control characters from a stream of text, and shows other hidden characters, such as
/// controls of the writing direction, as their escapes. The state is kept between chunks, so sequences split over several
/// chunks are removed too.
#[derive(Debug, Clone, Default)]
pub struct EscapeStripper {
    state: EscapeState,
    detector: HiddenCharDetector,
    /// Remove hidden characters instead of showing them.
    removes_hidden: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After the escape character.
    Escape,
    /// Inside a control sequence, up to its final byte.
    ControlSequence,
    /// Inside a command with a string, such as a window title.
    StringCommand,
    /// Inside such a command, after an escape character that may end it.
    StringCommandEscape,
}

impl EscapeStripper {
    /// Stripper for text that a user enters, in which an escape would become part of the message.
    pub(super) fn for_input() -> Self {
        Self { detector: HiddenCharDetector::after_visible_text(), removes_hidden: true, ..Self::default() }
    }

    /// Displayable part of the next chunk. Tabs become spaces; line ends are kept.
    pub fn push(&mut self, chunk: &str) -> String {
        let mut shown = String::with_capacity(chunk.len());
        for character in chunk.chars() {
            self.push_char(character, &mut shown);
        }
        shown
    }

    fn push_char(&mut self, character: char, shown: &mut String) {
        // A line end resets the state, so that an unterminated sequence does not swallow the rest of the text.
        if character == '\n' {
            self.state = EscapeState::Text;
            shown.push('\n');
            return;
        }
        self.state = match (self.state, character) {
            (EscapeState::Text | EscapeState::ControlSequence, '\u{1b}')
            | (EscapeState::Escape, ' '..='/' | '\u{1b}') => EscapeState::Escape,
            (EscapeState::Text, '\u{9b}') | (EscapeState::Escape, '[') => EscapeState::ControlSequence,
            (EscapeState::Text, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}')
            | (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => EscapeState::StringCommand,
            (EscapeState::Text, character) => {
                let is_hidden = self.detector.is_hidden(character);
                match character {
                    '\t' => shown.push_str("    "),
                    character if !is_hidden => shown.push(character),
                    character if character.is_control() || self.removes_hidden => {}
                    character => push_escape(character, shown),
                }
                EscapeState::Text
            }
            (EscapeState::ControlSequence, '@'..='~')
            | (EscapeState::Escape, _)
            | (EscapeState::StringCommand, '\u{7}' | '\u{9c}')
            | (EscapeState::StringCommandEscape, '\\') => EscapeState::Text,
            (EscapeState::ControlSequence, _) => EscapeState::ControlSequence,
            (EscapeState::StringCommand | EscapeState::StringCommandEscape, '\u{1b}') => {
                EscapeState::StringCommandEscape
            }
            (EscapeState::StringCommand | EscapeState::StringCommandEscape, _) => EscapeState::StringCommand,
        };
    }
}

/// Displayable part of a complete text.
pub fn strip_escapes(text: &str) -> String {
    EscapeStripper::default().push(text)
}

/// Writer for a terminal: passes on the displayable part of the text, see [`strip_escapes`].
pub struct EscapeStrippingWriter<W> {
    stream: W,
    stripper: EscapeStripper,
}

impl<W: std::io::Write> EscapeStrippingWriter<W> {
    /// Creates a writer on this stream.
    pub fn new(stream: W) -> Self {
        Self { stream, stripper: EscapeStripper::default() }
    }
}

impl<W: std::io::Write> std::io::Write for EscapeStrippingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Each write contains complete characters, since texts are written as a whole.
        let shown = self.stripper.push(&String::from_utf8_lossy(bytes));
        self.stream.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{EscapeStripper, strip_escapes};

    #[test]
    fn c01_terminal_control_sequences_are_removed() {
        assert_eq!(strip_escapes("a\u{1b}[31mred\u{1b}[0m b"), "ared b");
        assert_eq!(strip_escapes("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\y"), "xlinky");
        assert_eq!(strip_escapes("\u{9b}2Jx\u{9d}0;t\u{9c}y\u{1b}(Bz\u{1b}cw"), "xyzw");
        assert_eq!(strip_escapes("a\r\nb\u{8}c\u{7f}\td"), "a\nbc    d");
        assert_eq!(strip_escapes("safe\u{202e}gnp.exe"), r"safe\u{202e}gnp.exe");
        assert_eq!(strip_escapes("你好 👨\u{200d}👩\u{200d}👧 é"), "你好 👨\u{200d}👩\u{200d}👧 é");
    }

    #[test]
    fn x06_hidden_characters_are_shown_in_output_and_removed_from_input() {
        let hidden = "a\u{200b}\u{ad}\u{2060}\u{3164}\u{e0041}b";
        assert_eq!(strip_escapes(hidden), r"a\u{200b}\xad\u{2060}\u{3164}\u{e0041}b");
        assert_eq!(EscapeStripper::for_input().push(hidden), "ab");
        assert_eq!(EscapeStripper::for_input().push("\u{200d}"), "\u{200d}", "typed after an emoji");
    }

    #[test]
    fn c01_sequence_split_over_several_chunks_is_removed() {
        let mut stripper = EscapeStripper::default();
        let shown: Vec<String> =
            ["a\u{1b}", "[3", "1mb\u{1b}", "]0;ti", "tle\u{1b}", "\\c"].map(|chunk| stripper.push(chunk)).into();
        assert_eq!(shown.concat(), "abc");
    }

    #[test]
    fn c01_unterminated_sequence_swallows_at_most_its_line() {
        assert_eq!(strip_escapes("a\u{1b}]0;title\nb\u{1b}[12\nc"), "a\nb\nc");
    }
}
