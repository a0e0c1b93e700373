//! Channel that a turn answers on: shows its stream events, and routes its messages.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::Channel;
use capstan_protocol::{Binding, JsonObject, OutboundMessage, StreamEvent, ToolCall};
use capstan_turn::{ReplyTarget, StageEventSink};

use super::channel_directory::ChannelDirectory;
use super::isolated_channel::{STREAM_EVENT_TIMEOUT, call_with_deadline};
use super::route;

/// The place that one turn answers.
pub struct ChannelTarget {
    inbound: InboundEvent,
    /// The binding of the turn, whose delivery policy routes.
    binding: Option<Arc<Binding>>,
    /// The event as the channel is shown it, and the channel; `None` where nothing is shown.
    streaming: Option<(InboundEvent, Arc<dyn Channel>)>,
    /// The caller behind the channel is gone.
    is_caller_gone: bool,
    /// The channel failed to show an event: it gets the final message, and holds the run up no further.
    is_streaming_disabled: AtomicBool,
}

impl ChannelTarget {
    /// Target of a turn about this event, which runs under this binding.
    pub fn new(
        channels: &ChannelDirectory,
        inbound: &InboundEvent,
        binding: Option<Arc<Binding>>,
        is_caller_gone: bool,
    ) -> Self {
        let policy = binding.as_ref().map(|binding| &binding.delivery_policy);
        let streaming = route::streaming_target(inbound, policy).and_then(|shown| {
            let channel = channels.get(&shown.channel()).map(Arc::clone)?;
            Some((shown.into_owned(), channel))
        });
        Self {
            inbound: inbound.clone(),
            streaming,
            binding,
            is_caller_gone,
            is_streaming_disabled: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl StageEventSink for ChannelTarget {
    async fn emit(&self, event: &StreamEvent) {
        let Some((inbound, channel)) = &self.streaming else { return };
        let capabilities = channel.capabilities();
        let is_gone = capabilities.has_waiting_callers && self.is_caller_gone;
        if !capabilities.streaming || is_gone || self.is_streaming_disabled.load(Ordering::Relaxed) {
            return;
        }
        let event = &*strip_opaque_fields(event);
        let shown = call_with_deadline(channel.on_stream_event(event, inbound), STREAM_EVENT_TIMEOUT).await;
        if let Err((reason, _)) = shown {
            tracing::warn!(channel = %channel.name(), %reason, "a stream event could not be shown, nor will the rest be");
            self.is_streaming_disabled.store(true, Ordering::Relaxed);
        }
    }
}

impl ReplyTarget for ChannelTarget {
    fn route_outbound(&self, outbound: OutboundMessage) -> Option<OutboundMessage> {
        route::route_outbound(outbound, &self.inbound, self.binding.as_ref().map(|binding| &binding.delivery_policy))
    }
}

/// Strips the fields that only a provider understands: signatures and encrypted reasoning, which ride on a call, are for
/// the tape.
fn strip_opaque_fields(event: &StreamEvent) -> Cow<'_, StreamEvent> {
    match event {
        StreamEvent::ToolCall { call } if !call.extra.is_empty() => {
            Cow::Owned(StreamEvent::ToolCall { call: ToolCall { extra: JsonObject::new(), ..call.clone() } })
        }
        _ => Cow::Borrowed(event),
    }
}
