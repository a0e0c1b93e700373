//! What an edit changed, as a few lines.

use capstan_hooks::Secrets;

/// How many places are shown.
const PLACES: usize = 3;
/// How many lines around a place are shown.
const AROUND: usize = 2;
/// How many lines of a text are shown.
const LINES: usize = 20;
/// How much of a line is shown.
const LINE_CHARS: usize = 200;

/// What replacing `old` by `new` changes in a text.
pub(super) struct Diff<'a> {
    pub(super) text: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// What no line is cut through.
    pub(super) secrets: &'a Secrets,
}

impl Diff<'_> {
    /// What it changes at these places.
    pub(super) fn at(&self, places: &[usize]) -> String {
        let mut lines = Vec::new();
        for position in places.iter().take(PLACES) {
            self.place(*position, &mut lines);
        }
        if places.len() > PLACES {
            lines.push(format!("[{} more places]", places.len() - PLACES));
        }
        lines.join("\n")
    }

    fn place(&self, position: usize, lines: &mut Vec<String>) {
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
        let above: Vec<&str> = before[..begins].lines().rev().take(AROUND).collect();
        lines.extend(above.iter().rev().map(|line| self.shown(' ', line)));
        self.push(lines, '-', &removed);
        self.push(lines, '+', &added);
        let below = after[tail.len()..].strip_prefix('\n').filter(|_| !ends_line).unwrap_or(&after[tail.len()..]);
        lines.extend(below.lines().take(AROUND).map(|line| self.shown(' ', line)));
    }

    fn push(&self, lines: &mut Vec<String>, sign: char, text: &str) {
        let count = text.lines().count();
        lines.extend(text.lines().take(LINES).map(|line| self.shown(sign, line)));
        if count > LINES {
            lines.push(format!("{sign}[{} more lines]", count - LINES));
        }
    }

    fn shown(&self, sign: char, line: &str) -> String {
        format!("{sign}{}", self.secrets.first_chars(line, LINE_CHARS))
    }
}
