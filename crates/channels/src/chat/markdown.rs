//! Markdown as it comes: what is finished is given once, what may still change is given again and again.

use super::inline::{self, Reach, Signs};
use super::line::{Layout, Line, Style, after_ink};
use super::table;

/// A text in Markdown that is still being written.
///
/// It works line by line. A line that is finished never changes again, so it can scroll away; a table is finished when
/// another line follows it.
#[derive(Debug, Clone)]
pub struct Markdown {
    signs: Signs,
    /// The style of what has none of its own.
    base: Style,
    /// The line that is not finished.
    line: String,
    /// How many characters of it were given as finished, blanks aside.
    given: usize,
    /// The lines of a table that is not finished.
    table: Vec<String>,
    /// The fence that ends the program text it is in.
    fence: Option<String>,
    /// It is no Markdown at all: what a command gave is shown as it is.
    is_verbatim: bool,
    /// Nothing was given yet.
    is_at_start: bool,
    /// The last row that was given is blank.
    ends_blank: bool,
}

impl Markdown {
    /// An empty text.
    pub fn new(signs: Signs, base: Style) -> Self {
        let (line, table) = (String::new(), Vec::new());
        let is_verbatim = false;
        Self { signs, base, line, given: 0, table, fence: None, is_verbatim, is_at_start: true, ends_blank: false }
    }

    /// An empty text that is no Markdown: every line is shown as it is.
    pub fn verbatim() -> Self {
        Self { is_verbatim: true, ..Self::new(Signs::Shown, Style::Plain) }
    }

