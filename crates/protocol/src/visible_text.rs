//! Visible forms of characters that a terminal does not show, or obeys.

use std::fmt::Write as _;

/// Finds characters of a text that change how it is displayed, or are not displayed at all: control characters, controls
/// of the writing direction, and characters without a glyph. The state is kept between chunks of a text.
///
/// Joiners and variation selectors are part of emoji and of several scripts. They count as hidden unless they follow a
/// character that they can belong to, so that a run of them cannot carry a hidden text.
///
/// ```
/// # use capstan_protocol::HiddenCharDetector;
/// let mut detector = HiddenCharDetector::default();
/// let hidden: Vec<char> = "a\u{202e}👨\u{200d}👩".chars().filter(|one| detector.is_hidden(*one)).collect();
/// assert_eq!(hidden, ['\u{202e}']);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HiddenCharDetector {
    previous: PrecedingChar,
}

/// Character before the current one, as far as it matters to joiners and variation selectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PrecedingChar {
    /// No character that can be joined or varied.
    #[default]
    None,
    /// A visible ASCII character, such as the digit of a keycap.
    Ascii,
    /// Another visible character.
    Base,
    /// A variation selector of a visible character.
    Selector,
}

impl HiddenCharDetector {
    /// Detector for a text that continues a visible one, such as the next typed character.
    pub fn after_visible_text() -> Self {
        Self { previous: PrecedingChar::Base }
    }

    /// Checks the next character of the text.
    pub fn is_hidden(&mut self, character: char) -> bool {
        let is_hidden = match character {
            '\u{200c}' | '\u{200d}' => !matches!(self.previous, PrecedingChar::Base | PrecedingChar::Selector),
            '\u{fe00}'..='\u{fe0f}' => !matches!(self.previous, PrecedingChar::Ascii | PrecedingChar::Base),
            '\u{e0100}'..='\u{e01ef}' => self.previous != PrecedingChar::Base,
            other => other.is_control() || has_no_glyph(other),
        };
        self.previous = match character {
            _ if is_hidden || character.is_whitespace() => PrecedingChar::None,
            '\u{200c}' | '\u{200d}' => PrecedingChar::None,
            '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => PrecedingChar::Selector,
            other if other.is_ascii() => PrecedingChar::Ascii,
            _ => PrecedingChar::Base,
        };
        is_hidden
    }
}

/// Characters that Unicode calls default-ignorable, line and paragraph separators, and annotation marks.
fn has_no_glyph(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Shows a text on one line: every hidden character is replaced by its escape, and nothing is removed.
///
/// ```
/// # use capstan_protocol::escape_line;
/// assert_eq!(escape_line("ls #\u{1b}]\nrm x"), r"ls #\x1b]\nrm x");
/// assert_eq!(escape_line("a\u{202e}b"), r"a\u{202e}b");
/// ```
pub fn escape_line(text: &str) -> String {
    escape_where(text, |_| false, push_escape)
}

/// Shows a text of several lines like [`escape_line`], with its line ends and tabs.
pub fn escape_text(text: &str) -> String {
    // A carriage return before a line end does nothing.
    escape_where(&text.replace("\r\n", "\n"), |character| matches!(character, '\n' | '\t'), push_escape)
}

/// Shows a JSON text with hidden characters of its strings as escapes of JSON, so that its value stays the same.
///
/// ```
/// # use capstan_protocol::escape_json_text;
/// assert_eq!(escape_json_text("[\"a\u{9b}b\"]\n"), "[\"a\\u009bb\"]\n");
/// ```
pub fn escape_json_text(text: &str) -> String {
    escape_where(
        text,
        |character| matches!(character, '\n' | '\t' | '\r'),
        |character, shown| {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _infallible = write!(shown, "\\u{unit:04x}");
            }
        },
    )
}

fn escape_where(text: &str, is_kept: impl Fn(char) -> bool, push: impl Fn(char, &mut String)) -> String {
    let mut detector = HiddenCharDetector::default();
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if detector.is_hidden(character) && !is_kept(character) {
            push(character, &mut shown);
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Appends the escape of a hidden character.
pub fn push_escape(character: char, shown: &mut String) {
    let code = u32::from(character);
    // Writing to a string does not fail.
    let _infallible = match character {
        '\n' => shown.write_str("\\n"),
        '\r' => shown.write_str("\\r"),
        '\t' => shown.write_str("\\t"),
        _ if code <= 0xff => write!(shown, "\\x{code:02x}"),
        _ => write!(shown, "\\u{{{code:x}}}"),
    };
}

#[cfg(test)]
mod tests {
    use super::{escape_json_text, escape_line, escape_text};

    #[test]
    fn x06_hidden_characters_of_every_kind_are_shown() {
        let hidden = [
            ("\u{1b}[2J", r"\x1b[2J"),
            ("\u{7f}\u{9b}2J", r"\x7f\x9b2J"),
            ("\r\n\t", r"\r\n\t"),
            ("\u{ad}\u{2060}\u{3164}", r"\xad\u{2060}\u{3164}"),
            ("\u{200b}\u{200e}\u{2028}\u{202e}\u{2066}\u{feff}", r"\u{200b}\u{200e}\u{2028}\u{202e}\u{2066}\u{feff}"),
            ("\u{e0041}\u{e007f}", r"\u{e0041}\u{e007f}"),
        ];
        for (text, shown) in hidden {
            assert_eq!(escape_line(&format!("a{text}b")), format!("a{shown}b"));
        }
    }

    #[test]
    fn x06_joiners_and_selectors_are_kept_where_they_belong() {
        for text in
            ["👨\u{200d}👩\u{200d}👧", "❤\u{fe0f}\u{200d}🔥", "1\u{fe0f}\u{20e3}", "می\u{200c}خواهم", "葛\u{e0100}"]
        {
            assert_eq!(escape_line(text), text);
        }
        assert_eq!(escape_line("a\u{200d}b"), r"a\u{200d}b");
        assert_eq!(escape_line("👍\u{fe0f}\u{fe01}\u{fe02}"), "👍\u{fe0f}\\u{fe01}\\u{fe02}");
    }

    #[test]
    fn x06_text_keeps_its_lines_and_json_its_value() {
        assert_eq!(escape_text("a\r\n\tb\rc"), "a\n\tb\\rc");
        let value = serde_json::json!({ "a\u{9b}": ["\u{e0041}", "\u{202e}\u{1b}"] });
        let text = escape_json_text(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
