//! Short diff of an edit.

use capstan_hooks::SecretMasker;

/// Maximum number of changes shown.
const MAX_SHOWN_CHANGES: usize = 3;
/// Number of context lines around a change.
const DIFF_CONTEXT_LINES: usize = 2;
/// Maximum number of lines per side of a change.
const MAX_HUNK_LINES: usize = 20;
/// Maximum length of a line.
const MAX_DIFF_LINE_CHARS: usize = 200;

/// Replacement of `old` by `new` in a text.
pub(super) struct EditDiff<'a> {
    pub(super) text: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// Secrets that lines must not be cut through.
    pub(super) secrets: &'a SecretMasker,
}

/// Changes that share lines, and the whole lines they change.
struct EditHunk {
    change_count: usize,
    start: usize,
    end: usize,
}

impl EditDiff<'_> {
    /// Renders the first of this number of changes.
    pub(super) fn render(&self, change_count: usize) -> String {
        let mut lines = Vec::new();
        let mut hunks = self.hunks().peekable();
        let (mut shown_changes, mut context_start) = (0, 0);
        for _ in 0..MAX_SHOWN_CHANGES {
            let Some(hunk) = hunks.next() else { break };
            // A line that another hunk changes is no context.
            let context_end = hunks.peek().map_or(self.text.len(), |next| next.start);
            context_start = self.push_hunk(&hunk, context_start, context_end, &mut lines);
            shown_changes += hunk.change_count;
        }
        if change_count > shown_changes {
            lines.push(format!("[{} more changes]", change_count - shown_changes));
        }
        lines.join("\n")
    }

    /// Finds the hunks one by one. Changes that touch a common line are one hunk: each line is shown once, with all its
    /// changes.
    fn hunks(&self) -> impl Iterator<Item = EditHunk> {
        let end_of = |position: usize| position + self.old.len();
        let mut positions = self.text.match_indices(self.old).map(|(position, _)| position).peekable();
        std::iter::from_fn(move || {
            let first = positions.next()?;
            let (mut last, mut change_count) = (first, 1);
            while let Some(next) = positions.next_if(|next| !self.text[end_of(last)..*next].contains('\n')) {
                (last, change_count) = (next, change_count + 1);
            }
            let start = self.text[..first].rfind('\n').map_or(0, |line_end| line_end + 1);
            let rest = &self.text[end_of(last)..];
            let line_len = rest.find('\n').map_or(rest.len(), |at| at + 1);
            let end = end_of(last) + if self.old.ends_with('\n') { 0 } else { line_len };
            Some(EditHunk { change_count, start, end })
        })
    }

    /// Adds a hunk, with context lines from `context_start` and up to `context_end`. Returns the end of the shown text.
    fn push_hunk(&self, hunk: &EditHunk, context_start: usize, context_end: usize, lines: &mut Vec<String>) -> usize {
        let removed = &self.text[hunk.start..hunk.end];
        lines.push(format!("@@ line {} @@", self.text[..hunk.start].matches('\n').count() + 1));
        let above: Vec<&str> = self.text[context_start..hunk.start].lines().rev().take(DIFF_CONTEXT_LINES).collect();
        lines.extend(above.iter().rev().map(|line| self.format_line(' ', line)));
        self.push_lines(lines, '-', removed);
        self.push_lines(lines, '+', &removed.replace(self.old, self.new));
        let below = &self.text[hunk.end..context_end];
        lines.extend(below.lines().take(DIFF_CONTEXT_LINES).map(|line| self.format_line(' ', line)));
        let below_len: usize = below.split_inclusive('\n').take(DIFF_CONTEXT_LINES).map(str::len).sum();
        hunk.end + below_len
    }

    fn push_lines(&self, lines: &mut Vec<String>, sign: char, text: &str) {
        let count = text.lines().count();
        lines.extend(text.lines().take(MAX_HUNK_LINES).map(|line| self.format_line(sign, line)));
        if count > MAX_HUNK_LINES {
            lines.push(format!("{sign}[{} more lines]", count - MAX_HUNK_LINES));
        }
    }

    fn format_line(&self, sign: char, line: &str) -> String {
        format!("{sign}{}", self.secrets.first_chars(line, MAX_DIFF_LINE_CHARS))
    }
}
