//! Styled lines of text and their layout in columns.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Role of a text. The [`ColorMode`] determines its appearance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// Ordinary text.
    #[default]
    Plain,
    /// Message of the user, and the input prompt.
    UserInput,
    /// Strong emphasis.
    Strong,
    /// Emphasis.
    Emphasis,
    /// Code.
    Code,
    /// Heading.
    Heading,
    /// Secondary information: reasoning, tool output, counts.
    Muted,
    /// Tool call.
    ToolCall,
    /// Failure.
    Error,
}

/// Text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledSpan {
    /// Text without line ends and terminal control characters.
    pub text: String,
    /// Style of the text.
    pub style: TextStyle,
}

/// Line of styled text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StyledLine(pub Vec<StyledSpan>);

impl StyledLine {
    /// Creates a line of one style.
    pub fn styled(text: impl Into<String>, style: TextStyle) -> Self {
        Self(vec![StyledSpan { text: text.into(), style }])
    }

    /// Returns the line with text appended.
    pub fn with_text(mut self, text: impl AsRef<str>, style: TextStyle) -> Self {
        self.push(text.as_ref(), style);
        self
    }

    /// Appends text.
    pub fn push(&mut self, text: &str, style: TextStyle) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text.push_str(text),
            _ => self.0.push(StyledSpan { text: text.to_owned(), style }),
        }
    }

    /// Text without styles.
    pub fn text(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// Width in columns.
    pub fn columns(&self) -> usize {
        self.0.iter().flat_map(|span| span.text.graphemes(true)).map(grapheme_columns).sum()
    }

    fn cells(&self) -> impl Iterator<Item = GraphemeCell<'_>> {
        self.0.iter().flat_map(|span| span.text.graphemes(true).map(|text| GraphemeCell::new(text, span.style)))
    }
}

/// Width of a grapheme cluster in columns.
pub(super) fn grapheme_columns(grapheme: &str) -> usize {
    grapheme.width().min(2)
}

/// Grapheme cluster with its style and width.
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

/// Layout of a line in rows.
#[derive(Debug, Clone, Copy)]
pub struct RowLayout<'a> {
    /// Width of a row in columns.
    pub width: usize,
    /// Prefix of the first row.
    pub first_prefix: &'a str,
    /// Prefix of each further row.
    pub next_prefix: &'a str,
    /// Style of both prefixes.
    pub prefix_style: TextStyle,
}

impl<'a> RowLayout<'a> {
    /// Layout without prefixes.
    pub fn plain(width: usize) -> Self {
        Self { width, first_prefix: "", next_prefix: "", prefix_style: TextStyle::Plain }
    }

    /// Returns the layout with this prefix for every row.
    pub fn with_prefix(self, prefix: &'a str, style: TextStyle) -> Self {
        Self { first_prefix: prefix, next_prefix: prefix, prefix_style: style, ..self }
    }

    /// Wraps a line into rows: at blanks and between wide characters; a word longer than a row is broken where necessary.
    ///
    /// All rows except the last stay the same when the line grows.
    pub fn rows(&self, line: &StyledLine) -> Vec<StyledLine> {
        self.rows_with_ink(line).into_iter().map(|(row, _)| row).collect()
    }

    /// Rows of a line, each with its ink: the number of non-blank graphemes without the prefix.
    pub(super) fn rows_with_ink(&self, line: &StyledLine) -> Vec<(StyledLine, usize)> {
        let width = self.width.max(1);
        // A prefix must not take more than half of the row.
        let limited = |prefix: &'a str| if text_columns(prefix) * 2 > width { "" } else { prefix };
        let (first, further) = (limited(self.first_prefix), limited(self.next_prefix));
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
            // Indentation belongs to the first word of the line.
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

    fn build_row(&self, prefix: &str, mut cells: Vec<GraphemeCell<'_>>) -> StyledLine {
        while cells.last().is_some_and(|cell| cell.is_blank) {
            cells.pop();
        }
        let mut line = StyledLine::default();
        // A row of blanks is an empty row.
        if !cells.is_empty() || !prefix.trim().is_empty() {
            line.push(prefix, self.prefix_style);
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

/// Truncates a line to one row, with an ellipsis where text is cut.
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

/// Rest of a line after `ink` non-blank graphemes.
pub(super) fn skip_ink(line: &StyledLine, mut ink: usize) -> StyledLine {
    let mut rest = StyledLine::default();
    let mut has_started = ink == 0;
    for cell in line.cells() {
        if ink > 0 {
            ink -= usize::from(!cell.is_blank);
            continue;
        }
        if has_started || !cell.is_blank {
            has_started = true;
            rest.push(cell.text, cell.style);
        }
    }
    rest
}

/// Rendering of styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorMode {
    /// Colours and font attributes.
    Color,
    /// No styles. Markdown markers stay visible in place of them.
    Plain,
}

impl ColorMode {
    /// Encodes a row for the terminal.
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
    fn c01_rows_are_broken_at_blanks_and_inside_words_longer_than_a_row() {
        assert_eq!(wrapped_rows("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrapped_rows("incomprehensibilities", 8), ["incompre", "hensibil", "ities"]);
        assert_eq!(wrapped_rows("a incomprehensible b", 8), ["a", "incompre", "hensible", "b"]);
        assert_eq!(wrapped_rows("    indented", 8), ["    inde", "nted"]);
        assert_eq!(wrapped_rows("", 8), [""]);
        assert_eq!(wrapped_rows("ab", 1), ["a", "b"]);
    }

    #[test]
    fn c01_wide_characters_take_two_columns_and_may_be_separated() {
        assert_eq!(wrapped_rows("你好世界再见", 5), ["你好", "世界", "再见"]);
        assert_eq!(wrapped_rows("say 你好世界", 8), ["say 你好", "世界"]);
        assert_eq!(wrapped_rows("👩\u{200d}👧👩\u{200d}👧", 3), ["👩\u{200d}👧", "👩\u{200d}👧"]);
    }

    #[test]
    fn c01_all_rows_except_the_last_stay_the_same_when_a_line_grows() {
        let text = "several words, 你好世界 and an incomprehensibilities-like one, then more of them";
        for width in [1, 2, 3, 7, 12, 30] {
            let mut before: Vec<String> = Vec::new();
            for (end, _) in text.char_indices().skip(1) {
                let now = wrapped_rows(&text[..end], width);
                let stable = before.len().saturating_sub(1);
                assert_eq!(now[..stable], before[..stable], "{width}: {:?}", &text[..end]);
                before = now;
            }
        }
    }

    #[test]
    fn c01_emitted_text_is_skipped_at_any_width() {
        let line = StyledLine::styled("one two ", TextStyle::Plain).with_text("three four", TextStyle::Strong);
        let (_, ink) = RowLayout::plain(8).with_prefix("- ", TextStyle::Plain).rows_with_ink(&line)[0];
        assert_eq!(skip_ink(&line, ink).text(), "two three four");
        assert_eq!(skip_ink(&line, 0), line);
    }

    #[test]
    fn c01_truncated_line_ends_with_an_ellipsis() {
        assert_eq!(truncate_line(&StyledLine::styled("abcdef", TextStyle::Plain), 4).text(), "abc…");
        assert_eq!(truncate_line(&StyledLine::styled("你好世", TextStyle::Plain), 4).text(), "你…");
        assert_eq!(truncate_line(&StyledLine::styled("abcd", TextStyle::Plain), 4).text(), "abcd");
    }
}
