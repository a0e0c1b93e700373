//! Runner of a plugin process.

use std::time::Duration;

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_protocol::plugin_protocol::{
    PluginCancelReason, PluginRunCancel, PluginRunStart, PluginRunnerManifest, method,
};
use capstan_protocol::{
    Descriptor, FailureCode, JsonObject, PluginRef, ResultBody, RunContext, RunId, RunResult, RunnerCapabilities,
    RunnerSource, Timestamp,
};
use capstan_rpc::{IncomingStream, RpcPeer};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::Instant;

use crate::connection::RunRegistration;
use crate::error::call_message;
use crate::{PluginError, PluginProcess};

/// Runner of a plugin process.
pub(crate) struct RunnerProxy {
    process: PluginProcess,
    name: String,
    descriptor: Descriptor,
}

impl RunnerProxy {
    pub(crate) fn new(process: PluginProcess, runner: &PluginRunnerManifest) -> Self {
        let plugin = process.manifest();
        let descriptor = Descriptor {
            id: format!("plugin:{}/{}/{}", plugin.author(), plugin.name(), runner.name).into(),
            source: RunnerSource::Plugin,
            label: runner.label.clone(),
            description: runner.description.clone(),
            // The host does not see what a process does elsewhere, so that its runs are never started twice.
            capabilities: RunnerCapabilities { effects_through_host: false, ..runner.capabilities.clone() },
            permissions: runner.permissions.clone(),
            requires: runner.requires.clone(),
            config_schema: runner.config_schema.clone(),
            timeout_seconds: runner.timeout_seconds,
            plugin: Some(PluginRef {
                author: plugin.author().to_owned(),
                name: plugin.name().to_owned(),
                version: Some(plugin.version.clone()),
            }),
        };
        Self { process, name: runner.name.clone(), descriptor }
    }
}

impl Runner for RunnerProxy {
    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let results = run_remotely(self.process.clone(), self.name.clone(), context, api);
        results.boxed()
    }
}

/// A run at the plugin. Dropped before its end, it tells the plugin that the run is closed.
struct RemoteRun {
    run_id: RunId,
    peer: RpcPeer,
    results: IncomingStream,
    deadline: Option<Instant>,
    has_ended: bool,
    _registration: RunRegistration,
}

impl RemoteRun {
    fn cancel(&self, reason: PluginCancelReason, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let params = PluginRunCancel { run_id: self.run_id.clone(), reason, grace_ms };
        self.peer.notify_now(method::RUN_CANCEL, &params);
    }
}

impl Drop for RemoteRun {
    fn drop(&mut self) {
        if !self.has_ended && !self.peer.is_closed() {
            let is_late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
            let reason = if is_late { PluginCancelReason::Deadline } else { PluginCancelReason::Cancelled };
            self.cancel(reason, Duration::ZERO);
        }
    }
}

fn run_remotely(
    process: PluginProcess,
    runner: String,
    context: RunContext,
    api: RunApi,
) -> impl futures::Stream<Item = RunResult> + Send + 'static {
    async_stream::stream! {
        let run_id = context.run_id.clone();
        let plugin = process.manifest().id.clone();
        let (connection, peer) = match process.connect().await {
            Ok(connected) => connected,
            Err(error) => {
                yield failed_result(&error);
                return;
            }
        };
        let credit = process.options().run_credit;
        let Some(results) = peer.open_incoming(run_id.as_str(), credit) else {
            yield failed_result(&PluginError::failed(plugin, "it is already serving this run"));
            return;
        };
        let deadline_ms = time_left(&context).map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let registration = connection.register_run(run_id.clone(), api.clone());
        let mut run = RemoteRun {
            run_id: run_id.clone(),
            peer: peer.clone(),
            results,
            deadline: deadline_ms.map(|left| Instant::now() + Duration::from_millis(left)),
            has_ended: false,
            _registration: registration,
        };
        let params = PluginRunStart { run_id: run_id.clone(), runner, context: Box::new(context), credit, deadline_ms };
        let timeout = process.options().start_timeout;
        let start = async move { peer.request::<JsonObject>(method::RUN_START, &params, Some(timeout)).await };
        tokio::pin!(start);
        let (mut is_started, mut is_cancelled) = (false, false);
        loop {
            let item = tokio::select! {
                biased;
                () = api.cancel_token.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    run.cancel(PluginCancelReason::Cancelled, process.options().cancel_grace);
                    continue;
                }
                item = run.results.next_item() => item,
                started = &mut start, if !is_started => {
                    is_started = true;
                    match started {
                        Ok(_) => continue,
                        Err(error) => {
                            let reason = format!("run.start: {}", call_message(&error));
                            yield failed_result(&PluginError::failed(plugin, reason));
                            return;
                        }
                    }
                }
            };
            let result = match item {
                Some(Ok(result)) => serde_json::from_str::<Value>(result.get()).unwrap_or_default(),
                Some(Err(violation)) => {
                    yield failed_result(&PluginError::failed(plugin, violation.to_string()));
                    return;
                }
                None => {
                    let reason = connection.ended().await;
                    yield failed_result(&PluginError::failed(plugin, reason));
                    return;
                }
            };
            if is_terminal(&result, &run_id) {
                run.has_ended = true;
                run.results.end();
                yield ResultBody::Unparsed(result).into();
                return;
            }
            yield ResultBody::Unparsed(result).into();
        }
    }
}

/// Time until the deadline of the run.
fn time_left(context: &RunContext) -> Option<Duration> {
    let deadline = context.runtime.deadline?;
    let left = deadline.as_millis().saturating_sub(Timestamp::now().as_millis());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or_default()))
}

/// Returns true for the result that ends the run. One with the id of another run ends nothing.
fn is_terminal(result: &Value, run_id: &RunId) -> bool {
    let is_own = result.get("run_id").is_none_or(|id| id.is_null() || *id == run_id.as_str());
    is_own && matches!(result.get("type").and_then(Value::as_str), Some("run.completed" | "run.failed"))
}

fn failed_result(error: &PluginError) -> RunResult {
    let code: FailureCode = error.code().into();
    ResultBody::RunFailed { message: error.to_string(), code: Some(code) }.into()
}
