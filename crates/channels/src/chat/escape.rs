//! What a model or a tool wrote must not drive the terminal it is shown on.

/// Takes out of a stream of text what would drive a terminal: escape sequences, control characters, and what turns the
/// direction of writing around. It remembers where it is, so a sequence that comes in pieces is taken out too.
#[derive(Debug, Clone, Default)]
pub struct EscapeStripper {
    state: EscapeState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After the escape character.
    Escape,
    /// In a control sequence, up to its last letter.
    ControlSequence,
    /// In a command with a text, such as the title of a window.
    StringCommand,
    /// In such a command, after an escape character that may end it.
    StringCommandEscape,
}

impl EscapeStripper {
    /// What may be shown of the next piece. A tab becomes blanks; line ends stay.
    pub fn push(&mut self, piece: &str) -> String {
        let mut shown = String::with_capacity(piece.len());
        for character in piece.chars() {
            self.push_char(character, &mut shown);
        }
        shown
    }

    fn push_char(&mut self, character: char, shown: &mut String) {
        // A line end ends everything: what was never finished must not swallow the rest.
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
                match character {
                    '\t' => shown.push_str("    "),
                    character if character.is_control() || is_invisible_format_char(character) => {}
                    character => shown.push(character),
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

/// What may be shown of a whole text.
pub fn strip_escapes(text: &str) -> String {
    EscapeStripper::default().push(text)
}

/// Characters that are not seen and change how others are: text could be made to read as something that it is not.
fn is_invisible_format_char(character: char) -> bool {
    matches!(
        character,
        '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

/// A stream for people: what is written to it is [tamed](tame) first.
pub struct EscapeStrippingWriter<W> {
    stream: W,
    stripper: EscapeStripper,
}

impl<W: std::io::Write> EscapeStrippingWriter<W> {
    /// Writes to this stream.
    pub fn new(stream: W) -> Self {
        Self { stream, stripper: EscapeStripper::default() }
    }
}

impl<W: std::io::Write> std::io::Write for EscapeStrippingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Texts are written whole, so no character is cut in two.
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
    fn c01_what_would_drive_a_terminal_is_taken_out() {
        assert_eq!(strip_escapes("a\u{1b}[31mred\u{1b}[0m b"), "ared b");
        assert_eq!(strip_escapes("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\y"), "xlinky");
        assert_eq!(strip_escapes("\u{9b}2Jx\u{9d}0;t\u{9c}y\u{1b}(Bz\u{1b}cw"), "xyzw");
        assert_eq!(strip_escapes("a\r\nb\u{8}c\u{7f}\td"), "a\nbc    d");
        assert_eq!(strip_escapes("safe\u{202e}gnp.exe"), "safegnp.exe");
        assert_eq!(strip_escapes("你好 👨\u{200d}👩\u{200d}👧 é"), "你好 👨\u{200d}👩\u{200d}👧 é");
    }

    #[test]
    fn c01_a_sequence_that_comes_in_pieces_is_taken_out_too() {
        let mut tame = EscapeStripper::default();
        let shown: Vec<String> =
            ["a\u{1b}", "[3", "1mb\u{1b}", "]0;ti", "tle\u{1b}", "\\c"].map(|p| tame.push(p)).into();
        assert_eq!(shown.concat(), "abc");
    }

    #[test]
    fn c01_a_sequence_that_never_ends_swallows_no_more_than_its_line() {
        assert_eq!(strip_escapes("a\u{1b}]0;title\nb\u{1b}[12\nc"), "a\nb\nc");
    }
}
