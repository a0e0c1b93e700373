//! Reply target of a turn: streams its events to a channel and routes its messages.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_hooks::contracts::Channel;
use capstan_hooks::{InboundEvent, ReplyOnlyCaller};
use capstan_protocol::{Binding, JsonObject, OutboundMessage, StreamEvent, ToolCall};
use capstan_turn::{ReplyTarget, StageEventSink};

use super::channel_directory::ChannelDirectory;
use super::isolated_channel::{STREAM_EVENT_TIMEOUT, call_with_deadline};
use super::route;

/// Name of the channel of the operator's terminal.
const OPERATOR_CHANNEL: &str = "cli";

/// Reply target of one turn.
pub struct ChannelTarget {
    inbound: InboundEvent,
    /// The binding of the turn, whose delivery policy decides the route.
    binding: Option<Arc<Binding>>,
    /// The event as the channel sees it, and the channel; `None` if the turn is not streamed.
    streaming: Option<(InboundEvent, Arc<dyn Channel>)>,
    /// The waiting caller has disconnected.
    is_caller_disconnected: bool,
    /// The channel failed to show an event: it gets only the final message and no longer delays the run.
    is_streaming_disabled: AtomicBool,
}

impl ChannelTarget {
    /// Target of a turn about this event, which runs under this binding.
    pub fn new(
        channels: &ChannelDirectory,
        inbound: &InboundEvent,
        binding: Option<Arc<Binding>>,
        is_caller_disconnected: bool,
    ) -> Self {
        let policy = binding.as_ref().map(|binding| &binding.delivery_policy);
        // On another channel than that of the caller, the stream has another audience.
        let is_reply_only = |target: &InboundEvent| {
            target.channel() == target.source && target.extensions().get::<ReplyOnlyCaller>().is_some()
        };
        let target = route::streaming_target(inbound, policy).filter(|target| !is_reply_only(target));
        let streaming = target.and_then(|inbound| {
            let channel = channels.get(&inbound.channel()).map(Arc::clone)?;
            Some((inbound.into_owned(), channel))
        });
        Self {
            inbound: inbound.clone(),
            streaming,
            binding,
            is_caller_disconnected,
            is_streaming_disabled: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl StageEventSink for ChannelTarget {
    async fn emit(&self, event: &StreamEvent) {
        let Some((inbound, channel)) = &self.streaming else { return };
        let capabilities = channel.capabilities();
        let is_gone = capabilities.has_waiting_callers && self.is_caller_disconnected;
        if !capabilities.streaming || is_gone || self.is_streaming_disabled.load(Ordering::Relaxed) {
            return;
        }
        // The operator's terminal shows the full text of a failure; a chat may be public.
        let public = (channel.name().as_str() != OPERATOR_CHANNEL).then(|| event.to_public());
        let event = &*strip_opaque_fields(public.as_ref().unwrap_or(event));
        let result = call_with_deadline(channel.on_stream_event(event, inbound), STREAM_EVENT_TIMEOUT).await;
        if let Err((reason, _)) = result {
            tracing::warn!(channel = %channel.name(), %reason, "a stream event failed; streaming is off for this turn");
            self.is_streaming_disabled.store(true, Ordering::Relaxed);
        }
    }
}

impl ReplyTarget for ChannelTarget {
    fn route_outbound(&self, outbound: OutboundMessage) -> Option<OutboundMessage> {
        route::route_outbound(outbound, &self.inbound, self.binding.as_ref().map(|binding| &binding.delivery_policy))
    }
}

/// Strips the fields that only a provider understands: signatures and encrypted reasoning of a call are for the tape
/// only.
fn strip_opaque_fields(event: &StreamEvent) -> Cow<'_, StreamEvent> {
    match event {
        StreamEvent::ToolCall { call } if !call.extra.is_empty() => {
            Cow::Owned(StreamEvent::ToolCall { call: ToolCall { extra: JsonObject::new(), ..call.clone() } })
        }
        _ => Cow::Borrowed(event),
    }
}

#[cfg(test)]
#[path = "channel_target_tests.rs"]
mod tests;
