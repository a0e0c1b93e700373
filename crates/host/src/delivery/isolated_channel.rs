//! Asking channels to do something, so that one that panics or hangs hurts nobody else.

use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel, ChannelError, ChannelErrorKind};
use capstan_protocol::{JsonObject, StreamEvent, ToolCall};
use futures::FutureExt as _;

use super::event_delivery::DisconnectedCaller;
use crate::services::Services;

/// How long a channel may take to show a stream event: the run waits for it.
pub(crate) const STREAM_EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a channel may take to send a message.
pub(crate) const CHANNEL_SEND_TIMEOUT: Duration = Duration::from_mins(1);

/// Shows a stream event to the channel the turn answers on, if there is one that wants to see it.
pub(crate) async fn show_stream_event(services: &Services, event: &StreamEvent, inbound: &InboundEvent) {
    let Some(channel) = services.channel(&inbound.channel()) else { return };
    let capabilities = channel.capabilities();
    let extensions = inbound.extensions();
    let is_gone = capabilities.has_waiting_callers && extensions.get::<DisconnectedCaller>().is_some();
    if !capabilities.streaming || is_gone || extensions.get::<StreamingDisabled>().is_some() {
        return;
    }
    let event = &*strip_opaque_fields(event);
    if let Err((reason, _)) = call_with_deadline(channel.on_stream_event(event, inbound), STREAM_EVENT_TIMEOUT).await {
        tracing::warn!(channel = %channel.name(), %reason, "a stream event could not be shown, nor will the rest be");
        inbound.extensions().insert(StreamingDisabled);
    }
}

/// The event without what only a provider understands: signatures and encrypted reasoning, which ride on a call, are for
/// the tape.
fn strip_opaque_fields(event: &StreamEvent) -> Cow<'_, StreamEvent> {
    match event {
        StreamEvent::ToolCall { call } if !call.extra.is_empty() => {
            Cow::Owned(StreamEvent::ToolCall { call: ToolCall { extra: JsonObject::new(), ..call.clone() } })
        }
        _ => Cow::Borrowed(event),
    }
}

/// The channel failed to show an event of this turn: it gets the final message, and holds the run up no further.
struct StreamingDisabled;

/// Stops a channel, as far as it lets itself be stopped.
pub(crate) async fn stop_channel(channel: &dyn Channel) {
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
