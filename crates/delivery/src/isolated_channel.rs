//! Calls to channels, isolated so that a panic or a hang affects only the call.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelError, ChannelErrorKind};
use futures::FutureExt as _;

/// Timeout for a channel to show a stream event; the run waits for it.
pub(crate) const STREAM_EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a channel to send a message.
pub(crate) const CHANNEL_SEND_TIMEOUT: Duration = Duration::from_mins(1);

/// Stops a channel; a panic or a timeout is only logged.
pub async fn stop_channel(channel: &dyn Channel) {
    if let Err((reason, _)) = call_with_deadline(channel.stop(), STREAM_EVENT_TIMEOUT).await {
        tracing::warn!(channel = %channel.name(), %reason, "a channel did not stop cleanly");
    }
}

/// Calls a channel with a deadline. A panic or a timeout fails the call with an unknown fate.
pub(crate) async fn call_with_deadline(
    call: impl Future<Output = Result<(), ChannelError>>,
    deadline: Duration,
) -> Result<(), (String, ChannelErrorKind)> {
    match tokio::time::timeout(deadline, call_catching_panics(call)).await {
        Ok(result) => result,
        Err(_) => Err(("the channel did not answer in time".to_owned(), ChannelErrorKind::Unknown)),
    }
}

/// Calls a channel without a deadline; the caller bounds the wait. A panic fails the call with an unknown fate.
pub(crate) async fn call_catching_panics(
    call: impl Future<Output = Result<(), ChannelError>>,
) -> Result<(), (String, ChannelErrorKind)> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result.map_err(|error| (error.message, error.kind)),
        Err(_) => Err(("the channel crashed".to_owned(), ChannelErrorKind::Unknown)),
    }
}
