//! What an edit changed, as a few lines.

/// How many places are shown.
const PLACES: usize = 3;
/// How many lines around a place are shown.
const AROUND: usize = 2;
/// How many lines of a text are shown.
const LINES: usize = 20;
/// How much of a line is shown.
const LINE_CHARS: usize = 200;

/// What replacing `old` by `new` at these places of a text changes.
pub(super) fn of(text: &str, at: &[usize], old: &str, new: &str) -> String {
    let mut lines = Vec::new();
    for position in at.iter().take(PLACES) {
        place(text, *position, old, new, &mut lines);
    }
    if at.len() > PLACES {
        lines.push(format!("[{} more places]", at.len() - PLACES));
    }
    lines.join("\n")
}

fn place(text: &str, position: usize, old: &str, new: &str, lines: &mut Vec<String>) {
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
    lines.extend(above.iter().rev().map(|line| shown(' ', line)));
    push(lines, '-', &removed);
    push(lines, '+', &added);
    let below = after[tail.len()..].strip_prefix('\n').filter(|_| !ends_line).unwrap_or(&after[tail.len()..]);
    lines.extend(below.lines().take(AROUND).map(|line| shown(' ', line)));
}

fn push(lines: &mut Vec<String>, sign: char, text: &str) {
    let count = text.lines().count();
    lines.extend(text.lines().take(LINES).map(|line| shown(sign, line)));
    if count > LINES {
        lines.push(format!("{sign}[{} more lines]", count - LINES));
    }
}

fn shown(sign: char, line: &str) -> String {
    std::iter::once(sign).chain(line.chars().take(LINE_CHARS)).collect()
}
