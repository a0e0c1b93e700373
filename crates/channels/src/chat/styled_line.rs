//! Lines of text with a style, and how they are laid out in columns.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// What a piece of text is. A palette says how that looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// Nothing in particular.
    #[default]
    Plain,
    /// What the person said, and where they say the next thing.
    UserInput,
    /// Of more weight.
    Strong,
    /// Stressed.
    Emphasis,
    /// Program text.
    Code,
    /// A heading.
    Heading,
    /// Beside the point: reasoning, what tools gave, figures.
    Muted,
    /// A call of a tool.
    ToolCall,
    /// Something that failed.
    Error,
}

/// A piece of text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledSpan {
    /// The text; it has no line ends and nothing that drives a terminal.
    pub text: String,
    /// What it is.
    pub style: TextStyle,
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StyledLine(pub Vec<StyledSpan>);

impl StyledLine {
    /// A line of one style.
    pub fn styled(text: impl Into<String>, style: TextStyle) -> Self {
        Self(vec![StyledSpan { text: text.into(), style }])
    }

    /// The same with this at its end.
    pub fn with_text(mut self, text: impl AsRef<str>, style: TextStyle) -> Self {
        self.push(text.as_ref(), style);
        self
    }

    /// Adds text at the end.
    pub fn push(&mut self, text: &str, style: TextStyle) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text.push_str(text),
            _ => self.0.push(StyledSpan { text: text.to_owned(), style }),
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// How many columns it takes.
    pub fn columns(&self) -> usize {
        self.0.iter().flat_map(|span| span.text.graphemes(true)).map(grapheme_columns).sum()
    }

    fn cells(&self) -> impl Iterator<Item = GraphemeCell<'_>> {
        self.0.iter().flat_map(|span| span.text.graphemes(true).map(|text| GraphemeCell::new(text, span.style)))
    }
}

/// How many columns a character takes that may be made of several.
pub(super) fn grapheme_columns(character: &str) -> usize {
    character.width().min(2)
}

/// A character in its place.
#[derive(Clone, Copy)]
struct GraphemeCell<'a> {
    text: &'a str,
    style: TextStyle,
    columns: usize,
    is_blank: bool,
}

impl<'a> GraphemeCell<'a> {
    fn new(text: &'a str, style: TextStyle) -> Self {
        Self { text, style, columns: grapheme_columns(text), is_blank: text.trim().is_empty() }
    }
}

/// How a line becomes rows.
#[derive(Debug, Clone, Copy)]
pub struct RowLayout<'a> {
    /// How many columns there are.
    pub width: usize,
    /// What stands before the first row.
    pub first_prefix: &'a str,
    /// What stands before each further row.
    pub next_prefix: &'a str,
    /// The style of both.
    pub prefix_style: TextStyle,
}

impl<'a> RowLayout<'a> {
    /// Rows of this width with nothing before them.
    pub fn plain(width: usize) -> Self {
        Self { width, first_prefix: "", next_prefix: "", prefix_style: TextStyle::Plain }
    }

    /// The same with this before every row.
    pub fn with_prefix(self, before: &'a str, style: TextStyle) -> Self {
        Self { first_prefix: before, next_prefix: before, prefix_style: style, ..self }
    }

    /// A line in rows. Rows are broken at blanks and between wide characters; a word that is longer than a row is broken
    /// where it must be.
    ///
    /// All but the last row stay as they are when the line grows.
    pub fn rows(&self, line: &StyledLine) -> Vec<StyledLine> {
        self.rows_with_ink(line).into_iter().map(|(row, _)| row).collect()
    }

    /// The same, each row with how many characters of the line it has, blanks and what stands before aside.
    pub(super) fn rows_with_ink(&self, line: &StyledLine) -> Vec<(StyledLine, usize)> {
        let width = self.width.max(1);
        // What stands before must not crowd out what is said.
        let before = |text: &'a str| if text_columns(text) * 2 > width { "" } else { text };
        let (first, further) = (before(self.first_prefix), before(self.next_prefix));
        let mut rows: Vec<Vec<GraphemeCell<'_>>> = Vec::new();
        let mut row: Vec<GraphemeCell<'_>> = Vec::new();
        let mut used = text_columns(first);
        let mut break_at = None;
        for cell in line.cells() {
            while used + cell.columns > width && !row.is_empty() {
                let rest = row.split_off(break_at.take().unwrap_or(row.len()));
                rows.push(std::mem::replace(&mut row, rest));
                used = text_columns(further) + row.iter().map(|cell| cell.columns).sum::<usize>();
            }
            if cell.is_blank && row.is_empty() && !rows.is_empty() {
                continue;
            }
            used += cell.columns;
            row.push(cell);
            // What a line is indented by belongs to its first word.
            let is_indent = cell.is_blank && row.iter().all(|cell| cell.is_blank);
            if (cell.is_blank || cell.columns == 2) && !is_indent {
                break_at = Some(row.len());
            }
        }
        rows.push(row);
        let row = |(index, row): (usize, Vec<GraphemeCell<'_>>)| {
            let ink = row.iter().filter(|cell| !cell.is_blank).count();
            (self.build_row(if index == 0 { first } else { further }, row), ink)
        };
        rows.into_iter().enumerate().map(row).collect()
    }

