//! Interactive chat at a terminal.
//!
//! [`ChatChannel`] is the channel. [`Screen`] is its user interface as a value: [`KeyInput`] and [`ChatUpdate`] go in,
//! a [`ScreenFrame`] comes out. Reading keys and drawing frames is up to the owner of the terminal, so the interface can be
//! tested without one.

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

/// Maximum number of updates waiting for the screen. A run that produces more of them waits.
const MAX_PENDING_UPDATES: usize = 256;

/// Channel `cli` of an interactive chat: one session, and messages sent during a run steer that run.
///
/// There are no waiting callers. Events recovered from an earlier chat are shown in the next chat of the same session;
/// events of other sessions are not shown.
#[derive(Clone)]
pub struct ChatChannel {
    session: SessionId,
    updates: mpsc::Sender<ChatUpdate>,
    /// Events sent from here, or already announced as recovered.
    known_events: Arc<Mutex<BTreeSet<EventId>>>,
}

impl ChatChannel {
    /// Creates a chat in this session, and the receiver of its updates.
    pub fn new(session: SessionId) -> (Self, mpsc::Receiver<ChatUpdate>) {
        let (updates, receiver) = mpsc::channel(MAX_PENDING_UPDATES);
        (Self { session, updates, known_events: Arc::default() }, receiver)
    }

    /// Creates the event of a message typed here.
    pub fn message_event(&self, chat: &str, text: String) -> Event {
        let mut event = Event::message(CliChannel::CHANNEL_NAME, chat, text);
        event.session_id = Some(self.session.clone());
        self.known_events().insert(event.event_id.clone());
        event
    }

    fn known_events(&self) -> MutexGuard<'_, BTreeSet<EventId>> {
        self.known_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_update(&self, update: ChatUpdate) -> Result<(), ChannelError> {
        let gone = |_| ChannelError::permanent(self.name(), "the chat has ended");
        self.updates.send(update).await.map_err(gone)
    }
}

#[async_trait]
impl Channel for ChatChannel {
    fn name(&self) -> ChannelName {
        ChannelName::new(CliChannel::CHANNEL_NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, has_waiting_callers: false, media: false }
    }

    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions { admission: Some(AdmissionMode::Steer), debounce: None }
    }

    /// Does nothing: messages come from the owner of the terminal.
    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        if message.session_id != self.session {
            let reason = format!("this chat does not show the session {}", message.session_id);
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
