//! Calls of tools: one line each, a little of what they gave, and the rest for whoever asks.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_protocol::{ToolCall, ToolOutput};

use super::call_summary::summarize_arguments;
use super::escape::strip_escapes;
use super::styled_line::{StyledLine, TextStyle, truncate_line};

/// How many lines of what a tool gave are shown at once.
const MAX_PREVIEW_LINES: usize = 3;
/// How many outputs are kept to be shown.
const MAX_STORED_OUTPUTS: usize = 50;
/// How much of an output is kept, in bytes.
const MAX_STORED_OUTPUT_BYTES: usize = 256 * 1024;

/// The calls of a chat.
#[derive(Debug, Default)]
pub(super) struct ToolCallLog {
    running: Vec<RunningCall>,
    outputs: VecDeque<StoredOutput>,
    finished_count: usize,
}

#[derive(Debug)]
struct RunningCall {
    id: String,
    title: StyledLine,
    started_at: Duration,
}

#[derive(Debug)]
struct StoredOutput {
    number: usize,
    title: StyledLine,
    text: String,
}

impl ToolCallLog {
    /// A tool is being called.
    pub(super) fn start_call(&mut self, call: &ToolCall, now: Duration) {
        let title = StyledLine::styled(strip_escapes(&call.function.name), TextStyle::Strong);
        let brief = summarize_arguments(&call.function.arguments);
        let title = if brief.is_empty() { title } else { title.with_text(format!("  {brief}"), TextStyle::Plain) };
        self.running.push(RunningCall { id: call.id.clone(), title, started_at: now });
    }

    /// A tool answered: what is shown of that.
    pub(super) fn finish_call(
        &mut self,
        id: &str,
        name: &str,
        output: &ToolOutput,
        now: Duration,
        width: usize,
    ) -> Vec<StyledLine> {
        let position = self.running.iter().position(|running| running.id == id);
        let (title, since) = match position.map(|position| self.running.remove(position)) {
            Some(running) => (running.title, running.started_at),
            None => (StyledLine::styled(strip_escapes(name), TextStyle::Strong), now),
        };
        self.finished_count += 1;
        let text = stored_text(&output.text());
        let (sign, style) = if output.is_error { ("✗ ", TextStyle::Error) } else { ("● ", TextStyle::ToolCall) };
        let mut rows = vec![call_row(sign, style, &title, &format_elapsed(now.saturating_sub(since)), width)];
        let lines: Vec<&str> = text.lines().collect();
        let shown = if lines.len() <= MAX_PREVIEW_LINES + 1 { lines.len() } else { MAX_PREVIEW_LINES };
        for line in &lines[..shown] {
            rows.push(truncate_line(&StyledLine::styled(format!("  {line}"), TextStyle::Muted), width));
        }
        if shown < lines.len() {
            let more = StyledLine::styled(
                format!("  … {} more lines (,show {})", lines.len() - shown, self.finished_count),
                TextStyle::Muted,
            );
            // How to see them is told where there is no room to tell how many they are.
            let short = || StyledLine::styled(format!("  … ,show {}", self.finished_count), TextStyle::Muted);
            rows.push(if more.columns() <= width { more } else { truncate_line(&short(), width) });
        }
        self.outputs.push_back(StoredOutput { number: self.finished_count, title, text });
        if self.outputs.len() > MAX_STORED_OUTPUTS {
            self.outputs.pop_front();
        }
        rows
    }

    /// The calls that are not answered yet.
    pub(super) fn running(&self, now: Duration, width: usize) -> Vec<StyledLine> {
        let line = |call: &RunningCall| {
            call_row("○ ", TextStyle::Muted, &call.title, &format_elapsed(now.saturating_sub(call.started_at)), width)
        };
        self.running.iter().map(line).collect()
    }

    /// Those that were running have ended without an answer.
    pub(super) fn abort_running(&mut self, now: Duration, width: usize) -> Vec<StyledLine> {
        let ended = std::mem::take(&mut self.running);
        let line = |call: &RunningCall| {
            let told = format!("{}, no answer", format_elapsed(now.saturating_sub(call.started_at)));
            call_row("✗ ", TextStyle::Error, &call.title, &told, width)
        };
        ended.iter().map(line).collect()
    }

    /// The whole of what a tool gave, by its number or the last one: its title, and its text.
    pub(super) fn output(&self, number: Option<usize>) -> Option<(StyledLine, &str)> {
        let kept = match number {
            None => self.outputs.back(),
            Some(number) => self.outputs.iter().find(|kept| kept.number == number),
        }?;
        let mut title = StyledLine::styled(format!("{} ", kept.number), TextStyle::Muted);
        for span in &kept.title.0 {
            title.push(&span.text, span.style);
        }
        Some((title, &kept.text))
    }
}

/// A call in one row. What does not fit is left out of its arguments, not of its time.
fn call_row(sign: &str, style: TextStyle, title: &StyledLine, told: &str, width: usize) -> StyledLine {
    let told = format!("  {told}");
    let left = width.saturating_sub(sign.chars().count() + told.chars().count());
    let mut line = StyledLine::styled(sign, style);
    for span in &truncate_line(title, left.max(1)).0 {
        line.push(&span.text, span.style);
    }
    truncate_line(&line.with_text(told, TextStyle::Muted), width)
}

fn stored_text(text: &str) -> String {
    let mut end = text.len().min(MAX_STORED_OUTPUT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = strip_escapes(&text[..end]);
    if end < text.len() { format!("{kept}\n… (the tape has the rest)") } else { kept }
}

/// A time as people say it.
pub(super) fn format_elapsed(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}
