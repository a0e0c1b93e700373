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
    /// Renders the changes at these offsets.
    pub(super) fn render(&self, positions: &[usize]) -> String {
        let mut lines = Vec::new();
        // Changes that touch a common line are one hunk: each line is shown once, with all its changes.
        let shares_line = |first: &usize, second: &usize| !self.text[first + self.old.len()..*second].contains('\n');
        let mut hunks = positions.chunk_by(shares_line).filter_map(|changes| self.hunk(changes)).peekable();
        let (mut shown_changes, mut context_start) = (0, 0);
        for _ in 0..MAX_SHOWN_CHANGES {
            let Some(hunk) = hunks.next() else { break };
            // A line that another hunk changes is no context.
            let context_end = hunks.peek().map_or(self.text.len(), |next| next.start);
            context_start = self.push_hunk(&hunk, context_start, context_end, &mut lines);
            shown_changes += hunk.change_count;
        }
        if positions.len() > shown_changes {
            lines.push(format!("[{} more changes]", positions.len() - shown_changes));
        }
        lines.join("\n")
    }

    fn hunk(&self, changes: &[usize]) -> Option<EditHunk> {
        let (first, end) = (*changes.first()?, changes.last()? + self.old.len());
        let start = self.text[..first].rfind('\n').map_or(0, |line_end| line_end + 1);
        let rest = &self.text[end..];
        let end = if self.old.ends_with('\n') { end } else { end + rest.find('\n').map_or(rest.len(), |at| at + 1) };
        Some(EditHunk { change_count: changes.len(), start, end })
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
