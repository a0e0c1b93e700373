//! Connection to a running plugin: its peer, and the runs, calls and channels that it serves.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use capstan_hooks::contracts::RunApi;
use capstan_protocol::plugin_protocol::{
    PluginChannelEnded, PluginChannelEvent, PluginLog, PluginProgress, PluginRunCall, channel_stream_name, method,
};
use capstan_protocol::{JsonObject, RunId, escape_line};
use capstan_rpc::{
    CreditAccount, IncomingNotification, IncomingRequest, RequestFuture, RpcError, RpcPeer, RpcService, StreamDelivery,
    error_code,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::call_api::{may_nest, raw, serve_run_call};
use crate::rate_limit::{MessageLimiter, MessageVerdict};

/// Phase of a connection, for the requests of the plugin.
const PHASE_STARTING: u64 = 0;
const PHASE_READY: u64 = 1;
const PHASE_DRAINING: u64 = 2;

/// Serves an event of a channel: begins at once, ends when the event is durable or was rejected.
pub(crate) type EventHandler =
    Arc<dyn Fn(PluginChannelEvent) -> BoxFuture<'static, Result<(), RpcError>> + Send + Sync>;

/// Channel that is started on a connection.
struct OpenChannel {
    handler: EventHandler,
    credit: Arc<Mutex<CreditAccount>>,
    is_stopping: bool,
    ended: mpsc::UnboundedSender<PluginChannelEnded>,
}

/// Runs, calls and channels of a connection.
#[derive(Default)]
struct ConnectionTables {
    runs: HashMap<RunId, RunApi>,
    calls: HashMap<String, RunApi>,
    channels: HashMap<String, OpenChannel>,
}

/// Connection to a running plugin.
pub(crate) struct PluginConnection {
    pub(crate) plugin: String,
    tables: Mutex<ConnectionTables>,
    phase: AtomicU64,
    next_call: AtomicU64,
    log_limiter: MessageLimiter,
    anomaly_limiter: MessageLimiter,
    /// Reason of the end, which is known when the process has ended.
    end_reason: OnceLock<String>,
    end_token: CancellationToken,
}

impl PluginConnection {
    pub(crate) fn new(plugin: &str, log_messages_per_second: u32) -> Arc<Self> {
        Arc::new(Self {
            plugin: plugin.to_owned(),
            tables: Mutex::default(),
            phase: AtomicU64::new(PHASE_STARTING),
            next_call: AtomicU64::new(0),
            log_limiter: MessageLimiter::new(log_messages_per_second),
            anomaly_limiter: MessageLimiter::new(10),
            end_reason: OnceLock::new(),
            end_token: CancellationToken::new(),
        })
    }

    /// Service of the host's side.
    pub(crate) fn service(self: &Arc<Self>, peer: &RpcPeer) -> Arc<dyn RpcService> {
        Arc::new(HostService { connection: Arc::clone(self), peer: peer.clone() })
    }

    pub(crate) fn set_ready(&self) {
        self.phase.store(PHASE_READY, Ordering::Release);
    }

    pub(crate) fn set_draining(&self) {
        self.phase.store(PHASE_DRAINING, Ordering::Release);
    }

    /// Records the end of the connection. The first reason counts.
    pub(crate) fn set_ended(&self, reason: &str) {
        let _is_first = self.end_reason.set(reason.to_owned());
        self.end_token.cancel();
    }

    /// Waits for the reason of the end, after the end of the input.
    pub(crate) async fn ended(&self) -> String {
        self.end_token.cancelled().await;
        self.end_reason.get().cloned().unwrap_or_default()
    }

    /// Registers a run until the registration is dropped.
    pub(crate) fn register_run(self: &Arc<Self>, run_id: RunId, api: RunApi) -> RunRegistration {
        self.tables().runs.insert(run_id.clone(), api);
        RunRegistration { connection: Arc::clone(self), run_id }
    }

    /// Registers a call with its authority until the registration is dropped.
    pub(crate) fn register_call(self: &Arc<Self>, kind: &str, api: Option<RunApi>) -> CallRegistration {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed) + 1;
        let call_id = format!("{kind}-{number}");
        if let Some(api) = api {
            self.tables().calls.insert(call_id.clone(), api);
        }
        CallRegistration { connection: Arc::clone(self), call_id }
    }

    /// Registers a channel. The receiver gets its end.
    pub(crate) fn register_channel(
        self: &Arc<Self>,
        name: &str,
        credit: u32,
        handler: EventHandler,
    ) -> (ChannelRegistration, mpsc::UnboundedReceiver<PluginChannelEnded>) {
        let (ended, receiver) = mpsc::unbounded_channel();
        let credit = Arc::new(Mutex::new(CreditAccount::new(credit)));
        let channel = OpenChannel { handler, credit, is_stopping: false, ended };
        self.tables().channels.insert(name.to_owned(), channel);
        (ChannelRegistration { connection: Arc::clone(self), name: name.to_owned() }, receiver)
    }

    /// Refuses further events of a channel.
    pub(crate) fn set_channel_stopping(&self, name: &str) {
        if let Some(channel) = self.tables().channels.get_mut(name) {
            channel.is_stopping = true;
        }
    }

    fn tables(&self) -> MutexGuard<'_, ConnectionTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_anomaly(&self, anomaly: &str) {
        if let MessageVerdict::Log { dropped } = self.anomaly_limiter.admit() {
            tracing::warn!(plugin = self.plugin, dropped, "{anomaly}");
        }
    }
}

