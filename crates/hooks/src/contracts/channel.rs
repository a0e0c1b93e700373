//! Channels: where people are.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_protocol::{ChannelName, Outbound, StreamEvent};

use crate::{BoxError, Inbound};

/// A way in and out of the host.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> ChannelName;

    /// What it can do.
    fn capabilities(&self) -> ChannelCapabilities;

    /// Begins to listen and hands what it hears to the gateway, until it is stopped. One that only sends returns at once.
    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError>;

    /// Stops listening.
    async fn stop(&self) -> Result<(), ChannelError>;

    /// Sends a final message.
    async fn send(&self, message: &Outbound) -> Result<(), ChannelError>;

    /// Is told what happens while the model stage is still running. `message` is the inbound the turn serves.
    async fn on_event(&self, event: &StreamEvent, message: &Inbound) -> Result<(), ChannelError> {
        let _ = (event, message);
        Ok(())
    }
}

/// What a channel can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// It shows stream events; others are only sent final messages.
    pub streaming: bool,
}

/// Where a channel hands what it hears.
#[async_trait]
pub trait Gateway: Send + Sync + 'static {
    /// Takes an event in. When it returns, the event is durable or was refused.
    async fn submit(&self, event: Inbound) -> Result<(), BoxError>;
}

/// Why a channel could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel}: {message}")]
pub struct ChannelError {
    /// The channel.
    pub channel: ChannelName,
    /// What happened.
    pub message: String,
}
