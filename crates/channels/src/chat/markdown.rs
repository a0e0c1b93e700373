//! Incremental Markdown layout for a terminal.
//!
//! # Design constraints
//!
//! - Rows that have scrolled away cannot be changed, so a row is emitted only when its layout is final. Unfinished text is
//!   shown in live rows, which are redrawn.
//! - A long paragraph is emitted row by row before its line ends. From then on, the meaning of its markers must not depend
//!   on text that follows later: otherwise characters already emitted would appear or disappear.
//! - The work per chunk is bounded by the current line, not by the length of the reply.
//!
//! # Why not a `CommonMark` parser
//!
//! `CommonMark` violates the second constraint: in `5*6 and 7*8` the second asterisk turns the first one, which may be on
//! screen already, into an emphasis marker, and a later line may turn a paragraph into a heading, a table or a loose list.
//! Parsers such as `pulldown-cmark` work on complete documents. Lines are therefore the unit of layout, line breaks are
//! kept, and markers are interpreted from left to right.

use super::inline_markup::{self, LineProgress, MarkupVisibility};
use super::markdown_table;
use super::styled_line::{RowLayout, StyledLine, TextStyle, skip_ink};

/// Markdown text that is being streamed.
///
/// The unit of layout is the line: a complete line never changes and can scroll away. A table is complete when a line of
/// another kind follows it.
#[derive(Debug, Clone)]
pub struct MarkdownStream {
    markup: MarkupVisibility,
    /// Style of text without markup.
    base_style: TextStyle,
    /// Line whose end was not received yet.
    partial_line: String,
    /// Number of non-blank graphemes of the line that were emitted already.
    emitted_ink: usize,
    /// Lines of an unfinished table.
    table_lines: Vec<String>,
    /// Fence that ends the current code block.
    fence: Option<String>,
    /// True for text that is not Markdown, such as command output.
    is_verbatim: bool,
    /// True until the first row is emitted.
    is_at_start: bool,
    /// True if the last emitted row is blank.
    ends_with_blank_row: bool,
}

impl MarkdownStream {
    /// Creates an empty Markdown text.
    pub fn new(markup: MarkupVisibility, base_style: TextStyle) -> Self {
        Self {
            markup,
            base_style,
            partial_line: String::new(),
            emitted_ink: 0,
            table_lines: Vec::new(),
            fence: None,
            is_verbatim: false,
            is_at_start: true,
            ends_with_blank_row: false,
        }
    }

    /// Creates an empty text that is not Markdown: every line is shown as it is.
    pub fn verbatim() -> Self {
        Self { is_verbatim: true, ..Self::new(MarkupVisibility::Shown, TextStyle::Plain) }
    }

