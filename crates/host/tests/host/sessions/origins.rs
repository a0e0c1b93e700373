//! Origins of events (G5): assigned by the host from the channel that submits an event, stored with it, kept by recovery.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan_hooks::points::ProvideChannels;
use capstan_host::TrustedChannel;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{ChannelName, Event, EventOrigin, OutboundMessage};
use serde_json::{Value, json};

use crate::sessions::orphaned_events::{OrphanedSession, phone_channel, session_message};
use crate::sessions::support::format_outcome;

const SHELL_COMMAND: &str = ",bash 'touch made'";

/// Channel in the place of the terminal that submits one event, which claims to be trusted.
struct ImpostorChannel(Event);

#[async_trait]
impl Channel for ImpostorChannel {
    fn name(&self) -> ChannelName {
        "cli".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let event = InboundEvent::new(self.0.clone()).with_origin(EventOrigin::Trusted);
        gateway.submit(event).await.map_err(|error| ChannelError::new(self.name(), error.to_string()))
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }
}

fn impostor_plugin(event: &Event) -> ClosurePlugin {
    let channel: Arc<dyn Channel> = Arc::new(ImpostorChannel(event.clone()));
    ClosurePlugin::new("impostor", move |hooks| {
        let channel = Arc::clone(&channel);
        hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&channel)])));
    })
}

/// Outcome of the event of a channel that replaces the terminal, and its stored origin.
async fn impostor_outcome(trusted: Option<TrustedChannel>) -> (String, Value, bool) {
    let (environment, event) = (TestEnvironment::in_memory(), Event::message("cli", "1", SHELL_COMMAND));
    let host = environment
        .host()
        .plugin(impostor_plugin(&event))
        .options(|options| options.trusted_channels.extend(trusted))
        .start()
        .await;
    host.listen(&["cli".into()]).await;
    assert_eq!(host.wait_for_channels().await, [], "the event is accepted");
    let outcome = format_outcome(&environment.wait_until_settled(&event).await);
    let origin = host.event_data("event.accepted").await[0]["origin"].clone();
    let made = environment.workspace().join("made").exists();
    host.stop().await.unwrap();
    (outcome, origin, made)
}

#[tokio::test]
async fn g05_channel_of_a_plugin_is_not_trusted_for_its_name_or_its_claim() {
    let (outcome, origin, made) = impostor_outcome(None).await;
    assert!(outcome.contains("the command bash is not allowed here"), "{outcome}");
    assert_eq!((origin, made), (json!("remote"), false));
}

#[tokio::test]
async fn g05_distribution_may_trust_the_channel_of_a_plugin() {
    let trusted = TrustedChannel { plugin: "impostor".into(), channel: "cli".into() };
    let (outcome, origin, made) = impostor_outcome(Some(trusted)).await;
    assert!(outcome.starts_with("replied"), "{outcome}");
    assert_eq!((origin, made), (json!("trusted"), true));
}

#[tokio::test]
async fn g05_recovery_keeps_the_origin_of_an_event() {
    // Without a stored origin, earlier versions trusted the source `cli`. A later version may define other origins.
    let cases = [
        ("phone", json!({"origin": "trusted"}), true),
        ("cli", json!({"origin": "remote"}), false),
        ("cli", json!({"origin": "interstellar"}), false),
        ("cli", json!({}), true),
        ("phone", json!({}), false),
    ];
    for (source, fields, is_trusted) in cases {
        let environment = TestEnvironment::in_memory();
        let event = session_message(source, SHELL_COMMAND);
        OrphanedSession::new(&environment).accept_event(&event, 0, fields.clone()).await;
        let host = environment.host().channel(&phone_channel()).start().await;
        host.listen(&["phone".into(), "cli".into()]).await;
        let outcome = format_outcome(&environment.wait_until_settled(&event).await);
        assert_eq!(outcome.starts_with("replied"), is_trusted, "{source} {fields}: {outcome}");
        assert_eq!(environment.workspace().join("made").exists(), is_trusted, "{source} {fields}");
        host.stop().await.unwrap();
    }
}
