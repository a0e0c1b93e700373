//! Writer of Markdown text that knows where lines, quotes, lists and links start and end.
//!
//! Line breaks and spaces are held back until the next text, so that blocks without text leave no trace. Nesting is
//! counted, not recursed into. Markers and link targets can be longer than the markup that produces them, so the length
//! of the text is limited while it is written.

use reqwest::Url;

/// Maximum nesting that is shown by indentation or quote marks.
const MAX_SHOWN_NESTING: usize = 10;

/// Markdown written up to now, and the elements that are open.
#[derive(Debug, Default)]
pub(super) struct MarkdownWriter {
    out: String,
    /// Length in bytes from which on nothing more is written.
    max_bytes: usize,
    /// Line breaks before the next text.
    pending_breaks: usize,
    /// A space is pending before the next word.
    needs_space: bool,
    /// The current line has only a marker, such as that of a list item.
    is_after_marker: bool,
    /// Open link. Links do not nest.
    link: Option<OpenLink>,
    /// Open lists: number of the next item, for ordered lists.
    open_lists: Vec<Option<i64>>,
    quote_depth: usize,
    /// Quote depth of the current line.
    line_quote_depth: usize,
    pre_depth: usize,
    /// The next character follows the start of preformatted text.
    is_pre_start: bool,
}

/// Link whose text is being written.
#[derive(Debug)]
struct OpenLink {
    url: Url,
    /// Offset of its text, once it has any.
    start: Option<usize>,
}

impl MarkdownWriter {
    /// Creates a writer of at most `max_bytes`, exceeded by no more than the markers of one line and one link target.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, ..Self::default() }
    }

    /// Returns true once the text has reached its maximum length.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.max_bytes
    }

    /// Returns the finished text.
    pub(super) fn finish(self) -> String {
        self.out.trim().to_owned()
    }

    /// Appends text; white space is collapsed, except in preformatted text.
    pub(super) fn push_text(&mut self, text: &str) {
        for character in text.chars() {
            if self.is_full() {
                return;
            }
            let is_first = std::mem::take(&mut self.is_pre_start);
            match character {
                // Soft hyphens are not part of the word.
                '\u{ad}' => {}
                '\n' if self.pre_depth > 0 && is_first => {}
                '\n' if self.pre_depth > 0 => self.pending_breaks += 1,
                '\u{a0}' if self.pre_depth > 0 => self.push_char(' '),
                _ if self.pre_depth == 0 && character.is_whitespace() => self.needs_space = true,
                _ => self.push_char(character),
            }
        }
    }

    fn push_char(&mut self, character: char) {
        self.start_line();
        self.push_pending_space();
        let start = self.out.len();
        if let Some(link) = &mut self.link {
            link.start.get_or_insert(start);
        }
        self.is_after_marker = false;
        self.out.push(character);
    }

    /// Appends a marker that is not part of a link's text.
    fn push_marker(&mut self, marker: &str) {
        self.start_line();
        self.push_pending_space();
        self.out.push_str(marker);
    }

    /// Writes the pending line breaks and the quote marks of the new line.
    fn start_line(&mut self) {
        if self.out.is_empty() && self.line_quote_depth != self.quote_depth {
            self.push_quote_marks(self.quote_depth);
        } else if !self.out.is_empty() && self.pending_breaks > 0 {
            self.needs_space = false;
            let blank_depth = self.quote_depth.min(self.line_quote_depth);
            for _ in 1..self.pending_breaks {
                if self.is_full() {
                    break;
                }
                self.out.push('\n');
                self.push_quote_marks(blank_depth);
                self.out.truncate(self.out.trim_end_matches(' ').len());
            }
            self.out.push('\n');
            self.push_quote_marks(self.quote_depth);
        }
        self.line_quote_depth = self.quote_depth;
        self.pending_breaks = 0;
    }

    fn push_quote_marks(&mut self, depth: usize) {
        self.out.push_str(&"> ".repeat(depth.min(MAX_SHOWN_NESTING)));
    }

    fn push_pending_space(&mut self) {
        if std::mem::take(&mut self.needs_space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    /// Starts a new line, with at least `breaks` line breaks before it.
    pub(super) fn break_line(&mut self, breaks: usize) {
        if self.pre_depth == 0 {
            self.needs_space = false;
            self.is_after_marker = false;
            self.pending_breaks = self.pending_breaks.max(breaks);
        }
    }

    /// Starts a block, unless the line has only a marker so far.
    pub(super) fn start_block(&mut self, breaks: usize) {
        if !self.is_after_marker {
            self.break_line(breaks);
        }
    }

    /// Starts a heading.
    pub(super) fn start_heading(&mut self, level: u8) {
        self.push_marker(&"#".repeat(usize::from(level)));
        self.needs_space = true;
    }

    /// Writes a horizontal rule.
    pub(super) fn push_rule(&mut self) {
        self.push_marker("---");
        self.break_line(2);
    }

    /// Ends a table cell.
    pub(super) fn end_cell(&mut self) {
        self.push_marker(" |");
        self.needs_space = true;
    }

    /// Starts a list; an ordered one with the number of its first item.
    pub(super) fn start_list(&mut self, first_number: Option<i64>) {
        self.open_lists.push(first_number);
    }

    /// Ends the innermost list.
    pub(super) fn end_list(&mut self) {
        self.open_lists.pop();
    }

    /// Returns the number of open lists.
    pub(super) fn list_depth(&self) -> usize {
        self.open_lists.len()
    }

    /// Starts a list item with its marker.
    pub(super) fn start_item(&mut self) {
        let depth = self.list_depth().saturating_sub(1);
        let marker = match self.open_lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{number}.");
                *number = number.saturating_add(1);
                marker
            }
            _ => "-".to_owned(),
        };
        self.push_marker(&format!("{}{marker}", "  ".repeat(depth.min(MAX_SHOWN_NESTING))));
        self.needs_space = true;
        self.is_after_marker = true;
    }

    /// Starts a quote.
    pub(super) fn start_quote(&mut self) {
        self.quote_depth += 1;
    }

    /// Ends the innermost quote.
    pub(super) fn end_quote(&mut self) {
        self.quote_depth = self.quote_depth.saturating_sub(1);
    }

    /// Starts preformatted text.
    pub(super) fn start_pre(&mut self) {
        if self.pre_depth == 0 {
            self.push_marker("```");
            self.break_line(1);
        }
        self.pre_depth += 1;
        self.is_pre_start = true;
    }

    /// Ends preformatted text.
    pub(super) fn end_pre(&mut self) {
        self.is_pre_start = false;
        if self.pre_depth == 1 {
            self.pending_breaks = self.pending_breaks.max(1);
            self.push_marker("```");
        }
        self.pre_depth = self.pre_depth.saturating_sub(1);
        self.break_line(2);
    }

    /// Starts a link; without a target it only ends the previous one.
    pub(super) fn start_link(&mut self, url: Option<Url>) {
        self.link = url.map(|url| OpenLink { url, start: None });
    }

    /// Ends the open link and writes its target, if it has any text.
    pub(super) fn end_link(&mut self) {
        let Some(OpenLink { url, start: Some(start) }) = self.link.take() else { return };
        if self.pre_depth == 0 && !self.out[start..].contains('\n') {
            self.out.insert(start, '[');
            self.out.push(']');
        }
        self.out.extend(["(", url.as_str(), ")"]);
    }
}