    /// Appends text and returns the rows that are final.
    pub fn push(&mut self, text: &str, width: usize) -> Vec<StyledLine> {
        let mut rows = Vec::new();
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.partial_line.push_str(line);
            self.finish_line(width, &mut rows);
            rest = after;
        }
        self.partial_line.push_str(rest);
        rows
    }

    /// Rows that may still change.
    pub fn live_rows(&self, width: usize) -> Vec<StyledLine> {
        let mut rows: Vec<StyledLine> = self.table_lines.iter().flat_map(|line| self.plain_rows(line, width)).collect();
        let is_blank =
            if self.is_at_start { self.partial_line.trim().is_empty() } else { self.partial_line.is_empty() };
        if !is_blank {
            rows.extend(self.pending_rows(&self.partial_line, width, LineProgress::Open));
        }
        rows
    }

    /// Emits all rows of a long unfinished line except the last, which keeps the live area small.
    pub fn flush_stable_rows(&mut self, width: usize) -> Vec<StyledLine> {
        if !self.is_verbatim && (!self.table_lines.is_empty() || markdown_table::is_table_row(&self.partial_line)) {
            return Vec::new();
        }
        let mut rows = self.pending_rows_with_ink(&self.partial_line, width, LineProgress::Open);
        rows.pop();
        self.emitted_ink += rows.iter().map(|(_, ink)| ink).sum::<usize>();
        let rows: Vec<StyledLine> = rows.into_iter().map(|(row, _)| row).collect();
        if !rows.is_empty() {
            (self.is_at_start, self.ends_with_blank_row) = (false, false);
        }
        rows
    }

    /// Ends the text and returns the remaining rows.
    pub fn finish(&mut self, width: usize) -> Vec<StyledLine> {
        let mut rows = Vec::new();
        if !self.partial_line.is_empty() {
            self.finish_line(width, &mut rows);
        }
        self.finish_table(width, &mut rows);
        self.fence = None;
        while rows.last().is_some_and(|row: &StyledLine| row.text().is_empty()) {
            rows.pop();
        }
        rows
    }

    fn finish_line(&mut self, width: usize, rows: &mut Vec<StyledLine>) {
        let line = std::mem::take(&mut self.partial_line);
        if !self.is_verbatim && self.fence.is_none() && self.emitted_ink == 0 && markdown_table::is_table_row(&line) {
            self.table_lines.push(line);
            return;
        }
        self.finish_table(width, rows);
        let progress = if self.emitted_ink > 0 { LineProgress::Open } else { LineProgress::Complete };
        if self.fence.is_none() && line.trim().is_empty() {
            // Consecutive blank lines are collapsed.
            if !self.is_at_start && !self.ends_with_blank_row {
                rows.push(StyledLine::default());
            }
            self.ends_with_blank_row = true;
        } else {
            let pending = self.pending_rows(&line, width, progress);
            // The rest of a line that was emitted before may be empty.
            rows.extend(pending.into_iter().filter(|row| self.emitted_ink == 0 || !row.text().is_empty()));
            (self.is_at_start, self.ends_with_blank_row) = (false, false);
        }
        self.emitted_ink = 0;
        if self.is_verbatim {
            return;
        }
        match (&self.fence, fence_marker(&line)) {
            (None, Some(opening)) => self.fence = Some(opening.to_owned()),
            (Some(open), Some(closing)) if closing.starts_with(open.as_str()) && line.trim() == closing => {
                self.fence = None;
            }
            _ => {}
        }
    }

    fn finish_table(&mut self, width: usize, rows: &mut Vec<StyledLine>) {
        let table = std::mem::take(&mut self.table_lines);
        if !table.is_empty() {
            rows.extend(markdown_table::table_rows(&table, width, self.markup));
            (self.is_at_start, self.ends_with_blank_row) = (false, false);
        }
    }

    fn plain_rows(&self, line: &str, width: usize) -> Vec<StyledLine> {
        RowLayout::plain(width).rows(&StyledLine::styled(line, self.base_style))
    }

    /// Prefixes of the first row of a line and of each further row.
    fn row_prefixes(&self, line: &str) -> (String, String) {
        if self.fence.is_some() || fence_marker(line).is_some() {
            return ("  ".to_owned(), "  ".to_owned());
        }
        match MarkdownBlock::parse(line) {
            MarkdownBlock::Quote(_) => ("│ ".to_owned(), "│ ".to_owned()),
            MarkdownBlock::ListItem { indent, marker, .. } => {
                let marker = if self.markup == MarkupVisibility::Hidden && marker.len() == 1 { "•" } else { marker };
                let first = format!("{}{marker} ", " ".repeat(indent));
                (first.clone(), " ".repeat(first.chars().count()))
            }
            MarkdownBlock::Heading(..) | MarkdownBlock::Rule | MarkdownBlock::Plain(_) => {
                (String::new(), String::new())
            }
        }
    }

    /// Rows of a line that were not emitted yet.
    fn pending_rows(&self, line: &str, width: usize, progress: LineProgress) -> Vec<StyledLine> {
        self.pending_rows_with_ink(line, width, progress).into_iter().map(|(row, _)| row).collect()
    }

    fn pending_rows_with_ink(&self, line: &str, width: usize, progress: LineProgress) -> Vec<(StyledLine, usize)> {
        if self.is_verbatim {
            // Wrapped rows keep the indentation of their line.
            let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len());
            let first = if self.emitted_ink > 0 { indent.as_str() } else { "" };
            let layout = RowLayout { width, first_prefix: first, next_prefix: &indent, prefix_style: self.base_style };
            return layout.rows_with_ink(&skip_ink(&StyledLine::styled(line, self.base_style), self.emitted_ink));
        }
        let (first, further) = self.row_prefixes(line);
        let first = if self.emitted_ink > 0 { &further } else { &first };
        let layout = RowLayout { width, first_prefix: first, next_prefix: &further, prefix_style: TextStyle::Muted };
        let text = if let Some(open) = &self.fence {
            let is_end =
                fence_marker(line).is_some_and(|closing| closing.starts_with(open.as_str()) && line.trim() == closing);
            StyledLine::styled(line, if is_end { TextStyle::Muted } else { TextStyle::Code })
        } else if fence_marker(line).is_some() {
            StyledLine::styled(line.trim(), TextStyle::Muted)
        } else {
            let parse = |text: &str, style| inline_markup::parse_inline(text, style, self.markup, progress);
            match MarkdownBlock::parse(line) {
                MarkdownBlock::Heading(marker, text) if self.markup == MarkupVisibility::Shown => {
                    parse(&format!("{marker} {text}"), TextStyle::Heading)
                }
                MarkdownBlock::Heading(_, text) => parse(text, TextStyle::Heading),
                MarkdownBlock::Rule => {
                    return vec![(StyledLine::styled("─".repeat(width.min(40)), TextStyle::Muted), 0)];
                }
                MarkdownBlock::Quote(text) => parse(text, TextStyle::Muted),
                MarkdownBlock::ListItem { text, .. } | MarkdownBlock::Plain(text) => parse(text, self.base_style),
            }
        };
        layout.rows_with_ink(&skip_ink(&text, self.emitted_ink))
    }
}

