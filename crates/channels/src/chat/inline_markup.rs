//! Inline Markdown: strong text, emphasis and code.
//!
//! In an open line, a marker is interpreted without knowledge of the text that follows later; see
//! [`markdown`](super::markdown) for the reason.

use super::styled_line::{StyledLine, TextStyle};

/// Visibility of Markdown markers. Without colours, the markers take the place of styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkupVisibility {
    /// Show the markers.
    Shown,
    /// Hide the markers and style the text.
    Hidden,
}

/// Progress of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineProgress {
    /// The line may grow: an open marker may still be closed.
    Open,
    /// The line is complete: a marker that is never closed is ordinary text.
    Complete,
}

/// Parses a line. Links are shown as written: they are readable, and terminals recognise them.
pub(super) fn parse_inline(
    text: &str,
    style: TextStyle,
    markup: MarkupVisibility,
    progress: LineProgress,
) -> StyledLine {
    let mut parser = InlineParser {
        text,
        offset: 0,
        line: StyledLine::default(),
        base_style: style,
        is_strong: false,
        is_emphasized: false,
    };
    if markup == MarkupVisibility::Shown {
        parser.line.push(text, style);
        return parser.line;
    }
    while parser.offset < text.len() {
        parser.parse_next(progress);
    }
    parser.line
}

struct InlineParser<'a> {
    text: &'a str,
    offset: usize,
    line: StyledLine,
    base_style: TextStyle,
    is_strong: bool,
    is_emphasized: bool,
}

impl InlineParser<'_> {
    fn parse_next(&mut self, progress: LineProgress) {
        let rest = &self.text[self.offset..];
        let Some(next) = rest.chars().next() else { return };
        match next {
            '`' => self.push_code(progress),
            '\\' if rest[1..].starts_with(|c: char| c.is_ascii_punctuation()) => {
                self.offset += 1;
                self.push_literal(1);
            }
            '*' if rest.starts_with("**") => {
                let is_open = self.is_strong;
                if self.try_toggle("**", is_open, progress) { self.is_strong = !is_open } else { self.push_literal(2) }
            }
            '*' | '_' => {
                let is_open = self.is_emphasized;
                let marker = if next == '*' { "*" } else { "_" };
                if self.try_toggle(marker, is_open, progress) {
                    self.is_emphasized = !is_open;
                } else {
                    self.push_literal(1);
                }
            }
            other => self.push_literal(other.len_utf8()),
        }
    }

    /// Skips a marker if it opens or closes something here. Returns false if it is ordinary text.
    fn try_toggle(&mut self, marker: &str, is_open: bool, progress: LineProgress) -> bool {
        let before = self.text[..self.offset].chars().next_back();
        let rest = &self.text[self.offset + marker.len()..];
        let after = rest.chars().next();
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        // An underscore within a word belongs to the word.
        let is_within_word = marker == "_" && is_word(before) && is_word(after);
        let is_marker = if is_open {
            !is_blank(before) && !is_within_word
        } else {
            let opens =
                after.is_some_and(|c| !c.is_whitespace()) && !(is_word(before) && marker != "**") && !is_within_word;
            opens && (progress == LineProgress::Open || rest.contains(marker))
        };
        if is_marker {
            self.offset += marker.len();
        }
        is_marker
    }

    /// Pushes a code span, up to as many backticks as it started with.
    fn push_code(&mut self, progress: LineProgress) {
        let rest = &self.text[self.offset..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let (fence, inside) = rest.split_at(ticks);
        match inside.find(fence) {
            Some(end) => {
                self.line.push(&inside[..end], TextStyle::Code);
                self.offset += ticks + end + ticks;
            }
            None if progress == LineProgress::Open => {
                self.line.push(inside, TextStyle::Code);
                self.offset = self.text.len();
            }
            None => self.push_literal(ticks),
        }
    }

    fn push_literal(&mut self, bytes: usize) {
        let style = match (self.is_strong, self.is_emphasized) {
            (true, _) => TextStyle::Strong,
            (false, true) => TextStyle::Emphasis,
            (false, false) => self.base_style,
        };
        self.line.push(&self.text[self.offset..self.offset + bytes], style);
        self.offset += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{LineProgress, MarkupVisibility, parse_inline};
    use crate::chat::styled_line::{StyledLine, TextStyle};

    fn parse_line(text: &str) -> StyledLine {
        parse_inline(text, TextStyle::Plain, MarkupVisibility::Hidden, LineProgress::Complete)
    }

    #[test]
    fn c01_markers_become_styles() {
        let expected = StyledLine::styled("a ", TextStyle::Plain)
            .with_text("b c", TextStyle::Strong)
            .with_text(" d ", TextStyle::Plain);
        assert_eq!(
            parse_line("a **b c** d *e* `f*g*`"),
            expected
                .with_text("e", TextStyle::Emphasis)
                .with_text(" ", TextStyle::Plain)
                .with_text("f*g*", TextStyle::Code)
        );
    }

    #[test]
    fn c01_characters_that_only_look_like_markers_stay() {
        for text in ["2 * 3 * 4", "2 ** 3", "snake_case_name", "a `b", "**never", "*", "5*6*7"] {
            assert_eq!(parse_line(text), StyledLine::styled(text, TextStyle::Plain), "{text}");
        }
        assert_eq!(parse_line("\\*a\\*").text(), "*a*");
    }

    #[test]
    fn c01_markers_stay_visible_without_colours() {
        assert_eq!(
            parse_inline("**a** `b`", TextStyle::Plain, MarkupVisibility::Shown, LineProgress::Complete).text(),
            "**a** `b`"
        );
    }
}
