//! Calls of tools: one line each, a little of what they gave, and the rest for whoever asks.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_protocol::{ToolCall, ToolOutput};

use super::brief::brief;
use super::line::{Line, Style, cut};
use super::tame::tame;

/// How many lines of what a tool gave are shown at once.
const PREVIEW: usize = 3;
/// How many outputs are kept to be shown.
const KEPT: usize = 50;
/// How much of an output is kept, in bytes.
const KEPT_BYTES: usize = 256 * 1024;

/// The calls of a chat.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Vec<Running>,
    kept: VecDeque<Kept>,
    count: usize,
}

#[derive(Debug)]
struct Running {
    id: String,
    title: Line,
    since: Duration,
}

#[derive(Debug)]
struct Kept {
    number: usize,
    title: Line,
    text: String,
}

impl Calls {
    /// A tool is being called.
    pub(super) fn begin(&mut self, call: &ToolCall, now: Duration) {
        let title = Line::of(tame(&call.function.name), Style::Strong);
        let brief = brief(&call.function.arguments);
        let title = if brief.is_empty() { title } else { title.and(format!("  {brief}"), Style::Plain) };
        self.running.push(Running { id: call.id.clone(), title, since: now });
    }

    /// A tool answered: what is shown of that.
    pub(super) fn end(&mut self, id: &str, name: &str, output: &ToolOutput, now: Duration, width: usize) -> Vec<Line> {
        let position = self.running.iter().position(|running| running.id == id);
        let (title, since) = match position.map(|position| self.running.remove(position)) {
            Some(running) => (running.title, running.since),
            None => (Line::of(tame(name), Style::Strong), now),
        };
        self.count += 1;
        let text = kept_text(&output.text());
        let (sign, style) = if output.is_error { ("✗ ", Style::Failed) } else { ("● ", Style::Call) };
        let mut rows = vec![row(sign, style, &title, &elapsed(now.saturating_sub(since)), width)];
        let lines: Vec<&str> = text.lines().collect();
        let shown = if lines.len() <= PREVIEW + 1 { lines.len() } else { PREVIEW };
        for line in &lines[..shown] {
            rows.push(cut(&Line::of(format!("  {line}"), Style::Aside), width));
        }
        if shown < lines.len() {
            let more = Line::of(format!("  … {} more lines (,show {})", lines.len() - shown, self.count), Style::Aside);
            // How to see them is told where there is no room to tell how many they are.
            let short = || Line::of(format!("  … ,show {}", self.count), Style::Aside);
            rows.push(if more.columns() <= width { more } else { cut(&short(), width) });
        }
        self.kept.push_back(Kept { number: self.count, title, text });
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        rows
    }

    /// The calls that are not answered yet.
    pub(super) fn running(&self, now: Duration, width: usize) -> Vec<Line> {
        let line =
            |call: &Running| row("○ ", Style::Aside, &call.title, &elapsed(now.saturating_sub(call.since)), width);
        self.running.iter().map(line).collect()
    }

    /// Those that were running have ended without an answer.
    pub(super) fn break_off(&mut self, now: Duration, width: usize) -> Vec<Line> {
        let ended = std::mem::take(&mut self.running);
        let line = |call: &Running| {
            let told = format!("{}, no answer", elapsed(now.saturating_sub(call.since)));
            row("✗ ", Style::Failed, &call.title, &told, width)
        };
        ended.iter().map(line).collect()
    }

    /// The whole of what a tool gave, by its number or the last one: its title, and its text.
    pub(super) fn output(&self, number: Option<usize>) -> Option<(Line, &str)> {
        let kept = match number {
            None => self.kept.back(),
            Some(number) => self.kept.iter().find(|kept| kept.number == number),
        }?;
        let mut title = Line::of(format!("{} ", kept.number), Style::Aside);
        for span in &kept.title.0 {
            title.push(&span.text, span.style);
        }
        Some((title, &kept.text))
    }
}

/// A call in one row. What does not fit is left out of its arguments, not of its time.
fn row(sign: &str, style: Style, title: &Line, told: &str, width: usize) -> Line {
    let told = format!("  {told}");
    let left = width.saturating_sub(sign.chars().count() + told.chars().count());
    let mut line = Line::of(sign, style);
    for span in &cut(title, left.max(1)).0 {
        line.push(&span.text, span.style);
    }
    cut(&line.and(told, Style::Aside), width)
}

fn kept_text(text: &str) -> String {
    let mut end = text.len().min(KEPT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = tame(&text[..end]);
    if end < text.len() { format!("{kept}\n… (the tape has the rest)") } else { kept }
}

/// A time as people say it.
pub(super) fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}
