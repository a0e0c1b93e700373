//! A channel to the platform.

use std::sync::Arc;

use async_trait::async_trait;
use capstan::hooks::contracts::{Answer, Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan::protocol::{ChannelName, Event, Outbound};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::FromHost;
use crate::place::Place;

/// A channel to the platform.
pub struct Line {
    name: &'static str,
    caller_waits: bool,
    place: Place,
}

impl Line {
    /// A chat platform that sends again what was not acknowledged.
    pub const WIRE: &str = "wire";
    /// Callers that wait, each on a connection that ends with the process.
    pub const DESK: &str = "desk";

    /// The chat platform.
    pub fn wire(place: Place) -> Self {
        Self { name: Self::WIRE, caller_waits: false, place }
    }

    /// The callers.
    pub fn desk(place: Place) -> Self {
        Self { name: Self::DESK, caller_waits: true, place }
    }

    fn failed(&self, error: &impl ToString) -> ChannelError {
        // The platform may have read the message before the connection broke.
        ChannelError::unknown(self.name(), error.to_string())
    }

    /// Tells the platform something on a connection of its own, and waits until it has it.
    async fn tell(&self, said: &FromHost) -> std::io::Result<()> {
        let mut stream = UnixStream::connect(self.place.socket()).await?;
        say(&mut stream, said).await?;
        BufReader::new(stream).lines().next_line().await?;
        Ok(())
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), said: &FromHost) -> std::io::Result<()> {
    let line = format!("{}\n", serde_json::to_string(said)?);
    stream.write_all(line.as_bytes()).await
}

#[async_trait]
impl Channel for Line {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { caller_waits: self.caller_waits, ..ChannelCapabilities::default() }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let stream = UnixStream::connect(self.place.socket()).await.map_err(|error| self.failed(&error))?;
        let (events, mut acknowledgements) = stream.into_split();
        let listens = FromHost::Listens { channel: self.name() };
        say(&mut acknowledgements, &listens).await.map_err(|error| self.failed(&error))?;
        let acknowledgements = Arc::new(Mutex::new(acknowledgements));
        let mut events = BufReader::new(events).lines();
        while let Some(line) = events.next_line().await.map_err(|error| self.failed(&error))? {
            let event: Event = serde_json::from_str(&line).map_err(|error| self.failed(&error))?;
            let event_id = event.event_id.clone();
            let submitted = gateway.submit(event.into());
            let acknowledgements = Arc::clone(&acknowledgements);
            tokio::spawn(async move {
                let said = match submitted.await {
                    Ok(()) => FromHost::Accepted { event_id },
                    Err(refusal) => FromHost::Refused { event_id, reason: refusal.to_string() },
                };
                // Lines must not mix, so one is written after the other.
                let mut acknowledgements = acknowledgements.lock().await;
                // A platform that is gone will send the event again.
                let _unheard = say(&mut *acknowledgements, &said).await;
            });
        }
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &Outbound) -> Result<(), ChannelError> {
        let said = FromHost::Sends { process: self.place.process, message: message.clone() };
        self.tell(&said).await.map_err(|error| self.failed(&error))
    }

    async fn answer(&self, answer: &Answer) -> Result<(), ChannelError> {
        let said = FromHost::Answers {
            process: self.place.process,
            event_id: answer.event.event_id.clone(),
            outcome: answer.outcome.clone(),
            texts: answer.messages.iter().map(|message| message.content.text()).collect(),
            duplicate: answer.duplicate,
        };
        self.tell(&said).await.map_err(|error| self.failed(&error))
    }
}
