//! What stands within a line of Markdown: strong, stressed, program text.

use super::styled_line::{StyledLine, TextStyle};

/// Whether the signs of Markdown are shown. Where there are no colours they are what tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkupVisibility {
    /// They are.
    Shown,
    /// The style tells.
    Hidden,
}

/// How far a line has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineProgress {
    /// It may go on: what was begun may end yet.
    Open,
    /// It is all there: what was begun and never ends is just a sign.
    Complete,
}

/// Reads a line. Links are left as they are written: they can be read, and a terminal knows them.
pub(super) fn parse_inline(text: &str, style: TextStyle, signs: MarkupVisibility, reach: LineProgress) -> StyledLine {
    let mut reader = InlineParser {
        text,
        offset: 0,
        line: StyledLine::default(),
        base_style: style,
        is_strong: false,
        is_emphasized: false,
    };
    if signs == MarkupVisibility::Shown {
        reader.line.push(text, style);
        return reader.line;
    }
    while reader.offset < text.len() {
        reader.parse_next(reach);
    }
    reader.line
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
    fn parse_next(&mut self, reach: LineProgress) {
        let rest = &self.text[self.offset..];
        let Some(next) = rest.chars().next() else { return };
        match next {
            '`' => self.push_code(reach),
            '\\' if rest[1..].starts_with(|c: char| c.is_ascii_punctuation()) => {
                self.offset += 1;
                self.push_literal(1);
            }
            '*' if rest.starts_with("**") => {
                let is_open = self.is_strong;
                if self.try_toggle("**", is_open, reach) { self.is_strong = !is_open } else { self.push_literal(2) }
            }
            '*' | '_' => {
                let is_open = self.is_emphasized;
                let sign = if next == '*' { "*" } else { "_" };
                if self.try_toggle(sign, is_open, reach) { self.is_emphasized = !is_open } else { self.push_literal(1) }
            }
            other => self.push_literal(other.len_utf8()),
        }
    }

    /// Whether a sign begins or ends something here; if so it is passed over.
    fn try_toggle(&mut self, sign: &str, is_open: bool, reach: LineProgress) -> bool {
        let before = self.text[..self.offset].chars().next_back();
        let rest = &self.text[self.offset + sign.len()..];
        let after = rest.chars().next();
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        // Within a word the underscore belongs to it.
        let joins = sign == "_" && is_word(before) && is_word(after);
        let counts = if is_open {
            !is_blank(before) && !joins
        } else {
            let opens = after.is_some_and(|c| !c.is_whitespace()) && !(is_word(before) && sign != "**") && !joins;
            opens && (reach == LineProgress::Open || rest.contains(sign))
        };
        if counts {
            self.offset += sign.len();
        }
        counts
    }

    /// Program text, up to as many ticks as it began with.
    fn push_code(&mut self, reach: LineProgress) {
        let rest = &self.text[self.offset..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let (fence, inside) = rest.split_at(ticks);
        match inside.find(fence) {
            Some(end) => {
                self.line.push(&inside[..end], TextStyle::Code);
                self.offset += ticks + end + ticks;
            }
            None if reach == LineProgress::Open => {
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
    fn c01_signs_become_styles() {
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
    fn c01_what_only_looks_like_a_sign_stays() {
        for text in ["2 * 3 * 4", "2 ** 3", "snake_case_name", "a `b", "**never", "*", "5*6*7"] {
            assert_eq!(parse_line(text), StyledLine::styled(text, TextStyle::Plain), "{text}");
        }
        assert_eq!(parse_line("\\*a\\*").text(), "*a*");
    }

    #[test]
    fn c01_without_colours_the_signs_tell() {
        assert_eq!(
            parse_inline("**a** `b`", TextStyle::Plain, MarkupVisibility::Shown, LineProgress::Complete).text(),
            "**a** `b`"
        );
    }
}
