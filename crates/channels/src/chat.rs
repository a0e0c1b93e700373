//! A conversation at a terminal: the channel, and what a person sees of it as values.
//!
//! [`Chat`] is the channel. [`Screen`] is what is seen: keys and what the channel [`Told`] go in, a [`Frame`] comes out.
//! Reading keys and drawing frames is left to whoever has a terminal.

mod brief;
mod calls;
mod complete;
mod editor;
mod figures;
mod inline;
mod key;
mod line;
mod markdown;
mod screen;
mod speech;
mod table;
mod tame;
mod transcript;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, Intake};
use capstan_protocol::{AdmissionMode, ChannelName, Event, EventId, Outbound, SessionId, StreamEvent};
use tokio::sync::mpsc;

pub(crate) use brief::{brief, in_one_line};
pub use complete::Words;
pub use editor::REMEMBERED;
pub use key::Key;
pub use line::{Line, Palette, Span, Style};
pub use screen::{Ended, Frame, Screen, Size, TICK, Wish};
pub use tame::{Tame, Tamed, tame};
pub use transcript::Told;

use crate::Cli;

/// How much may wait to be shown. A run that says more waits.
const WAITING: usize = 256;

/// The channel `cli` while somebody sits at it: one session, and what comes during a run goes to that run.
///
/// Nobody waits for a single answer here. What a chat that died left is shown to the next one of its session; what
/// belongs to other sessions is not.
#[derive(Clone)]
pub struct Chat {
    session: SessionId,
    told: mpsc::Sender<Told>,
    /// The events that were said here, or whose taking up was told.
    known: Arc<Mutex<BTreeSet<EventId>>>,
}

impl Chat {
    /// A chat in this session, and what it tells.
    pub fn new(session: SessionId) -> (Self, mpsc::Receiver<Told>) {
        let (told, telling) = mpsc::channel(WAITING);
        (Self { session, told, known: Arc::default() }, telling)
    }

    /// The event of something said here.
    pub fn event(&self, chat: &str, text: String) -> Event {
        let mut event = Event::message(Cli::NAME, chat, text);
        event.session_id = Some(self.session.clone());
        self.known().insert(event.event_id.clone());
        event
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<EventId>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, told: Told) -> Result<(), ChannelError> {
        let gone = |_| ChannelError::hopeless(self.name(), "the chat has ended");
        self.told.send(told).await.map_err(gone)
    }
}

#[async_trait]
impl Channel for Chat {
    fn name(&self) -> ChannelName {
        ChannelName::new(Cli::NAME)
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, caller_waits: false }
    }

    fn intake(&self) -> Intake {
        Intake { admission: Some(AdmissionMode::Steer), debounce: None }
    }

    /// What is said comes from whoever has the terminal.
    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &Outbound) -> Result<(), ChannelError> {
        if message.session_id != self.session {
            let reason = format!("nobody is there in the session {}", message.session_id);
            return Err(ChannelError::hopeless(self.name(), reason));
        }
        self.tell(Told::Message(message.clone())).await
    }

    async fn on_event(&self, event: &StreamEvent, message: &Inbound) -> Result<(), ChannelError> {
        if message.session_id.as_ref() != Some(&self.session) {
            return Ok(());
        }
        if self.known().insert(message.event_id.clone()) {
            self.tell(Told::TakenUp { text: message.input.plain_text().to_owned() }).await?;
        }
        let is_command = message.command_line().is_some();
        let (id, body) = (message.event_id.clone(), event.clone());
        self.tell(Told::Event { event: id, is_command, body }).await
    }
}

#[cfg(test)]
#[path = "chat/tests.rs"]
mod tests;
