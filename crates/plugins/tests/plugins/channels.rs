//! Channels of a plugin process.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelErrorKind, Gateway, IntakeError};
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookRuntime, InboundEvent};
use capstan_protocol::{AdmissionMode, ErrorCode, Event, OutboundMessage};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::support::{ScriptedPlugin, stop};

const CHANNEL: &str = r#"
[[channels]]
name = "station"
capabilities = {media = true}
intake = {admission = "collect", debounce = {quiet_ms = 500, max_wait_ms = 3000}}
"#;

/// Gateway that accepts every event, or none.
struct TestGateway {
    submitted: mpsc::UnboundedSender<InboundEvent>,
    accepts: bool,
}

impl Gateway for TestGateway {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        self.submitted.send(event).unwrap();
        let refusal = IntakeError { code: ErrorCode::StoreBusy, message: "the store is busy".to_owned() };
        futures::future::ready(if self.accepts { Ok(()) } else { Err(refusal) }).boxed()
    }
}

fn channel(hooks: &HookRuntime) -> Arc<dyn Channel> {
    hooks.collect_provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string()).remove(0)
}

fn gateway(accepts: bool) -> (Arc<TestGateway>, mpsc::UnboundedReceiver<InboundEvent>) {
    let (submitted, events) = mpsc::unbounded_channel();
    (Arc::new(TestGateway { submitted, accepts }), events)
}

fn outbound(text: &str) -> OutboundMessage {
    OutboundMessage::reply_to(&Event::message("station", "c", "x"), "s".into(), text)
}

/// Sends until the plugin has got the answer to its event.
async fn wait_until_accepted(channel: &Arc<dyn Channel>) {
    while channel.send(&outbound("accepted?")).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn k06_events_of_a_channel_are_accepted_before_they_are_answered() {
    let plugin = ScriptedPlugin::new("echo", CHANNEL);
    let hooks = plugin.register();
    let channel = channel(&hooks);
    assert!(channel.capabilities().media && !channel.capabilities().streaming);
    assert_eq!(channel.intake_options().admission, Some(AdmissionMode::Collect));
    assert_eq!(channel.intake_options().debounce.unwrap().quiet_period, Duration::from_millis(500));
    let (gateway, mut events) = gateway(true);
    let listening = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move { channel.start(gateway).await }
    });
    let event = events.recv().await.unwrap();
    assert_eq!((event.source.as_str(), event.event_id.as_str()), ("station", "e1"));
    assert_eq!(event.input.plain_text(), "from the platform");
    wait_until_accepted(&channel).await;
    channel.stop().await.unwrap();
    listening.await.unwrap().unwrap();
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_an_event_in_the_name_of_another_channel_is_refused() {
    let plugin = ScriptedPlugin::new("foreign_source", CHANNEL);
    let hooks = plugin.register();
    let channel = channel(&hooks);
    let (gateway, mut events) = gateway(true);
    let start = channel.start(gateway);
    let check = async {
        // Asked after the answer to the event, as the channel starts with it.
        while channel.send(&outbound("x")).await.is_err() {}
        channel.stop().await.unwrap();
    };
    let (ended, ()) = tokio::join!(start, check);
    ended.unwrap();
    assert!(events.try_recv().is_err(), "nothing was submitted");
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_the_kind_of_a_failed_message_decides_about_the_retry() {
    let plugin = ScriptedPlugin::new("echo", CHANNEL);
    let plugin = plugin.with_options(|options| options.first_backoff = Duration::from_hours(1));
    let hooks = plugin.register();
    let channel = channel(&hooks);
    channel.send(&outbound("fine")).await.unwrap();
    let cases = [
        ("refuse", ChannelErrorKind::Permanent),
        ("later", ChannelErrorKind::NotSent),
        ("odd", ChannelErrorKind::Unknown),
        ("exit", ChannelErrorKind::Unknown),
        ("not connected", ChannelErrorKind::NotSent),
    ];
    for (text, kind) in cases {
        assert_eq!(channel.send(&outbound(text)).await.unwrap_err().kind, kind, "{text}");
    }
}

#[tokio::test]
async fn k06_a_channel_that_ended_is_started_again() {
    let plugin = ScriptedPlugin::new("ends", CHANNEL);
    let plugin = plugin.with_options(|options| options.first_backoff = Duration::from_millis(1));
    let hooks = plugin.register();
    let channel = channel(&hooks);
    let (gateway, mut events) = gateway(false);
    let listening = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move { channel.start(gateway).await }
    });
    for _ in 0..3 {
        events.recv().await.unwrap();
    }
    channel.stop().await.unwrap();
    listening.await.unwrap().unwrap();
    stop(&hooks).await;
}
