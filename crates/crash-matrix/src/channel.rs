//! A channel to the platform.

use std::sync::Arc;

use async_trait::async_trait;
use capstan::hooks::contracts::{Channel, ChannelCapabilities, ChannelError, ChannelReply, Gateway};
use capstan::protocol::{ChannelName, Event, OutboundMessage};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::HostReport;
use crate::trial_dir::TrialDir;

/// A channel to the platform.
pub struct PlatformChannel {
    name: &'static str,
    caller_waits: bool,
    trial_dir: TrialDir,
}

impl PlatformChannel {
    /// A chat platform that sends again what was not acknowledged.
    pub const CHAT_CHANNEL: &str = "wire";
    /// Callers that wait, each on a connection that ends with the process.
    pub const CALLER_CHANNEL: &str = "desk";

    /// The chat platform.
    pub fn chat(place: TrialDir) -> Self {
        Self { name: Self::CHAT_CHANNEL, caller_waits: false, trial_dir: place }
    }

    /// The callers.
    pub fn caller(place: TrialDir) -> Self {
        Self { name: Self::CALLER_CHANNEL, caller_waits: true, trial_dir: place }
    }

    fn channel_error(&self, error: &impl ToString) -> ChannelError {
        // The platform may have read the message before the connection broke.
        ChannelError::unknown(self.name(), error.to_string())
    }

    /// Tells the platform something on a connection of its own, and waits until it has it.
    async fn send_report(&self, said: &HostReport) -> std::io::Result<()> {
        let mut stream = UnixStream::connect(self.trial_dir.socket_path()).await?;
        write_report(&mut stream, said).await?;
        BufReader::new(stream).lines().next_line().await?;
        Ok(())
    }
}

async fn write_report(stream: &mut (impl AsyncWrite + Unpin), said: &HostReport) -> std::io::Result<()> {
    let line = format!("{}\n", serde_json::to_string(said)?);
    stream.write_all(line.as_bytes()).await
}

#[async_trait]
impl Channel for PlatformChannel {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { has_waiting_callers: self.caller_waits, ..ChannelCapabilities::default() }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let stream =
            UnixStream::connect(self.trial_dir.socket_path()).await.map_err(|error| self.channel_error(&error))?;
        let (events, mut acknowledgements) = stream.into_split();
        let listens = HostReport::Listens { channel: self.name() };
        write_report(&mut acknowledgements, &listens).await.map_err(|error| self.channel_error(&error))?;
        let acknowledgements = Arc::new(Mutex::new(acknowledgements));
        let mut events = BufReader::new(events).lines();
        while let Some(line) = events.next_line().await.map_err(|error| self.channel_error(&error))? {
            let event: Event = serde_json::from_str(&line).map_err(|error| self.channel_error(&error))?;
            let event_id = event.event_id.clone();
            let submitted = gateway.submit(event.into());
            let acknowledgements = Arc::clone(&acknowledgements);
            tokio::spawn(async move {
                let said = match submitted.await {
                    Ok(()) => HostReport::Accepted { event_id },
                    Err(refusal) => HostReport::Refused { event_id, reason: refusal.to_string() },
                };
                // Lines must not mix, so one is written after the other.
                let mut acknowledgements = acknowledgements.lock().await;
                // A platform that is gone will send the event again.
                let _unheard = write_report(&mut *acknowledgements, &said).await;
            });
        }
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let said = HostReport::Sends { process: self.trial_dir.process, message: message.clone() };
        self.send_report(&said).await.map_err(|error| self.channel_error(&error))
    }

    async fn reply(&self, answer: &ChannelReply) -> Result<(), ChannelError> {
        let said = HostReport::Answers {
            process: self.trial_dir.process,
            event_id: answer.event.event_id.clone(),
            outcome: answer.outcome.clone(),
            texts: answer.messages.iter().map(|message| message.content.text()).collect(),
            duplicate: answer.is_duplicate,
        };
        self.send_report(&said).await.map_err(|error| self.channel_error(&error))
    }
}