/// A run that the plugin serves.
pub(crate) struct RunRegistration {
    connection: Arc<PluginConnection>,
    run_id: RunId,
}

impl Drop for RunRegistration {
    fn drop(&mut self) {
        self.connection.tables().runs.remove(&self.run_id);
    }
}

/// A call that the plugin serves.
pub(crate) struct CallRegistration {
    connection: Arc<PluginConnection>,
    pub(crate) call_id: String,
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        self.connection.tables().calls.remove(&self.call_id);
    }
}

/// A channel that the plugin serves.
pub(crate) struct ChannelRegistration {
    connection: Arc<PluginConnection>,
    name: String,
}

impl Drop for ChannelRegistration {
    fn drop(&mut self) {
        self.connection.tables().channels.remove(&self.name);
    }
}

/// Serves the requests of a plugin.
struct HostService {
    connection: Arc<PluginConnection>,
    peer: RpcPeer,
}

#[derive(Deserialize)]
struct RunResultParams {
    run_id: RunId,
    result: Box<RawValue>,
}

#[derive(Deserialize)]
struct MethodField<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
}

fn refuse(error: RpcError) -> RequestFuture {
    Box::pin(async { Err(error) })
}

impl RpcService for HostService {
    fn serve(&self, request: IncomingRequest) -> RequestFuture {
        let phase = self.connection.phase.load(Ordering::Acquire);
        match request.method.as_str() {
            method::PING => Box::pin(async { raw(&JsonObject::new()) }),
            _ if phase == PHASE_STARTING => refuse(RpcError::new(error_code::NOT_READY, "initialize is not answered")),
            method::RUN_CALL => self.serve_run_call(&request),
            _ if phase == PHASE_DRAINING => refuse(RpcError::new(error_code::NOT_READY, "the connection is closing")),
            method::CHANNEL_EVENT => self.serve_channel_event(&request),
            unknown => refuse(RpcError::method_not_found(unknown)),
        }
    }

    fn notify(&self, notification: IncomingNotification) {
        if let Err(error) = self.handle_notification(&notification) {
            let method: String = notification.method.chars().take(64).collect();
            self.connection.report_anomaly(&format!("dropped a notification {method:?}: {error}"));
        }
    }

    fn may_nest(&self, request: &IncomingRequest) -> bool {
        request.method == method::RUN_CALL
            && serde_json::from_str::<MethodField<'_>>(request.params.get()).is_ok_and(|it| may_nest(&it.method))
    }

    fn report(&self, anomaly: &str) {
        self.connection.report_anomaly(anomaly);
    }
}

