//! Markdown as it comes: what is finished is given once, what may still change is given again and again.

use super::inline_markup::{self, LineProgress, MarkupVisibility};
use super::markdown_table;
use super::styled_line::{RowLayout, StyledLine, TextStyle, skip_ink};

/// A text in Markdown that is still being written.
///
/// It works line by line. A line that is finished never changes again, so it can scroll away; a table is finished when
/// another line follows it.
#[derive(Debug, Clone)]
pub struct MarkdownStream {
    markup: MarkupVisibility,
    /// The style of what has none of its own.
    base_style: TextStyle,
    /// The line that is not finished.
    partial_line: String,
    /// How many characters of it were given as finished, blanks aside.
    emitted_ink: usize,
    /// The lines of a table that is not finished.
    table_lines: Vec<String>,
    /// The fence that ends the program text it is in.
    fence: Option<String>,
    /// It is no Markdown at all: what a command gave is shown as it is.
    is_verbatim: bool,
    /// Nothing was given yet.
    is_at_start: bool,
    /// The last row that was given is blank.
    ends_with_blank_row: bool,
}

impl MarkdownStream {
    /// An empty text.
    pub fn new(signs: MarkupVisibility, base: TextStyle) -> Self {
        let (line, table) = (String::new(), Vec::new());
        let is_verbatim = false;
        Self {
            markup: signs,
            base_style: base,
            partial_line: line,
            emitted_ink: 0,
            table_lines: table,
            fence: None,
            is_verbatim,
            is_at_start: true,
            ends_with_blank_row: false,
        }
    }

    /// An empty text that is no Markdown: every line is shown as it is.
    pub fn verbatim() -> Self {
        Self { is_verbatim: true, ..Self::new(MarkupVisibility::Shown, TextStyle::Plain) }
    }

    /// Adds text and gives the rows that are finished.
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

    /// The rows that may still change.
    pub fn live_rows(&self, width: usize) -> Vec<StyledLine> {
        let mut rows: Vec<StyledLine> = self.table_lines.iter().flat_map(|line| self.plain_rows(line, width)).collect();
        let is_blank =
            if self.is_at_start { self.partial_line.trim().is_empty() } else { self.partial_line.is_empty() };
        if !is_blank {
            rows.extend(self.pending_rows(&self.partial_line, width, LineProgress::Open));
        }
        rows
    }

    /// Gives all rows but the last of a line that goes on and on, so that what may still change stays low.
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

    /// The end of the text: gives what is left.
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
        let reach = if self.emitted_ink > 0 { LineProgress::Open } else { LineProgress::Complete };
        if self.fence.is_none() && line.trim().is_empty() {
            // One blank line is as good as many.
            if !self.is_at_start && !self.ends_with_blank_row {
                rows.push(StyledLine::default());
            }
            self.ends_with_blank_row = true;
        } else {
            let given = self.pending_rows(&line, width, reach);
            // Of a line that was given already nothing may be left.
            rows.extend(given.into_iter().filter(|row| self.emitted_ink == 0 || !row.text().is_empty()));
            (self.is_at_start, self.ends_with_blank_row) = (false, false);
        }
        self.emitted_ink = 0;
        if self.is_verbatim {
            return;
        }
        match (&self.fence, fence_marker(&line)) {
            (None, Some(opened)) => self.fence = Some(opened.to_owned()),
            (Some(open), Some(closed)) if closed.starts_with(open.as_str()) && line.trim() == closed => {
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

    /// What stands before the first row of a line, and before each further one.
    fn row_prefixes(&self, line: &str) -> (String, String) {
        if self.fence.is_some() || fence_marker(line).is_some() {
            return ("  ".to_owned(), "  ".to_owned());
        }
        match MarkdownBlock::parse(line) {
            MarkdownBlock::Quote(_) => ("│ ".to_owned(), "│ ".to_owned()),
            MarkdownBlock::Item { indent, sign, .. } => {
                let sign = if self.markup == MarkupVisibility::Hidden && sign.len() == 1 { "•" } else { sign };
                let first = format!("{}{sign} ", " ".repeat(indent));
                (first.clone(), " ".repeat(first.chars().count()))
            }
            MarkdownBlock::Heading(..) | MarkdownBlock::Rule | MarkdownBlock::Plain(_) => {
                (String::new(), String::new())
            }
        }
    }

    /// The rows of a line that were not given yet.
    fn pending_rows(&self, line: &str, width: usize, reach: LineProgress) -> Vec<StyledLine> {
        self.pending_rows_with_ink(line, width, reach).into_iter().map(|(row, _)| row).collect()
    }

    fn pending_rows_with_ink(&self, line: &str, width: usize, reach: LineProgress) -> Vec<(StyledLine, usize)> {
        if self.is_verbatim {
            // What is broken off stays as far to the right as its line.
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
                fence_marker(line).is_some_and(|closed| closed.starts_with(open.as_str()) && line.trim() == closed);
            StyledLine::styled(line, if is_end { TextStyle::Muted } else { TextStyle::Code })
        } else if fence_marker(line).is_some() {
            StyledLine::styled(line.trim(), TextStyle::Muted)
        } else {
            let read = |text: &str, style| inline_markup::parse_inline(text, style, self.markup, reach);
            match MarkdownBlock::parse(line) {
                MarkdownBlock::Heading(signs, text) if self.markup == MarkupVisibility::Shown => {
                    read(&format!("{signs} {text}"), TextStyle::Heading)
                }
                MarkdownBlock::Heading(_, text) => read(text, TextStyle::Heading),
                MarkdownBlock::Rule => {
                    return vec![(StyledLine::styled("─".repeat(width.min(40)), TextStyle::Muted), 0)];
                }
                MarkdownBlock::Quote(text) => read(text, TextStyle::Muted),
                MarkdownBlock::Item { text, .. } | MarkdownBlock::Plain(text) => read(text, self.base_style),
            }
        };
        layout.rows_with_ink(&skip_ink(&text, self.emitted_ink))
    }
}

/// The ticks or tildes that begin or end program text.
fn fence_marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let length = line.chars().take_while(|other| *other == sign).count();
    // Ticks after the fence make it program text within a line.
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

/// What kind of line it is.
enum MarkdownBlock<'a> {
    Heading(&'a str, &'a str),
    Rule,
    Quote(&'a str),
    Item { indent: usize, sign: &'a str, text: &'a str },
    Plain(&'a str),
}

impl<'a> MarkdownBlock<'a> {
    fn parse(line: &'a str) -> Self {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let signs = text.len() - text.trim_start_matches('#').len();
        if (1..=6).contains(&signs)
            && let Some(heading) = text[signs..].strip_prefix(' ')
        {
            return Self::Heading(&text[..signs], heading.trim());
        }
        let is_rule = |sign: char| {
            text.chars().filter(|c| *c == sign).count() >= 3 && text.chars().all(|c| c == sign || c == ' ')
        };
        if ['-', '*', '_'].into_iter().any(is_rule) {
            return Self::Rule;
        }
        if let Some(quoted) = text.strip_prefix('>') {
            return Self::Quote(quoted.strip_prefix(' ').unwrap_or(quoted));
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let sign = match text.as_bytes().get(digits) {
            Some(b'-' | b'*' | b'+') if digits == 0 => 1,
            Some(b'.' | b')') if (1..=9).contains(&digits) => digits + 1,
            _ => 0,
        };
        match text[sign..].strip_prefix(' ') {
            Some(item) if sign > 0 => {
                Self::Item { indent: indent.min(12), sign: &text[..sign], text: item.trim_start() }
            }
            _ => Self::Plain(line.trim_end()),
        }
    }
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
