//! What an edit changed, as a few lines.

use capstan_hooks::SecretMasker;

/// How many places are shown.
const MAX_SHOWN_CHANGES: usize = 3;
/// How many lines around a place are shown.
const DIFF_CONTEXT_LINES: usize = 2;
/// How many lines of a text are shown.
const MAX_HUNK_LINES: usize = 20;
/// How much of a line is shown.
const MAX_DIFF_LINE_CHARS: usize = 200;

/// What replacing `old` by `new` changes in a text.
pub(super) struct EditDiff<'a> {
    pub(super) text: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// What no line is cut through.
    pub(super) secrets: &'a SecretMasker,
}

impl EditDiff<'_> {
    /// What it changes at these places.
    pub(super) fn render(&self, places: &[usize]) -> String {
        let mut lines = Vec::new();
        for position in places.iter().take(MAX_SHOWN_CHANGES) {
            self.push_hunk(*position, &mut lines);
        }
        if places.len() > MAX_SHOWN_CHANGES {
            lines.push(format!("[{} more places]", places.len() - MAX_SHOWN_CHANGES));
        }
        lines.join("\n")
    }

    fn push_hunk(&self, position: usize, lines: &mut Vec<String>) {
        let Self { text, old, new, .. } = self;
        let (before, after) = (&text[..position], &text[position + old.len()..]);
        // Whole lines are shown: what stands on them before and after the text is part of both sides.
        let begins = before.rfind('\n').map_or(0, |end| end + 1);
        let ends_line = old.ends_with('\n');
        let tail = if ends_line { "" } else { after.split('\n').next().unwrap_or_default() };
        let head = &before[begins..];
        let removed = format!("{head}{old}{tail}");
        let added = format!("{head}{new}{tail}");
        lines.push(format!("@@ line {} @@", before.matches('\n').count() + 1));
        let above: Vec<&str> = before[..begins].lines().rev().take(DIFF_CONTEXT_LINES).collect();
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
