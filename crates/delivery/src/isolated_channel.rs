//! Asking channels to do something, so that one that panics or hangs hurts nobody else.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelError, ChannelErrorKind};
use futures::FutureExt as _;

/// How long a channel may take to show a stream event: the run waits for it.
pub(crate) const STREAM_EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a channel may take to send a message.
pub(crate) const CHANNEL_SEND_TIMEOUT: Duration = Duration::from_mins(1);

/// Stops a channel, as far as it lets itself be stopped.
pub async fn stop_channel(channel: &dyn Channel) {
    if let Err((reason, _)) = call_with_deadline(channel.stop(), STREAM_EVENT_TIMEOUT).await {
        tracing::warn!(channel = %channel.name(), %reason, "a channel did not stop cleanly");
    }
}

/// A channel that panics or hangs fails at what it was asked, and hurts nobody else. What it did before is not known.
pub(crate) async fn call_with_deadline(
    asked: impl Future<Output = Result<(), ChannelError>>,
    deadline: Duration,
) -> Result<(), (String, ChannelErrorKind)> {
    match tokio::time::timeout(deadline, call_catching_panics(asked)).await {
        Ok(done) => done,
        Err(_) => Err(("the channel did not answer in time".to_owned(), ChannelErrorKind::Unknown)),
    }
}

/// A channel that panics fails at what it was asked. Whoever asks bounds how long that may take.
pub(crate) async fn call_catching_panics(
    asked: impl Future<Output = Result<(), ChannelError>>,
) -> Result<(), (String, ChannelErrorKind)> {
    match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(done) => done.map_err(|error| (error.message, error.kind)),
        Err(_) => Err(("the channel crashed".to_owned(), ChannelErrorKind::Unknown)),
    }
}
