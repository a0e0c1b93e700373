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

impl EditDiff<'_> {
    /// Renders the changes at these offsets.
    pub(super) fn render(&self, positions: &[usize]) -> String {
        let mut lines = Vec::new();
        for position in positions.iter().take(MAX_SHOWN_CHANGES) {
            self.push_hunk(*position, &mut lines);
        }
        if positions.len() > MAX_SHOWN_CHANGES {
            lines.push(format!("[{} more changes]", positions.len() - MAX_SHOWN_CHANGES));
        }
        lines.join("\n")
    }

    fn push_hunk(&self, position: usize, lines: &mut Vec<String>) {
        let Self { text, old, new, .. } = self;
        let (before, after) = (&text[..position], &text[position + old.len()..]);
        // Whole lines are shown: text before and after the change on the same line is part of both sides.
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let ends_line = old.ends_with('\n');
        let tail = if ends_line { "" } else { after.split('\n').next().unwrap_or_default() };
        let head = &before[line_start..];
        let removed = format!("{head}{old}{tail}");
        let added = format!("{head}{new}{tail}");
        lines.push(format!("@@ line {} @@", before.matches('\n').count() + 1));
        let above: Vec<&str> = before[..line_start].lines().rev().take(DIFF_CONTEXT_LINES).collect();
        lines.extend(above.iter().rev().map(|line| self.format_line(' ', line)));
        self.push_lines(lines, '-', &removed);
        self.push_lines(lines, '+', &added);
        let below = after[tail.len()..].strip_prefix('\n').filter(|_| !ends_line).unwrap_or(&after[tail.len()..]);
        lines.extend(below.lines().take(DIFF_CONTEXT_LINES).map(|line| self.format_line(' ', line)));
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
