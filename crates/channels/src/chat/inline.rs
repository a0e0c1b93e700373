//! What stands within a line of Markdown: strong, stressed, program text.

use super::line::{Line, Style};

/// Whether the signs of Markdown are shown. Where there are no colours they are what tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signs {
    /// They are.
    Shown,
    /// The style tells.
    Hidden,
}

/// How far a line has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// It may go on: what was begun may end yet.
    Open,
    /// It is all there: what was begun and never ends is just a sign.
    Whole,
}

/// Reads a line. Links are left as they are written: they can be read, and a terminal knows them.
pub(super) fn read(text: &str, style: Style, signs: Signs, reach: Reach) -> Line {
    let mut reader = Reader { text, at: 0, line: Line::default(), base: style, strong: false, stressed: false };
    if signs == Signs::Shown {
        reader.line.push(text, style);
        return reader.line;
    }
    while reader.at < text.len() {
        reader.step(reach);
    }
    reader.line
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: Line,
    base: Style,
    strong: bool,
    stressed: bool,
}

impl Reader<'_> {
    fn step(&mut self, reach: Reach) {
        let rest = &self.text[self.at..];
        let Some(next) = rest.chars().next() else { return };
        match next {
            '`' => self.code(reach),
            '\\' if rest[1..].starts_with(|c: char| c.is_ascii_punctuation()) => {
                self.at += 1;
                self.literal(1);
            }
            '*' if rest.starts_with("**") => {
                let is_open = self.strong;
                if self.toggles("**", is_open, reach) { self.strong = !is_open } else { self.literal(2) }
            }
            '*' | '_' => {
                let is_open = self.stressed;
                let sign = if next == '*' { "*" } else { "_" };
                if self.toggles(sign, is_open, reach) { self.stressed = !is_open } else { self.literal(1) }
            }
            other => self.literal(other.len_utf8()),
        }
    }

    /// Whether a sign begins or ends something here; if so it is passed over.
    fn toggles(&mut self, sign: &str, is_open: bool, reach: Reach) -> bool {
        let before = self.text[..self.at].chars().next_back();
        let rest = &self.text[self.at + sign.len()..];
        let after = rest.chars().next();
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        // Within a word the underscore belongs to it.
        let joins = sign == "_" && is_word(before) && is_word(after);
        let counts = if is_open {
            !is_blank(before) && !joins
        } else {
            let opens = after.is_some_and(|c| !c.is_whitespace()) && !(is_word(before) && sign != "**") && !joins;
            opens && (reach == Reach::Open || rest.contains(sign))
        };
        if counts {
            self.at += sign.len();
        }
        counts
    }

    /// Program text, up to as many ticks as it began with.
    fn code(&mut self, reach: Reach) {
        let rest = &self.text[self.at..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let (fence, inside) = rest.split_at(ticks);
        match inside.find(fence) {
            Some(end) => {
                self.line.push(&inside[..end], Style::Code);
                self.at += ticks + end + ticks;
            }
            None if reach == Reach::Open => {
                self.line.push(inside, Style::Code);
                self.at = self.text.len();
            }
            None => self.literal(ticks),
        }
    }

    fn literal(&mut self, bytes: usize) {
        let style = match (self.strong, self.stressed) {
            (true, _) => Style::Strong,
            (false, true) => Style::Stressed,
            (false, false) => self.base,
        };
        self.line.push(&self.text[self.at..self.at + bytes], style);
        self.at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Signs, read};
    use crate::chat::line::{Line, Style};

    fn line(text: &str) -> Line {
        read(text, Style::Plain, Signs::Hidden, Reach::Whole)
    }

    #[test]
    fn c01_signs_become_styles() {
        let expected = Line::of("a ", Style::Plain).and("b c", Style::Strong).and(" d ", Style::Plain);
        assert_eq!(
            line("a **b c** d *e* `f*g*`"),
            expected.and("e", Style::Stressed).and(" ", Style::Plain).and("f*g*", Style::Code)
        );
    }

    #[test]
    fn c01_what_only_looks_like_a_sign_stays() {
        for text in ["2 * 3 * 4", "2 ** 3", "snake_case_name", "a `b", "**never", "*", "5*6*7"] {
            assert_eq!(line(text), Line::of(text, Style::Plain), "{text}");
        }
        assert_eq!(line("\\*a\\*").text(), "*a*");
    }

    #[test]
    fn c01_without_colours_the_signs_tell() {
        assert_eq!(read("**a** `b`", Style::Plain, Signs::Shown, Reach::Whole).text(), "**a** `b`");
    }
}
