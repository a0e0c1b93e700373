//! Writes the stderr of a plugin to the log, and keeps its last lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::escape_line;
use capstan_rpc::{FrameReader, InputFrame};
use tokio::io::AsyncRead;

use crate::rate_limit::{MessageLimiter, MessageVerdict};

/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// Number of lines that are kept.
const MAX_LAST_LINES: usize = 20;

/// Last lines that a plugin wrote to stderr.
#[derive(Clone, Default)]
pub(crate) struct StderrLines(Arc<Mutex<VecDeque<String>>>);

impl StderrLines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn to_vec(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Reads until the end. A plugin that floods its stderr is still read, so that it does not block.
pub(crate) async fn log_stderr(
    plugin: String,
    stderr: impl AsyncRead + Unpin,
    lines: StderrLines,
    messages_per_second: u32,
) {
    let mut reader = FrameReader::new(stderr, MAX_LINE_BYTES);
    let limiter = MessageLimiter::new(messages_per_second);
    while let Ok(Some(frame)) = reader.next_frame().await {
        let line = match frame {
            InputFrame::Line(line) => escape_line(&String::from_utf8_lossy(&line)),
            InputFrame::TooLong { bytes } => format!("[a line of {bytes} bytes]"),
        };
        if let MessageVerdict::Log { dropped } = limiter.admit() {
            if dropped > 0 {
                tracing::info!(plugin, dropped, "lines of stderr were dropped");
            }
            tracing::info!(plugin, "stderr: {line}");
            lines.push(line);
        }
        tokio::task::consume_budget().await;
    }
}
