//! The terminal, for one message at a time: the reply on one stream, everything else on another.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan_protocol::{ChannelName, Outbound, OutboundKind, SessionId, StreamEvent};

use crate::OneScreen;
use crate::chat::{Tamed, brief, in_one_line};
use crate::one_screen;

/// So many seconds are noticed by whoever waits.
const NOTICED: f64 = 1.0;

/// How much of the name of a tool is told, in characters: a model can ask for one that nobody has.
const NAME: usize = 80;

/// Where a terminal channel writes.
pub struct Printer {
    /// Replies.
    pub replies: Box<dyn Write + Send>,
    /// Everything else.
    pub notes: Box<dyn Write + Send>,
}

impl Printer {
    /// Replies to the standard output, everything else to the standard error.
    pub fn standard() -> Self {
        let (replies, notes) = (std::io::stdout(), std::io::stderr());
        // A reader that is a program gets what was said, a person only what does not drive the terminal.
        let is_terminal = (replies.is_terminal(), notes.is_terminal());
        let screen = OneScreen::standard();
        Self {
            replies: match is_terminal.0 {
                true if one_screen::is_standard() => Box::new(Tamed::new(screen.replies(replies))),
                true => Box::new(Tamed::new(replies)),
                false => Box::new(replies),
            },
            notes: if is_terminal.1 { Box::new(Tamed::new(screen.notes(notes))) } else { Box::new(notes) },
        }
    }

    /// Nothing anywhere, for callers that print the result themselves.
    pub fn silent() -> Self {
        Self { replies: Box::new(std::io::sink()), notes: Box::new(std::io::sink()) }
    }
}

/// The channel `cli`.
///
/// A reply is shown as it streams; the final message adds only what was not shown yet. Notices are kept for the caller,
/// who knows whether the turn failed.
#[derive(Clone)]
pub struct Cli {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    printer: Printer,
    shown: HashMap<SessionId, String>,
    notices: Vec<String>,
}

impl Cli {
    /// Its name.
    pub const NAME: &str = "cli";

    /// A terminal that writes here.
    pub fn new(printer: Printer) -> Self {
        let inner = Inner { printer, shown: HashMap::new(), notices: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The notices that were sent, in order; they are given once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notices)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn show(&mut self, event: &StreamEvent, session: &SessionId) -> std::io::Result<()> {
        match event {
            StreamEvent::Text { delta } => {
                self.shown.entry(session.clone()).or_default().push_str(delta);
                write!(self.printer.replies, "{delta}")?;
                self.printer.replies.flush()
            }
            StreamEvent::Waiting { reason, seconds } if *seconds >= NOTICED => {
                writeln!(self.printer.notes, "{reason}; asking again in {:.0} s", seconds.ceil())
            }
            StreamEvent::ToolCall { call } => {
                let (name, told) = (in_one_line(&call.function.name, NAME), brief(&call.function.arguments));
                writeln!(self.printer.notes, "{}", format!("> {name} {told}").trim_end())
            }
            // What comes next is not the reply: it gets a line of its own.
            StreamEvent::Error { .. } if self.shown.remove(session).is_some() => {
                writeln!(self.printer.replies)?;
                self.printer.replies.flush()
            }
            StreamEvent::Reasoning { .. }
            | StreamEvent::ToolResult { .. }
            | StreamEvent::Usage { .. }
            | StreamEvent::Waiting { .. }
            | StreamEvent::Error { .. }
            | StreamEvent::Final { .. } => Ok(()),
        }
    }

    fn send(&mut self, message: &Outbound) -> std::io::Result<()> {
        let text = message.content.text();
        if message.kind == OutboundKind::Notice {
            self.notices.push(text);
            return Ok(());
        }
        let shown = self.shown.remove(&message.session_id).unwrap_or_default();
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

/// A reader that has gone away, as `head` does when it has enough, wanted no more: that is no failure.
fn unless_gone(written: std::io::Result<()>) -> Result<(), ChannelError> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(ChannelError::hopeless(ChannelName::new(Cli::NAME), error.to_string()))
        }
        _ => Ok(()),
    }
}

#[async_trait]
impl Channel for Cli {
    fn name(&self) -> ChannelName {
        ChannelName::new(Self::NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, caller_waits: true }
    }

    /// The message comes with the command line, so there is nothing to listen to.
    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &Outbound) -> Result<(), ChannelError> {
        unless_gone(self.lock().send(message))
    }

    async fn on_event(&self, event: &StreamEvent, message: &Inbound) -> Result<(), ChannelError> {
        let session = message.session_id.clone().unwrap_or_else(|| message.fallback_session());
        unless_gone(self.lock().show(event, &session))
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
