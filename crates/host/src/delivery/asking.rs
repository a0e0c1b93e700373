//! Asking channels to do something, so that one that panics or hangs hurts nobody else.

use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Channel, ChannelError, Fate};
use capstan_protocol::{Map, StreamEvent, ToolCall};
use futures::FutureExt as _;

use super::parcel::CallerGone;
use crate::services::Services;

/// How long a channel may take to show a stream event: the run waits for it.
pub(crate) const SHOW_DEADLINE: Duration = Duration::from_secs(10);
/// How long a channel may take to send a message.
pub(crate) const SEND_DEADLINE: Duration = Duration::from_mins(1);

/// Shows a stream event to the channel the turn answers on, if there is one that wants to see it.
pub(crate) async fn show(services: &Services, event: &StreamEvent, inbound: &Inbound) {
    let Some(channel) = services.channel(&inbound.channel()) else { return };
    let capabilities = channel.capabilities();
    let extensions = inbound.extensions();
    let is_gone = capabilities.caller_waits && extensions.get::<CallerGone>().is_some();
    if !capabilities.streaming || is_gone || extensions.get::<ShowsNoMore>().is_some() {
        return;
    }
    let event = &*without_opaque(event);
    if let Err((reason, _)) = isolated(channel.on_event(event, inbound), SHOW_DEADLINE).await {
        tracing::warn!(channel = %channel.name(), %reason, "a stream event could not be shown, nor will the rest be");
        inbound.extensions().insert(ShowsNoMore);
    }
}

/// The event without what only a provider understands: signatures and encrypted reasoning, which ride on a call, are for
/// the tape.
fn without_opaque(event: &StreamEvent) -> Cow<'_, StreamEvent> {
    match event {
        StreamEvent::ToolCall { call } if !call.extra.is_empty() => {
            Cow::Owned(StreamEvent::ToolCall { call: ToolCall { extra: Map::new(), ..call.clone() } })
        }
        _ => Cow::Borrowed(event),
    }
}

/// The channel failed to show an event of this turn: it gets the final message, and holds the run up no further.
struct ShowsNoMore;

/// Stops a channel, as far as it lets itself be stopped.
pub(crate) async fn stop(channel: &dyn Channel) {
    if let Err((reason, _)) = isolated(channel.stop(), SHOW_DEADLINE).await {
        tracing::warn!(channel = %channel.name(), %reason, "a channel did not stop cleanly");
    }
}

/// A channel that panics or hangs fails at what it was asked, and hurts nobody else. What it did before is not known.
pub(crate) async fn isolated(
    asked: impl Future<Output = Result<(), ChannelError>>,
    deadline: Duration,
) -> Result<(), (String, Fate)> {
    match tokio::time::timeout(deadline, guarded(asked)).await {
        Ok(done) => done,
        Err(_) => Err(("the channel did not answer in time".to_owned(), Fate::Unknown)),
    }
}

/// A channel that panics fails at what it was asked. Whoever asks bounds how long that may take.
pub(crate) async fn guarded(asked: impl Future<Output = Result<(), ChannelError>>) -> Result<(), (String, Fate)> {
    match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(done) => done.map_err(|error| (error.message, error.fate)),
        Err(_) => Err(("the channel crashed".to_owned(), Fate::Unknown)),
    }
}
