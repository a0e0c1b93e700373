//! A conversation at a terminal: the channel, and what a person sees of it as values.
//!
//! [`Chat`] is the channel. [`Screen`] is what is seen: keys and what the channel [`Told`] go in, a [`Frame`] comes out.
//! Reading keys and drawing frames is left to whoever has a terminal.

mod call_summary;
mod completion;
mod editor;
mod escape;
mod inline_markup;
mod key_input;
mod markdown;
mod markdown_table;
mod screen;
mod streamed_text;
mod styled_line;
mod tool_calls;
mod transcript;
mod usage_line;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, IntakeOptions};
use capstan_protocol::{AdmissionMode, ChannelName, Event, EventId, OutboundMessage, SessionId, StreamEvent};
use tokio::sync::mpsc;

pub(crate) use call_summary::{summarize_arguments, truncate_to_one_line};
pub use completion::CompletionWords;
pub use editor::MAX_HISTORY_MESSAGES;
pub use escape::{EscapeStripper, EscapeStrippingWriter, strip_escapes};
pub use key_input::KeyInput;
pub use screen::{SPINNER_INTERVAL, Screen, ScreenAction, ScreenFrame, TerminalSize, TurnEnding};
pub use styled_line::{ColorMode, StyledLine, StyledSpan, TextStyle};
pub use transcript::ChatUpdate;

use crate::CliChannel;

/// How much may wait to be shown. A run that says more waits.
const MAX_PENDING_UPDATES: usize = 256;

/// The channel `cli` while somebody sits at it: one session, and what comes during a run goes to that run.
///
/// Nobody waits for a single answer here. What a chat that died left is shown to the next one of its session; what
/// belongs to other sessions is not.
#[derive(Clone)]
pub struct ChatChannel {
    session: SessionId,
    updates: mpsc::Sender<ChatUpdate>,
    /// The events that were said here, or whose taking up was told.
    known_events: Arc<Mutex<BTreeSet<EventId>>>,
}

impl ChatChannel {
    /// A chat in this session, and what it tells.
    pub fn new(session: SessionId) -> (Self, mpsc::Receiver<ChatUpdate>) {
        let (told, telling) = mpsc::channel(MAX_PENDING_UPDATES);
        (Self { session, updates: told, known_events: Arc::default() }, telling)
    }

    /// The event of something said here.
    pub fn message_event(&self, chat: &str, text: String) -> Event {
        let mut event = Event::message(CliChannel::CHANNEL_NAME, chat, text);
        event.session_id = Some(self.session.clone());
        self.known_events().insert(event.event_id.clone());
        event
    }

    fn known_events(&self) -> MutexGuard<'_, BTreeSet<EventId>> {
        self.known_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_update(&self, told: ChatUpdate) -> Result<(), ChannelError> {
        let gone = |_| ChannelError::permanent(self.name(), "the chat has ended");
        self.updates.send(told).await.map_err(gone)
    }
}

#[async_trait]
impl Channel for ChatChannel {
    fn name(&self) -> ChannelName {
        ChannelName::new(CliChannel::CHANNEL_NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, has_waiting_callers: false }
    }

    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions { admission: Some(AdmissionMode::Steer), debounce: None }
    }

    /// What is said comes from whoever has the terminal.
    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        if message.session_id != self.session {
            let reason = format!("nobody is there in the session {}", message.session_id);
            return Err(ChannelError::permanent(self.name(), reason));
        }
        self.send_update(ChatUpdate::Message(message.clone())).await
    }

    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        if message.session_id.as_ref() != Some(&self.session) {
            return Ok(());
        }
        if self.known_events().insert(message.event_id.clone()) {
            self.send_update(ChatUpdate::Recovered { text: message.input.plain_text().to_owned() }).await?;
        }
        let is_command = message.command_line().is_some();
        let (id, body) = (message.event_id.clone(), event.clone());
        self.send_update(ChatUpdate::Event { event: id, is_command, body }).await
    }
}

#[cfg(test)]
#[path = "chat/tests.rs"]
mod tests;