    fn build_row(&self, before: &str, mut cells: Vec<GraphemeCell<'_>>) -> StyledLine {
        while cells.last().is_some_and(|cell| cell.is_blank) {
            cells.pop();
        }
        let mut line = StyledLine::default();
        // A row of blanks is a blank row.
        if !cells.is_empty() || !before.trim().is_empty() {
            line.push(before, self.prefix_style);
        }
        for cell in cells {
            line.push(cell.text, cell.style);
        }
        line
    }
}

fn text_columns(text: &str) -> usize {
    text.graphemes(true).map(grapheme_columns).sum()
}

/// A line in one row: what does not fit is left out, and that shows.
pub(super) fn truncate_line(line: &StyledLine, width: usize) -> StyledLine {
    if line.columns() <= width {
        return line.clone();
    }
    let (mut row, mut used) = (StyledLine::default(), 0);
    for cell in line.cells() {
        used += cell.columns;
        if used + 1 > width {
            row.push("…", cell.style);
            break;
        }
        row.push(cell.text, cell.style);
    }
    row
}

/// What is left of a line after so many characters that are not blank.
pub(super) fn skip_ink(line: &StyledLine, mut ink: usize) -> StyledLine {
    let mut left = StyledLine::default();
    let mut has_begun = ink == 0;
    for cell in line.cells() {
        if ink > 0 {
            ink -= usize::from(!cell.is_blank);
            continue;
        }
        if has_begun || !cell.is_blank {
            has_begun = true;
            left.push(cell.text, cell.style);
        }
    }
    left
}

/// Whether styles are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorMode {
    /// In colours.
    Color,
    /// Not at all. What only a colour would tell is then told in signs.
    Plain,
}

impl ColorMode {
    /// A row as it is written to a terminal.
    pub fn paint(self, row: &StyledLine) -> String {
        let paint = |span: &StyledSpan| match (self, sgr_code(span.style)) {
            (Self::Color, Some(code)) => format!("\u{1b}[{code}m{}\u{1b}[0m", span.text),
            _ => span.text.clone(),
        };
        row.0.iter().map(paint).collect()
    }
}

fn sgr_code(style: TextStyle) -> Option<&'static str> {
    match style {
        TextStyle::Plain => None,
        TextStyle::UserInput => Some("1;36"),
        TextStyle::Strong => Some("1"),
        TextStyle::Emphasis => Some("3"),
        TextStyle::Code => Some("33"),
        TextStyle::Heading => Some("1;35"),
        TextStyle::Muted => Some("2"),
        TextStyle::ToolCall => Some("32"),
        TextStyle::Error => Some("31"),
    }
}

#[cfg(test)]
mod tests {
    use super::{RowLayout, StyledLine, TextStyle, skip_ink, truncate_line};

    fn wrapped_rows(text: &str, width: usize) -> Vec<String> {
        RowLayout::plain(width).rows(&StyledLine::styled(text, TextStyle::Plain)).iter().map(StyledLine::text).collect()
    }

    #[test]
    fn c01_rows_are_broken_at_blanks_and_long_words_where_they_must_be() {
        assert_eq!(wrapped_rows("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrapped_rows("incomprehensibilities", 8), ["incompre", "hensibil", "ities"]);
        assert_eq!(wrapped_rows("a incomprehensible b", 8), ["a", "incompre", "hensible", "b"]);
        assert_eq!(wrapped_rows("    indented", 8), ["    inde", "nted"]);
        assert_eq!(wrapped_rows("", 8), [""]);
        assert_eq!(wrapped_rows("ab", 1), ["a", "b"]);
    }

    #[test]
    fn c01_wide_characters_take_two_columns_and_may_be_parted() {
        assert_eq!(wrapped_rows("你好世界再见", 5), ["你好", "世界", "再见"]);
        assert_eq!(wrapped_rows("say 你好世界", 8), ["say 你好", "世界"]);
        assert_eq!(wrapped_rows("👩\u{200d}👧👩\u{200d}👧", 3), ["👩\u{200d}👧", "👩\u{200d}👧"]);
    }

    #[test]
    fn c01_all_but_the_last_row_stay_when_a_line_grows() {
        let text = "several words, 你好世界 and an incomprehensibilities-like one, then more of them";
        for width in [1, 2, 3, 7, 12, 30] {
            let mut before: Vec<String> = Vec::new();
            for (end, _) in text.char_indices().skip(1) {
                let now = wrapped_rows(&text[..end], width);
                let kept = before.len().saturating_sub(1);
                assert_eq!(now[..kept], before[..kept], "{width}: {:?}", &text[..end]);
                before = now;
            }
        }
    }

    #[test]
    fn c01_what_was_shown_is_not_shown_again_whatever_the_width() {
        let line = StyledLine::styled("one two ", TextStyle::Plain).with_text("three four", TextStyle::Strong);
        let (_, shown) = RowLayout::plain(8).with_prefix("- ", TextStyle::Plain).rows_with_ink(&line)[0];
        assert_eq!(skip_ink(&line, shown).text(), "two three four");
        assert_eq!(skip_ink(&line, 0), line);
    }

    #[test]
    fn c01_what_does_not_fit_is_left_out_and_that_shows() {
        assert_eq!(truncate_line(&StyledLine::styled("abcdef", TextStyle::Plain), 4).text(), "abc…");
        assert_eq!(truncate_line(&StyledLine::styled("你好世", TextStyle::Plain), 4).text(), "你…");
        assert_eq!(truncate_line(&StyledLine::styled("abcd", TextStyle::Plain), 4).text(), "abcd");
    }
}
