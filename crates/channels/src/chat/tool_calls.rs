//! Tool calls: one line each with a preview of the output; the full output is available on request.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_protocol::{ToolCall, ToolOutput, escape_line};

use super::call_summary::summarize_arguments;
use super::escape::strip_escapes;
use super::styled_line::{StyledLine, TextStyle, truncate_line};

/// Maximum number of output lines in the preview.
const MAX_PREVIEW_LINES: usize = 3;
/// Maximum number of stored outputs.
const MAX_STORED_OUTPUTS: usize = 50;
/// Maximum stored size of an output in bytes.
const MAX_STORED_OUTPUT_BYTES: usize = 256 * 1024;

/// Tool calls of a chat.
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
    /// Records the start of a call.
    pub(super) fn start_call(&mut self, call: &ToolCall, now: Duration) {
        let title = StyledLine::styled(escape_line(&call.function.name), TextStyle::Strong);
        let summary = summarize_arguments(&call.function.arguments);
        let title = if summary.is_empty() { title } else { title.with_text(format!("  {summary}"), TextStyle::Plain) };
        self.running.push(RunningCall { id: call.id.clone(), title, started_at: now });
    }

    /// Records the result of a call and returns its rows.
    pub(super) fn finish_call(
        &mut self,
        id: &str,
        name: &str,
        output: &ToolOutput,
        now: Duration,
        width: usize,
    ) -> Vec<StyledLine> {
        let position = self.running.iter().position(|running| running.id == id);
        let (title, started_at) = match position.map(|position| self.running.remove(position)) {
            Some(running) => (running.title, running.started_at),
            None => (StyledLine::styled(escape_line(name), TextStyle::Strong), now),
        };
        self.finished_count += 1;
        let text = stored_text(&output.text());
        let (sign, style) = if output.is_error { ("✗ ", TextStyle::Error) } else { ("● ", TextStyle::ToolCall) };
        let mut rows = vec![call_row(sign, style, &title, &format_elapsed(now.saturating_sub(started_at)), width)];
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
            // If the row is too narrow for both, the command matters more than the number of lines.
            let short = || StyledLine::styled(format!("  … ,show {}", self.finished_count), TextStyle::Muted);
            rows.push(if more.columns() <= width { more } else { truncate_line(&short(), width) });
        }
        self.outputs.push_back(StoredOutput { number: self.finished_count, title, text });
        if self.outputs.len() > MAX_STORED_OUTPUTS {
            self.outputs.pop_front();
        }
        rows
    }

    /// Rows of the running calls.
    pub(super) fn running(&self, now: Duration, width: usize) -> Vec<StyledLine> {
        let line = |call: &RunningCall| {
            call_row("○ ", TextStyle::Muted, &call.title, &format_elapsed(now.saturating_sub(call.started_at)), width)
        };
        self.running.iter().map(line).collect()
    }

    /// Ends all running calls without a result and returns their rows.
    pub(super) fn abort_running(&mut self, now: Duration, width: usize) -> Vec<StyledLine> {
        let aborted = std::mem::take(&mut self.running);
        let line = |call: &RunningCall| {
            let status = format!("{}, no result", format_elapsed(now.saturating_sub(call.started_at)));
            call_row("✗ ", TextStyle::Error, &call.title, &status, width)
        };
        aborted.iter().map(line).collect()
    }

    /// Title and full text of an output, by number or the last one.
    pub(super) fn output(&self, number: Option<usize>) -> Option<(StyledLine, &str)> {
        let stored = match number {
            None => self.outputs.back(),
            Some(number) => self.outputs.iter().find(|stored| stored.number == number),
        }?;
        let mut title = StyledLine::styled(format!("{} ", stored.number), TextStyle::Muted);
        for span in &stored.title.0 {
            title.push(&span.text, span.style);
        }
        Some((title, &stored.text))
    }
}

/// Row of a call. If it is too long, the arguments are truncated, not the status.
fn call_row(sign: &str, style: TextStyle, title: &StyledLine, status: &str, width: usize) -> StyledLine {
    let status = format!("  {status}");
    let title_width = width.saturating_sub(sign.chars().count() + status.chars().count());
    let mut line = StyledLine::styled(sign, style);
    for span in &truncate_line(title, title_width.max(1)).0 {
        line.push(&span.text, span.style);
    }
    truncate_line(&line.with_text(status, TextStyle::Muted), width)
}

fn stored_text(text: &str) -> String {
    let mut end = text.len().min(MAX_STORED_OUTPUT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let stored = strip_escapes(&text[..end]);
    if end < text.len() { format!("{stored}\n… (the tape has the rest)") } else { stored }
}

/// Elapsed time in a short readable form.
pub(super) fn format_elapsed(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}