    /// Adds text and gives the rows that are finished.
    pub fn push(&mut self, text: &str, width: usize) -> Vec<Line> {
        let mut rows = Vec::new();
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.line.push_str(line);
            self.finish_line(width, &mut rows);
            rest = after;
        }
        self.line.push_str(rest);
        rows
    }

    /// The rows that may still change.
    pub fn live(&self, width: usize) -> Vec<Line> {
        let mut rows: Vec<Line> = self.table.iter().flat_map(|line| self.plain_rows(line, width)).collect();
        let is_blank = if self.is_at_start { self.line.trim().is_empty() } else { self.line.is_empty() };
        if !is_blank {
            rows.extend(self.rows_of(&self.line, width, Reach::Open));
        }
        rows
    }

    /// Gives all rows but the last of a line that goes on and on, so that what may still change stays low.
    pub fn settle(&mut self, width: usize) -> Vec<Line> {
        if !self.is_verbatim && (!self.table.is_empty() || table::is_row(&self.line)) {
            return Vec::new();
        }
        let mut rows = self.laid_out(&self.line, width, Reach::Open);
        rows.pop();
        self.given += rows.iter().map(|(_, ink)| ink).sum::<usize>();
        let rows: Vec<Line> = rows.into_iter().map(|(row, _)| row).collect();
        if !rows.is_empty() {
            (self.is_at_start, self.ends_blank) = (false, false);
        }
        rows
    }

    /// The end of the text: gives what is left.
    pub fn end(&mut self, width: usize) -> Vec<Line> {
        let mut rows = Vec::new();
        if !self.line.is_empty() {
            self.finish_line(width, &mut rows);
        }
        self.finish_table(width, &mut rows);
        self.fence = None;
        while rows.last().is_some_and(|row: &Line| row.text().is_empty()) {
            rows.pop();
        }
        rows
    }

    fn finish_line(&mut self, width: usize, rows: &mut Vec<Line>) {
        let line = std::mem::take(&mut self.line);
        if !self.is_verbatim && self.fence.is_none() && self.given == 0 && table::is_row(&line) {
            self.table.push(line);
            return;
        }
        self.finish_table(width, rows);
        let reach = if self.given > 0 { Reach::Open } else { Reach::Whole };
        if self.fence.is_none() && line.trim().is_empty() {
            // One blank line is as good as many.
            if !self.is_at_start && !self.ends_blank {
                rows.push(Line::default());
            }
            self.ends_blank = true;
        } else {
            let given = self.rows_of(&line, width, reach);
            // Of a line that was given already nothing may be left.
            rows.extend(given.into_iter().filter(|row| self.given == 0 || !row.text().is_empty()));
            (self.is_at_start, self.ends_blank) = (false, false);
        }
        self.given = 0;
        if self.is_verbatim {
            return;
        }
        match (&self.fence, fence(&line)) {
            (None, Some(opened)) => self.fence = Some(opened.to_owned()),
            (Some(open), Some(closed)) if closed.starts_with(open.as_str()) && line.trim() == closed => {
                self.fence = None;
            }
            _ => {}
        }
    }

    fn finish_table(&mut self, width: usize, rows: &mut Vec<Line>) {
        let table = std::mem::take(&mut self.table);
        if !table.is_empty() {
            rows.extend(table::rows(&table, width, self.signs));
            (self.is_at_start, self.ends_blank) = (false, false);
        }
    }

    fn plain_rows(&self, line: &str, width: usize) -> Vec<Line> {
        Layout::plain(width).rows(&Line::of(line, self.base))
    }

    /// What stands before the first row of a line, and before each further one.
    fn before(&self, line: &str) -> (String, String) {
        if self.fence.is_some() || fence(line).is_some() {
            return ("  ".to_owned(), "  ".to_owned());
        }
        match Block::of(line) {
            Block::Quote(_) => ("│ ".to_owned(), "│ ".to_owned()),
            Block::Item { indent, sign, .. } => {
                let sign = if self.signs == Signs::Hidden && sign.len() == 1 { "•" } else { sign };
                let first = format!("{}{sign} ", " ".repeat(indent));
                (first.clone(), " ".repeat(first.chars().count()))
            }
            Block::Heading(..) | Block::Rule | Block::Plain(_) => (String::new(), String::new()),
        }
    }

    /// The rows of a line that were not given yet.
    fn rows_of(&self, line: &str, width: usize, reach: Reach) -> Vec<Line> {
        self.laid_out(line, width, reach).into_iter().map(|(row, _)| row).collect()
    }

    fn laid_out(&self, line: &str, width: usize, reach: Reach) -> Vec<(Line, usize)> {
        if self.is_verbatim {
            // What is broken off stays as far to the right as its line.
            let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len());
            let first = if self.given > 0 { indent.as_str() } else { "" };
            let layout = Layout { width, first, further: &indent, style: self.base };
            return layout.laid_out(&after_ink(&Line::of(line, self.base), self.given));
        }
        let (first, further) = self.before(line);
        let first = if self.given > 0 { &further } else { &first };
        let layout = Layout { width, first, further: &further, style: Style::Aside };
        let text = if let Some(open) = &self.fence {
            let is_end = fence(line).is_some_and(|closed| closed.starts_with(open.as_str()) && line.trim() == closed);
            Line::of(line, if is_end { Style::Aside } else { Style::Code })
        } else if fence(line).is_some() {
            Line::of(line.trim(), Style::Aside)
        } else {
            let read = |text: &str, style| inline::read(text, style, self.signs, reach);
            match Block::of(line) {
                Block::Heading(signs, text) if self.signs == Signs::Shown => {
                    read(&format!("{signs} {text}"), Style::Heading)
                }
                Block::Heading(_, text) => read(text, Style::Heading),
                Block::Rule => return vec![(Line::of("─".repeat(width.min(40)), Style::Aside), 0)],
                Block::Quote(text) => read(text, Style::Aside),
                Block::Item { text, .. } | Block::Plain(text) => read(text, self.base),
            }
        };
        layout.laid_out(&after_ink(&text, self.given))
    }
}

/// The ticks or tildes that begin or end program text.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let length = line.chars().take_while(|other| *other == sign).count();
    // Ticks after the fence make it program text within a line.
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

/// What kind of line it is.
enum Block<'a> {
    Heading(&'a str, &'a str),
    Rule,
    Quote(&'a str),
    Item { indent: usize, sign: &'a str, text: &'a str },
    Plain(&'a str),
}

impl<'a> Block<'a> {
    fn of(line: &'a str) -> Self {
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
