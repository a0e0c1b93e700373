//! Channel of a plugin process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capstan_hooks::contracts::{
    Channel, ChannelCapabilities, ChannelError, ChannelErrorKind, DebounceOptions, Gateway, IntakeError, IntakeOptions,
};
use capstan_hooks::{InboundEvent, RawPayload};
use capstan_protocol::plugin_protocol::{
    PluginChannelError, PluginChannelErrorKind, PluginChannelEvent, PluginChannelManifest, PluginChannelSend,
    PluginChannelStart, PluginChannelStop, PluginIntakeError, method,
};
use capstan_protocol::{ChannelName, ErrorCode, Event, JsonObject, OutboundMessage};
use capstan_rpc::{RpcCallError, RpcError, error_code};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::PluginProcess;
use crate::connection::EventHandler;
use crate::error::call_message;

/// Channel of a plugin process.
pub(crate) struct ChannelProxy {
    process: PluginProcess,
    channel: PluginChannelManifest,
    stop_token: CancellationToken,
}

impl ChannelProxy {
    pub(crate) fn new(process: PluginProcess, channel: &PluginChannelManifest) -> Self {
        Self { process, channel: channel.clone(), stop_token: CancellationToken::new() }
    }

    fn error(&self, kind: ChannelErrorKind, message: impl Into<String>) -> ChannelError {
        ChannelError { channel: self.name(), message: message.into(), kind }
    }

    /// Starts the channel at the plugin and serves it until it ends. `Ok` if it ended as intended.
    async fn listen(&self, gateway: &Arc<dyn Gateway>) -> Result<(), String> {
        let (connection, peer) = self.process.connect().await.map_err(|error| error.to_string())?;
        let options = self.process.options();
        let handler = event_handler(self.name(), Arc::clone(gateway));
        let credit = options.channel_credit;
        let (_registration, mut ended) = connection.register_channel(&self.channel.name, credit, handler);
        let params = PluginChannelStart { channel: self.channel.name.clone(), credit };
        let started = peer.request::<JsonObject>(method::CHANNEL_START, &params, Some(options.start_timeout)).await;
        started.map_err(|error| format!("channel.start: {}", call_message(&error)))?;
        tokio::select! {
            end = ended.recv() => match end.and_then(|end| end.error) {
                Some(error) => Err(capstan_protocol::escape_line(&error)),
                None => Ok(()),
            },
            reason = peer.closed() => Err(reason.to_string()),
            () = self.stop_token.cancelled() => {
                connection.set_channel_stopping(&self.channel.name);
                let deadline = options.shutdown_timeout;
                let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
                let params = PluginChannelStop { channel: self.channel.name.clone(), deadline_ms };
                let stopped = peer.request::<JsonObject>(method::CHANNEL_STOP, &params, Some(deadline)).await;
                if let Err(error) = stopped {
                    let (plugin, channel) = (&connection.plugin, &self.channel.name);
                    tracing::warn!(plugin, channel, %error, "the channel did not stop in time");
                }
                Ok(())
            }
        }
    }
}

/// Accepts the events of a channel, in the order of the calls.
fn event_handler(channel: ChannelName, gateway: Arc<dyn Gateway>) -> EventHandler {
    Arc::new(move |event: PluginChannelEvent| -> BoxFuture<'static, Result<(), RpcError>> {
        let invalid = |message: String| {
            let data = PluginIntakeError { code: ErrorCode::InputInvalid.id().to_owned(), message, retryable: false };
            let error = RpcError::new(error_code::FAILED, data.message.clone()).with_data(&data);
            futures::future::ready(Err(error)).boxed()
        };
        let inbound = match Event::from_envelope(event.event) {
            Ok(event) if event.source != channel => {
                return invalid(format!("source must be {channel}, the name of the channel"));
            }
            Ok(event) => InboundEvent::new(event),
            Err(error) => return invalid(error.to_string()),
        };
        if let Some(raw) = event.raw {
            match BASE64.decode(raw) {
                Ok(raw) => inbound.extensions().insert(RawPayload(raw)),
                Err(error) => return invalid(format!("raw is not base64: {error}")),
            }
        }
        let accepting = gateway.submit(inbound);
        async move { accepting.await.map_err(|error| intake_error(&error)) }.boxed()
    })
}

