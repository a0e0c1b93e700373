//! Terminal channel for one message at a time: replies on one stream, everything else on another.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan_protocol::{ChannelName, OutboundKind, OutboundMessage, SessionId, StreamEvent};

use crate::SharedTty;
use crate::chat::{EscapeStrippingWriter, summarize_arguments, truncate_to_one_line};
use crate::shared_tty;

/// Shorter retry delays are not shown.
const MIN_SHOWN_WAIT_SECS: f64 = 1.0;

/// Maximum length of a displayed tool name. A model may call tools that do not exist, with names of any length.
const MAX_SHOWN_TOOL_NAME_CHARS: usize = 80;

/// Output streams of the terminal channel.
pub struct CliPrinter {
    /// Replies.
    pub replies: Box<dyn Write + Send>,
    /// Everything else.
    pub notes: Box<dyn Write + Send>,
}

impl CliPrinter {
    /// Replies go to standard output, everything else to standard error.
    pub fn standard() -> Self {
        let (replies, notes) = (std::io::stdout(), std::io::stderr());
        // Programs get the text verbatim; a terminal must not receive control sequences.
        let is_terminal = (replies.is_terminal(), notes.is_terminal());
        let tty = SharedTty::standard();
        Self {
            replies: match is_terminal.0 {
                true if shared_tty::is_standard_shared() => {
                    Box::new(EscapeStrippingWriter::new(tty.reply_writer(replies)))
                }
                true => Box::new(EscapeStrippingWriter::new(replies)),
                false => Box::new(replies),
            },
            notes: if is_terminal.1 {
                Box::new(EscapeStrippingWriter::new(tty.note_writer(notes)))
            } else {
                Box::new(notes)
            },
        }
    }

    /// Discards all output, for callers that print the result themselves.
    pub fn silent() -> Self {
        Self { replies: Box::new(std::io::sink()), notes: Box::new(std::io::sink()) }
    }
}

/// Channel `cli`.
///
/// A reply is shown as it streams; the final message adds only the part that was not shown yet. Notices are collected for
/// the caller, which knows whether the turn failed.
#[derive(Clone)]
pub struct CliChannel {
    inner: Arc<Mutex<CliState>>,
}

struct CliState {
    printer: CliPrinter,
    /// A process without a terminal of its own shows no messages, and must not confirm any.
    is_attended: bool,
    shown_text: HashMap<SessionId, String>,
    notices: Vec<String>,
}

impl CliChannel {
    /// Channel name.
    pub const CHANNEL_NAME: &str = "cli";

    /// Creates a channel with these output streams.
    pub fn new(printer: CliPrinter) -> Self {
        let inner = CliState { printer, is_attended: true, shown_text: HashMap::new(), notices: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Creates the channel of a process that serves other channels. Messages to it are refused, because they would be shown
    /// to no user.
    pub fn unattended() -> Self {
        let channel = Self::new(CliPrinter::silent());
        channel.lock().is_attended = false;
        channel
    }

    /// Takes the notices sent so far, in order.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notices)
    }

    /// Ends the output of a turn. Text that a cancelled run has shown ends its line, and is no beginning of the next
    /// reply.
    pub fn end_turn(&self) {
        let mut state = self.lock();
        if state.shown_text.drain().any(|(_, text)| !text.is_empty()) {
            // A lost line ending is not a failure.
            let _unwritten = writeln!(state.printer.replies).and_then(|()| state.printer.replies.flush());
        }
    }

    fn lock(&self) -> MutexGuard<'_, CliState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CliState {
    fn show_event(&mut self, event: &StreamEvent, session: &SessionId) -> std::io::Result<()> {
        match event {
            StreamEvent::Text { delta } => {
                self.shown_text.entry(session.clone()).or_default().push_str(delta);
                write!(self.printer.replies, "{delta}")?;
                self.printer.replies.flush()
            }
            StreamEvent::Waiting { reason, seconds, .. } if *seconds >= MIN_SHOWN_WAIT_SECS => {
                writeln!(self.printer.notes, "{reason}; retrying in {:.0} s", seconds.ceil())
            }
            StreamEvent::ToolCall { call } => {
                let name = truncate_to_one_line(&call.function.name, MAX_SHOWN_TOOL_NAME_CHARS);
                let arguments = summarize_arguments(&call.function.arguments);
                writeln!(self.printer.notes, "{}", format!("> {name} {arguments}").trim_end())
            }
            // A failed turn has no reply that would end the line.
            StreamEvent::Final { ok: false, .. } => self.end_line(session),
            StreamEvent::Reasoning { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. }
            | StreamEvent::Error { .. }
            | StreamEvent::Final { .. } => Ok(()),
        }
    }

    /// Ends the line of a reply that was shown in part.
    fn end_line(&mut self, session: &SessionId) -> std::io::Result<()> {
        if self.shown_text.remove(session).is_none_or(|text| text.is_empty()) {
            return Ok(());
        }
        writeln!(self.printer.replies)?;
        self.printer.replies.flush()
    }

    fn show_message(&mut self, message: &OutboundMessage) -> std::io::Result<()> {
        let text = message.content.text();
        if message.kind == OutboundKind::Notice {
            self.notices.push(text);
            return Ok(());
        }
        let shown = self.shown_text.remove(&message.session_id).unwrap_or_default();
        if shown.is_empty() {
            writeln!(self.printer.replies, "{text}")?;
        } else if let Some(rest) = text.strip_prefix(&shown) {
            writeln!(self.printer.replies, "{rest}")?;
        } else {
            writeln!(self.printer.replies, "\n{text}")?;
        }
        self.printer.replies.flush()
    }
}

/// Maps a failed write. A closed pipe is a failure too: the reader has not got the reply.
fn check_written(result: std::io::Result<()>) -> Result<(), ChannelError> {
    result.map_err(|error| ChannelError::permanent(ChannelName::new(CliChannel::CHANNEL_NAME), error.to_string()))
}

#[async_trait]
impl Channel for CliChannel {
    fn name(&self) -> ChannelName {
        ChannelName::new(Self::CHANNEL_NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, has_waiting_callers: true, media: false }
    }

    /// Does nothing: the message comes from the command line.
    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let mut state = self.lock();
        if !state.is_attended {
            return Err(ChannelError::permanent(self.name(), "this process has no terminal that shows messages"));
        }
        check_written(state.show_message(message))
    }

    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        let session = message.session_id.clone().unwrap_or_else(|| message.fallback_session());
        check_written(self.lock().show_event(event, &session))
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