/// Backticks or tildes that start or end a code block.
fn fence_marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let marker = line.chars().next().filter(|marker| matches!(marker, '`' | '~'))?;
    let length = line.chars().take_while(|other| *other == marker).count();
    // Further backticks make it an inline code span.
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

/// Kind of a line.
enum MarkdownBlock<'a> {
    Heading(&'a str, &'a str),
    Rule,
    Quote(&'a str),
    ListItem { indent: usize, marker: &'a str, text: &'a str },
    Plain(&'a str),
}

impl<'a> MarkdownBlock<'a> {
    fn parse(line: &'a str) -> Self {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let level = text.len() - text.trim_start_matches('#').len();
        if (1..=6).contains(&level)
            && let Some(heading) = text[level..].strip_prefix(' ')
        {
            return Self::Heading(&text[..level], heading.trim());
        }
        let is_rule = |marker: char| {
            text.chars().filter(|c| *c == marker).count() >= 3 && text.chars().all(|c| c == marker || c == ' ')
        };
        if ['-', '*', '_'].into_iter().any(is_rule) {
            return Self::Rule;
        }
        if let Some(quoted) = text.strip_prefix('>') {
            return Self::Quote(quoted.strip_prefix(' ').unwrap_or(quoted));
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let marker_len = match text.as_bytes().get(digits) {
            Some(b'-' | b'*' | b'+') if digits == 0 => 1,
            Some(b'.' | b')') if (1..=9).contains(&digits) => digits + 1,
            _ => 0,
        };
        match text[marker_len..].strip_prefix(' ') {
            Some(item) if marker_len > 0 => {
                Self::ListItem { indent: indent.min(12), marker: &text[..marker_len], text: item.trim_start() }
            }
            _ => Self::Plain(line.trim_end()),
        }
    }
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