fn intake_error(error: &IntakeError) -> RpcError {
    // Only an event that is wrong itself is refused for good.
    let is_permanent = matches!(error.code.exit_class(), capstan_protocol::ExitClass::Usage);
    let data = PluginIntakeError {
        code: error.code.id().to_owned(),
        message: error.message.clone(),
        retryable: !is_permanent,
    };
    RpcError::new(error_code::FAILED, error.message.clone()).with_data(&data)
}

#[async_trait]
impl Channel for ChannelProxy {
    fn name(&self) -> ChannelName {
        self.channel.name.as_str().into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        let media = self.channel.capabilities.media;
        ChannelCapabilities { streaming: false, has_waiting_callers: false, media }
    }

    fn intake_options(&self) -> IntakeOptions {
        let debounce = self.channel.intake.debounce.as_ref().map(|debounce| DebounceOptions {
            quiet_period: Duration::from_millis(debounce.quiet_ms),
            max_wait: Duration::from_millis(debounce.max_wait_ms),
            active_window: debounce.active_window_ms.map(Duration::from_millis),
        });
        IntakeOptions { admission: self.channel.intake.admission, debounce }
    }

    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        let options = self.process.options();
        let mut pause = options.first_backoff;
        loop {
            let began = tokio::time::Instant::now();
            match self.listen(&gateway).await {
                Ok(()) => return Ok(()),
                Err(_) if self.stop_token.is_cancelled() => return Ok(()),
                Err(reason) => {
                    let (plugin, channel) = (&self.process.manifest().id, &self.channel.name);
                    tracing::error!(plugin, channel, reason, "a channel failed and is started again");
                }
            }
            if began.elapsed() >= options.stable_after {
                pause = options.first_backoff;
            }
            if self.stop_token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return Ok(());
            }
            pause = (pause * 2).min(options.max_backoff);
        }
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.stop_token.cancel();
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        let connected = self.process.connect().await;
        let (_, peer) = connected.map_err(|error| self.error(ChannelErrorKind::NotSent, error.to_string()))?;
        let deadline = self.process.options().send_timeout;
        let params = PluginChannelSend {
            channel: self.channel.name.clone(),
            message: message.clone(),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        };
        let sent = peer.request::<JsonObject>(method::CHANNEL_SEND, &params, Some(deadline)).await;
        sent.map(drop).map_err(|error| self.error(error_kind(&error), call_message(&error)))
    }
}

/// Known effect of a failed `channel.send`.
fn error_kind(error: &RpcCallError) -> ChannelErrorKind {
    match error {
        RpcCallError::TooLarge => ChannelErrorKind::Permanent,
        RpcCallError::Remote(RpcError { code, data: None, .. }) => match *code {
            error_code::METHOD_NOT_FOUND
            | error_code::INVALID_PARAMS
            | error_code::INVALID_REQUEST
            | error_code::OVERLOADED
            | error_code::NOT_READY => ChannelErrorKind::NotSent,
            _ => ChannelErrorKind::Unknown,
        },
        RpcCallError::Remote(RpcError { data: Some(data), .. }) => {
            match serde_json::from_value::<PluginChannelError>(data.clone()) {
                Ok(PluginChannelError { kind: PluginChannelErrorKind::NotSent }) => ChannelErrorKind::NotSent,
                Ok(PluginChannelError { kind: PluginChannelErrorKind::Permanent }) => ChannelErrorKind::Permanent,
                _ => ChannelErrorKind::Unknown,
            }
        }
        RpcCallError::Malformed { .. } | RpcCallError::DeadlineExceeded | RpcCallError::Closed(_) => {
            ChannelErrorKind::Unknown
        }
    }
}
