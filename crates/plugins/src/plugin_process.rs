//! Supervision of the process of a plugin: started when it is needed, checked, watched, and started again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_protocol::JsonObject;
use capstan_protocol::plugin_protocol::{
    PLUGIN_PROTOCOL_VERSION, PluginConnectionLimits, PluginIdVersion, PluginInitialize, PluginInitialized,
    PluginManifest, PluginPeerInfo, PluginShutdown, method,
};
use capstan_rpc::{RpcCloseReason, RpcPeer};
use capstan_sandbox::TreeExit;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::child_process::{ChildCommand, ChildProcess};
use crate::connection::PluginConnection;
use crate::error::call_message;
use crate::handshake::find_difference;
use crate::stderr_log::{StderrLines, log_stderr};
use crate::{PluginError, PluginOptions};

/// Time in which a process whose output has ended exits by itself.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// Reason of the end of a process that hangs.
const UNANSWERED_PING: &str = "it did not answer a ping in time";

/// Everything that a process is started with.
pub(crate) struct ProcessSpec {
    pub(crate) manifest: Arc<PluginManifest>,
    /// Folder of the plugin.
    pub(crate) folder: PathBuf,
    /// Data folder of the plugin, which is created.
    pub(crate) data_dir: PathBuf,
    /// Settings, valid for the schema of the manifest.
    pub(crate) settings: JsonObject,
    pub(crate) options: PluginOptions,
}

/// State of a process, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginStatus {
    /// Not started, or stopped.
    Stopped,
    /// Ready to serve.
    Ready {
        /// Id of the process.
        pid: Option<u32>,
    },
    /// Failed; started again when it is needed and the pause is over.
    Failed {
        /// Reason of the last failure.
        reason: String,
        /// Failures in a row.
        failures: u32,
    },
}

/// Process of a plugin, started when it is needed. Cheap to clone.
#[derive(Clone)]
pub struct PluginProcess {
    shared: Arc<ProcessShared>,
}

struct ProcessShared {
    spec: ProcessSpec,
    /// Held while the process is being started, so that it is started once.
    slot: tokio::sync::Mutex<Option<Arc<RunningProcess>>>,
    health: Mutex<ProcessHealth>,
    stderr: StderrLines,
    tasks: TaskTracker,
}

/// Failures in a row.
#[derive(Default)]
struct ProcessHealth {
    failures: u32,
    reason: String,
    not_before: Option<Instant>,
    pid: Option<u32>,
    is_ready: bool,
}

struct RunningProcess {
    connection: Arc<PluginConnection>,
    peer: RpcPeer,
    /// The host has asked the plugin to end.
    is_stopping: AtomicBool,
}

