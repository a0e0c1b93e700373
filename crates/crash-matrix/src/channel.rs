//! Channel that connects the host to the test's platform.

use std::sync::Arc;

use async_trait::async_trait;
use capstan::hooks::contracts::{Channel, ChannelCapabilities, ChannelError, ChannelReply, Gateway};
use capstan::protocol::{ChannelName, Event, OutboundMessage};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::HostReport;
use crate::trial_dir::TrialDir;

/// Channel to the platform.
pub struct PlatformChannel {
    name: &'static str,
    has_waiting_callers: bool,
    trial_dir: TrialDir,
}

impl PlatformChannel {
    /// Name of the channel of a chat platform, which resends unacknowledged events.
    pub const CHAT_CHANNEL: &str = "chat";
    /// Name of the channel of waiting callers, each on a connection that ends with the process.
    pub const CALLER_CHANNEL: &str = "caller";

    /// Creates the chat channel.
    pub fn chat(trial_dir: TrialDir) -> Self {
        Self { name: Self::CHAT_CHANNEL, has_waiting_callers: false, trial_dir }
    }

    /// Creates the channel of waiting callers.
    pub fn caller(trial_dir: TrialDir) -> Self {
        Self { name: Self::CALLER_CHANNEL, has_waiting_callers: true, trial_dir }
    }

    fn channel_error(&self, error: &impl ToString) -> ChannelError {
        // The platform may have read the message before the connection broke.
        ChannelError::unknown(self.name(), error.to_string())
    }

    /// Sends a report on a connection of its own and waits for its acknowledgement.
    async fn send_report(&self, report: &HostReport) -> std::io::Result<()> {
        let mut stream = UnixStream::connect(self.trial_dir.socket_path()).await?;
        write_report(&mut stream, report).await?;
        BufReader::new(stream).lines().next_line().await?;
        Ok(())
    }
}

async fn write_report(stream: &mut (impl AsyncWrite + Unpin), report: &HostReport) -> std::io::Result<()> {
    let line = format!("{}\n", serde_json::to_string(report)?);
    stream.write_all(line.as_bytes()).await
}

#[async_trait]
impl Channel for PlatformChannel {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { has_waiting_callers: self.has_waiting_callers, ..ChannelCapabilities::default() }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let stream =
            UnixStream::connect(self.trial_dir.socket_path()).await.map_err(|error| self.channel_error(&error))?;
        let (event_lines, mut report_writer) = stream.into_split();
        let listening = HostReport::Listening { channel: self.name() };
        write_report(&mut report_writer, &listening).await.map_err(|error| self.channel_error(&error))?;
        let report_writer = Arc::new(Mutex::new(report_writer));
        let mut event_lines = BufReader::new(event_lines).lines();
        while let Some(line) = event_lines.next_line().await.map_err(|error| self.channel_error(&error))? {
            let event: Event = serde_json::from_str(&line).map_err(|error| self.channel_error(&error))?;
            let event_id = event.event_id.clone();
            let submitted = gateway.submit(event.into());
            let report_writer = Arc::clone(&report_writer);
            tokio::spawn(async move {
                let report = match submitted.await {
                    Ok(()) => HostReport::Accepted { event_id },
                    Err(refusal) => HostReport::Refused { event_id, reason: refusal.to_string() },
                };
                // The lock keeps lines from mixing.
                let mut report_writer = report_writer.lock().await;
                // If the connection is lost, the platform resends the event.
                let _unsent = write_report(&mut *report_writer, &report).await;
            });
        }
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let report = HostReport::Message { process: self.trial_dir.process, message: message.clone() };
        self.send_report(&report).await.map_err(|error| self.channel_error(&error))
    }

    async fn reply(&self, reply: &ChannelReply) -> Result<(), ChannelError> {
        let report = HostReport::Reply {
            process: self.trial_dir.process,
            event_id: reply.event.event_id.clone(),
            outcome: reply.outcome.clone(),
            texts: reply.messages.iter().map(|message| message.content.text()).collect(),
            duplicate: reply.is_duplicate,
        };
        self.send_report(&report).await.map_err(|error| self.channel_error(&error))
    }
}
