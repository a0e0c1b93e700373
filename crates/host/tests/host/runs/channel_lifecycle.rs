//! Channels that listen and channels that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookRegistrar, InboundEvent};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{ChannelName, Event, OutboundMessage, Outcome, StreamEvent};
use tokio::sync::{Notify, mpsc};

/// Submits one message when it starts, and forwards its outbound messages to the test.
struct PipeChannel {
    sent: mpsc::UnboundedSender<OutboundMessage>,
    stopped: Notify,
}

#[async_trait]
impl Channel for PipeChannel {
    fn name(&self) -> ChannelName {
        "pipe".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        gateway.submit(Event::message("pipe", "1", "hello").into()).await.unwrap();
        self.stopped.notified().await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.stopped.notify_one();
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        self.sent.send(message.clone()).unwrap();
        Ok(())
    }
}

/// Fails in every call: refuses to start, hangs on stream events, panics in `send`.
struct BrokenChannel;

#[async_trait]
impl Channel for BrokenChannel {
    fn name(&self) -> ChannelName {
        "broken".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities { streaming: true, ..ChannelCapabilities::default() }
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Err(ChannelError::new(self.name(), "no network"))
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        std::future::pending().await
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        panic!("broken")
    }

    async fn on_stream_event(&self, _: &StreamEvent, _: &InboundEvent) -> Result<(), ChannelError> {
        std::future::pending().await
    }
}

fn channels_plugin(channels: Vec<Arc<dyn Channel>>) -> impl capstan_hooks::Plugin {
    ClosurePlugin::new("channels", move |hooks: &mut HookRegistrar| {
        let channels = channels.clone();
        hooks.on_sync(ProvideChannels, move || Ok(Some(channels.clone())));
    })
}

#[tokio::test(start_paused = true)]
async fn c01_a_listening_channel_gets_its_reply_despite_a_failing_channel() {
    let (sent, mut replies) = mpsc::unbounded_channel();
    let pipe = Arc::new(PipeChannel { sent, stopped: Notify::new() });
    let conversation = TestHost::builder().plugin(channels_plugin(vec![Arc::new(BrokenChannel), pipe])).start().await;
    conversation.listen(&["broken".into(), "pipe".into()]).await;
    let reply = replies.recv().await.unwrap();
    assert_eq!((reply.channel.as_str(), reply.chat_id.as_str()), ("pipe", "1"));
    assert!(reply.content.text().ends_with("You said: hello"));
    conversation.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_a_channel_that_hangs_and_panics_costs_the_turn_one_deadline() {
    let conversation = TestHost::builder().plugin(channels_plugin(vec![Arc::new(BrokenChannel)])).start().await;
    let started = tokio::time::Instant::now();
    let served = conversation.serve(Event::message("broken", "1", "many words to be streamed")).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })));
    // On a paused clock: after the first stream event that times out, no further one is awaited.
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}

/// Counts its starts, and fails at once or listens until it is stopped.
struct CountingChannel {
    name: &'static str,
    fails_on_start: bool,
    starts: AtomicUsize,
    stopped: Notify,
}

impl CountingChannel {
    fn new(name: &'static str, fails: bool) -> Arc<Self> {
        Arc::new(Self { name, fails_on_start: fails, starts: AtomicUsize::new(0), stopped: Notify::new() })
    }

    fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Channel for CountingChannel {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        if self.fails_on_start {
            return Err(ChannelError::new(self.name(), "no network"));
        }
        self.stopped.notified().await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.stopped.notify_one();
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn c02_listening_again_restarts_failed_channels_only() {
    let (good, bad) = (CountingChannel::new("good", false), CountingChannel::new("bad", true));
    let conversation = TestHost::builder().plugin(channels_plugin(vec![good.clone(), bad.clone()])).start().await;
    for times in 1..=3 {
        conversation.listen(&["good".into(), "bad".into()]).await;
        // The paused clock advances only when every task waits.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!((good.starts(), bad.starts()), (1, times));
    }
    conversation.stop().await.unwrap();
}