impl PluginProcess {
    pub(crate) fn new(spec: ProcessSpec) -> Self {
        let shared = ProcessShared {
            spec,
            slot: tokio::sync::Mutex::default(),
            health: Mutex::default(),
            stderr: StderrLines::default(),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn manifest(&self) -> &Arc<PluginManifest> {
        &self.shared.spec.manifest
    }

    pub(crate) fn options(&self) -> &PluginOptions {
        &self.shared.spec.options
    }

    /// State of the process.
    pub fn status(&self) -> PluginStatus {
        let health = self.shared.health();
        match &*health {
            ProcessHealth { is_ready: true, pid, .. } => PluginStatus::Ready { pid: *pid },
            ProcessHealth { failures: 0, .. } => PluginStatus::Stopped,
            ProcessHealth { failures, reason, .. } => {
                PluginStatus::Failed { reason: reason.clone(), failures: *failures }
            }
        }
    }

    /// Last lines of stderr.
    pub fn last_stderr_lines(&self) -> Vec<String> {
        self.shared.stderr.to_vec()
    }

    /// Starts the process if it is not running.
    pub async fn start(&self) -> Result<(), PluginError> {
        self.connect().await.map(drop)
    }

    /// Connection to the process, which is started if it is not running. After a failure, it fails at once until the
    /// pause is over.
    pub(crate) async fn connect(&self) -> Result<(Arc<PluginConnection>, RpcPeer), PluginError> {
        let shared = &self.shared;
        let mut slot = shared.slot.lock().await;
        if let Some(running) = slot.as_ref() {
            if !running.peer.is_closed() {
                return Ok((Arc::clone(&running.connection), running.peer.clone()));
            }
            // The failure decides about the pause before the next start.
            running.connection.ended().await;
        }
        *slot = None;
        if let Some(reason) = shared.reason_to_wait() {
            return Err(PluginError::failed(&shared.spec.manifest.id, reason));
        }
        match self.start_process().await {
            Ok(running) => {
                let connected = (Arc::clone(&running.connection), running.peer.clone());
                *slot = Some(running);
                Ok(connected)
            }
            Err(reason) => {
                shared.record_failure(&reason);
                Err(PluginError::failed(&shared.spec.manifest.id, reason))
            }
        }
    }

    async fn start_process(&self) -> Result<Arc<RunningProcess>, String> {
        let ProcessSpec { manifest, folder, data_dir, settings, options } = &self.shared.spec;
        std::fs::create_dir_all(data_dir).map_err(|error| format!("its data folder cannot be created: {error}"))?;
        let (data_folder, data_dir) = (data_dir, data_dir.display().to_string());
        let variables = vec![
            ("HOME", data_dir.clone()),
            ("CAPSTAN_PLUGIN", manifest.id.clone()),
            ("CAPSTAN_PLUGIN_DATA", data_dir.clone()),
            ("CAPSTAN_PLUGIN_PROTOCOL", PLUGIN_PROTOCOL_VERSION.to_string()),
        ];
        let command = ChildCommand {
            command: &manifest.command,
            folder,
            data_dir: data_folder,
            home: options.home.as_deref(),
            limits: options.resource_limits,
            variables,
        };
        let (mut child, streams) = command
            .spawn()
            .await
            .map_err(|error| format!("its program {:?} cannot be started: {error}", manifest.command[0]))?;
        let log_rate = options.log_messages_per_second;
        let stderr = log_stderr(manifest.id.clone(), streams.stderr, self.shared.stderr.clone(), log_rate);
        self.shared.tasks.spawn(stderr);
        let connection = PluginConnection::new(&manifest.id, log_rate);
        let peer = RpcPeer::start(streams.stdout, streams.stdin, options.rpc.clone(), |peer| connection.service(peer));
        let params = PluginInitialize {
            protocol: PLUGIN_PROTOCOL_VERSION,
            host: PluginPeerInfo { name: "capstan".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            plugin: PluginIdVersion { id: manifest.id.clone(), version: manifest.version.clone() },
            settings: settings.clone(),
            limits: options.rpc.limits,
            data_dir: Some(data_dir),
        };
        let guard = CloseOnDrop(Some(peer.clone()));
        let answer = peer.request::<PluginInitialized>(method::INITIALIZE, &params, Some(options.start_timeout)).await;
        let program = match answer {
            Ok(program) => program,
            Err(error) => {
                let reason = match exit_reason(&mut child, &peer).await {
                    Some(reason) => reason,
                    None => format!("initialize: {}", call_message(&error)),
                };
                return Err(reason);
            }
        };
        if let Some(difference) = find_difference(manifest, &program) {
            return Err(difference);
        }
        guard.defuse();
        // The size of what the host sends is a limit of its memory too.
        let max_frame_bytes = program.limits.max_frame_bytes.min(options.rpc.limits.max_frame_bytes);
        peer.set_remote_limits(PluginConnectionLimits { max_frame_bytes, ..program.limits });
        connection.set_ready();
        self.shared.record_ready(child.id());
        let running = Arc::new(RunningProcess { connection, peer, is_stopping: AtomicBool::new(false) });
        let supervision = supervise(Arc::clone(&self.shared), Arc::clone(&running), child);
        self.shared.tasks.spawn(supervision);
        Ok(running)
    }

    /// Stops the process: `shutdown`, the end of its input, and then the end of its processes. It is started again if it is
    /// needed afterwards.
    pub async fn stop(&self) {
        let running = self.shared.slot.lock().await.take();
        let Some(running) = running else { return };
        let options = &self.shared.spec.options;
        running.connection.set_draining();
        running.is_stopping.store(true, Ordering::Release);
        let deadline_ms = u64::try_from(options.shutdown_timeout.as_millis()).unwrap_or(u64::MAX);
        let params = PluginShutdown { deadline_ms };
        // It must not wait for the requests that the plugin serves.
        let answer = running.peer.request_uncounted::<Value>(method::SHUTDOWN, &params);
        if matches!(timeout(options.shutdown_timeout, answer).await, Ok(Ok(_))) {
            running.peer.close_output();
            // The supervision closes the peer when the output of the process ends.
            let _exited = timeout(options.exit_timeout, running.peer.closed()).await;
        }
        running.peer.close("the host has stopped the plugin");
        self.shared.tasks.close();
        // A descendant that has left the group may hold stderr.
        let _ended = timeout(options.exit_timeout, self.shared.tasks.wait()).await;
        self.shared.tasks.reopen();
    }
}

/// Closes the connection of a process that did not get ready.
struct CloseOnDrop(Option<RpcPeer>);

impl CloseOnDrop {
    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(peer) = self.0.take() {
            peer.close("the plugin did not start");
        }
    }
}

impl ProcessShared {
    fn health(&self) -> std::sync::MutexGuard<'_, ProcessHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reason_to_wait(&self) -> Option<String> {
        let health = self.health();
        let is_waiting = health.not_before.is_some_and(|at| Instant::now() < at);
        is_waiting.then(|| health.reason.clone())
    }

    fn record_ready(&self, pid: Option<u32>) {
        let mut health = self.health();
        (health.is_ready, health.pid) = (true, pid);
    }

    fn record_failure(&self, reason: &str) {
        let (options, plugin) = (&self.spec.options, self.spec.manifest.id.as_str());
        let mut health = self.health();
        health.failures = health.failures.saturating_add(1);
        let doublings = (health.failures - 1).min(16);
        let pause = options.first_backoff.saturating_mul(1 << doublings).min(options.max_backoff);
        health.not_before = Some(Instant::now() + pause);
        (health.is_ready, health.pid) = (false, None);
        reason.clone_into(&mut health.reason);
        let failures = health.failures;
        drop(health);
        tracing::error!(plugin, failures, reason, "a plugin failed");
        for line in self.stderr.to_vec() {
            tracing::warn!(plugin, "last stderr: {line}");
        }
    }

    fn record_stop(&self) {
        *self.health() = ProcessHealth::default();
    }

    fn record_end(&self, reason: &str, ran_for: Duration) {
        if ran_for >= self.spec.options.stable_after {
            self.health().failures = 0;
        }
        self.record_failure(reason);
    }
}

/// Watches a process until its connection ends, and then ends what is left of it.
async fn supervise(shared: Arc<ProcessShared>, running: Arc<RunningProcess>, mut child: ChildProcess) {
    let began = Instant::now();
    let peer = &running.peer;
    let unanswered = tokio::select! {
        _ = peer.closed() => false,
        () = watch_heartbeat(peer, &shared.spec.options) => true,
    };
    if unanswered {
        peer.close(UNANSWERED_PING);
        child.start_kill();
        shared.record_failure(UNANSWERED_PING);
        running.connection.set_ended(UNANSWERED_PING);
    } else if running.is_stopping.load(Ordering::Acquire) {
        let _status = exit_reason(&mut child, peer).await;
        shared.record_stop();
        running.connection.set_ended("the host has stopped it");
    } else {
        let reason = peer.closed().await;
        let exit = if reason == RpcCloseReason::InputEnded { exit_reason(&mut child, peer).await } else { None };
        let reason = exit.unwrap_or_else(|| reason.to_string());
        shared.record_end(&reason, began.elapsed());
        running.connection.set_ended(&reason);
    }
    child.start_kill();
    // Reaps the process, which was killed.
    let _exit = child.wait(shared.spec.options.exit_timeout).await;
    peer.joined().await;
}

/// Sends `ping` when nothing else was received for a while. Ends when one is not answered.
async fn watch_heartbeat(peer: &RpcPeer, options: &PluginOptions) {
    let mut lines = peer.counters().lines;
    loop {
        tokio::time::sleep(options.heartbeat_interval).await;
        let now = peer.counters().lines;
        if std::mem::replace(&mut lines, now) != now {
            continue;
        }
        let params = JsonObject::new();
        let ping = peer.request_uncounted::<Value>(method::PING, &params);
        if timeout(options.heartbeat_timeout, ping).await.is_err() && peer.counters().lines == now {
            return;
        }
    }
}

/// Exit of a process whose output has ended, as a message; `None` if it goes on.
async fn exit_reason(child: &mut ChildProcess, peer: &RpcPeer) -> Option<String> {
    if !peer.is_closed() {
        return None;
    }
    match child.wait(EXIT_STATUS_TIMEOUT).await? {
        Ok(TreeExit::Code(code)) => Some(format!("it exited with status {code}")),
        Ok(TreeExit::Signal(signal)) => Some(format!("it was ended by signal {signal}")),
        Ok(TreeExit::Killed) => None,
        Err(error) => Some(error.to_string()),
    }
}