impl HostService {
    fn serve_run_call(&self, request: &IncomingRequest) -> RequestFuture {
        let call: PluginRunCall = match request.parse() {
            Ok(call) => call,
            Err(error) => return refuse(error),
        };
        let api = match (&call.run_id, &call.call_id) {
            (Some(run_id), None) => self.connection.tables().runs.get(run_id).cloned(),
            (None, Some(call_id)) => self.connection.tables().calls.get(call_id).cloned(),
            _ => return refuse(RpcError::invalid_params("exactly one of run_id and call_id is needed")),
        };
        match api {
            Some(api) => serve_run_call(self.peer.clone(), api, call).boxed(),
            None => refuse(RpcError::new(error_code::UNKNOWN_RUN, "no such run or call is being served")),
        }
    }

    fn serve_channel_event(&self, request: &IncomingRequest) -> RequestFuture {
        let event: PluginChannelEvent = match request.parse() {
            Ok(event) => event,
            Err(error) => return refuse(error),
        };
        let (handler, credit) = match self.connection.tables().channels.get(&event.channel) {
            Some(channel) if channel.is_stopping => {
                return refuse(RpcError::new(error_code::NOT_READY, "the channel is stopping"));
            }
            Some(channel) => (Arc::clone(&channel.handler), Arc::clone(&channel.credit)),
            None => return refuse(RpcError::new(error_code::UNKNOWN_RUN, "the channel is not started")),
        };
        let cost = capstan_protocol::plugin_protocol::credit_cost(request.line_bytes);
        if !credit.lock().unwrap_or_else(PoisonError::into_inner).charge(cost) {
            return refuse(RpcError::new(error_code::OVERLOADED, "the event was sent without credit"));
        }
        let (peer, stream) = (self.peer.clone(), channel_stream_name(&event.channel));
        // The handler is called now: events are accepted in the order of the requests.
        let accepting = handler(event);
        Box::pin(async move {
            let accepted = accepting.await;
            if let Some(credit) = credit.lock().unwrap_or_else(PoisonError::into_inner).consume(cost) {
                peer.give_credit(&stream, credit);
            }
            accepted?;
            raw(&JsonObject::new())
        })
    }

    fn handle_notification(&self, notification: &IncomingNotification) -> Result<(), RpcError> {
        let phase = self.connection.phase.load(Ordering::Acquire);
        match notification.method.as_str() {
            method::LOG => self.log(&notification.parse()?),
            _ if phase == PHASE_STARTING => {}
            method::RUN_RESULT => {
                let RunResultParams { run_id, result } = notification.parse()?;
                if self.peer.deliver(run_id.as_str(), result, notification.line_bytes) == StreamDelivery::Unknown {
                    let shown = escape_line(&run_id.as_str().chars().take(64).collect::<String>());
                    self.connection.report_anomaly(&format!("dropped a result of {shown}, which is not being served"));
                }
            }
            method::CHANNEL_ENDED => {
                let end: PluginChannelEnded = notification.parse()?;
                if let Some(channel) = self.connection.tables().channels.get(&end.channel) {
                    // The channel may have been stopped meanwhile.
                    let _stopped = channel.ended.send(end);
                }
            }
            method::PROGRESS => {
                let PluginProgress { run_id, message, fraction, .. } = notification.parse()?;
                if self.connection.log_limiter.admit() != MessageVerdict::Drop {
                    let message = escape_line(&message.unwrap_or_default());
                    tracing::debug!(plugin = self.connection.plugin, ?run_id, ?fraction, "progress: {message}");
                }
            }
            // A newer SDK may send what this host does not know.
            _ => {}
        }
        Ok(())
    }

    fn log(&self, log: &PluginLog) {
        let MessageVerdict::Log { dropped } = self.connection.log_limiter.admit() else { return };
        let plugin = self.connection.plugin.as_str();
        if dropped > 0 {
            tracing::info!(plugin, dropped, "log messages were dropped");
        }
        let mut message = escape_line(&log.message);
        capstan_protocol::truncate_bytes(&mut message, 8 * 1024, "...");
        let run_id = log.run_id.as_ref().map(|id| escape_line(id.as_str())).unwrap_or_default();
        match log.level.as_str() {
            "error" => tracing::error!(plugin, run_id, "{message}"),
            "warn" => tracing::warn!(plugin, run_id, "{message}"),
            "debug" => tracing::debug!(plugin, run_id, "{message}"),
            "trace" => tracing::trace!(plugin, run_id, "{message}"),
            _ => tracing::info!(plugin, run_id, "{message}"),
        }
    }
}
