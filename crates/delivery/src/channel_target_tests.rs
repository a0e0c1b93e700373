use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan_hooks::{InboundEvent, ReplyOnlyCaller};
use capstan_protocol::{ChannelName, DeliveryTarget, Event, OutboundMessage, StreamEvent};
use capstan_turn::StageEventSink as _;

use super::ChannelTarget;
use crate::ChannelDirectory;

/// Channel that counts the stream events it is shown.
#[derive(Default)]
struct StreamCountingChannel {
    name: &'static str,
    shown: AtomicUsize,
}

#[async_trait]
impl Channel for StreamCountingChannel {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        // An implementation of `on_stream_event` needs no declaration.
        ChannelCapabilities::default()
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn on_stream_event(&self, _: &StreamEvent, _: &InboundEvent) -> Result<(), ChannelError> {
        self.shown.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Numbers of stream events that the channels `phone` and `pager` are shown for one delta of a turn about this event.
async fn shown_events(inbound: &InboundEvent) -> (usize, usize) {
    let channel = |name| Arc::new(StreamCountingChannel { name, ..StreamCountingChannel::default() });
    let (phone, pager) = (channel("phone"), channel("pager"));
    let channels = ChannelDirectory::new(vec![phone.clone(), pager.clone()]);
    let target = ChannelTarget::new(&channels, inbound, None, false);
    target.emit(&StreamEvent::Text { delta: "hi".to_owned() }).await;
    (phone.shown.load(Ordering::SeqCst), pager.shown.load(Ordering::SeqCst))
}

#[tokio::test]
async fn c01_the_channel_of_a_reply_only_caller_is_shown_no_stream_events() {
    let inbound = InboundEvent::new(Event::message("phone", "family", "hi"));
    assert_eq!(shown_events(&inbound).await, (1, 0));
    inbound.extensions().insert(ReplyOnlyCaller);
    assert_eq!(shown_events(&inbound).await, (0, 0));
    let to_pager = DeliveryTarget { output_channel: Some("pager".into()), ..DeliveryTarget::default() };
    assert_eq!(shown_events(&inbound.with_delivery(to_pager)).await, (0, 1), "the pager has another audience");
}
