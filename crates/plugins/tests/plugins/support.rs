//! A plugin folder with the scripted program, and the host's side of a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::contracts::{ApiReply, ApiRequest, ApiResponse, ModelEvent, RunApi, RunApiBackend, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookDeadlines, HookRuntime, PluginConfig, PluginRegistration, Registry};
use capstan_plugins::{PluginOptions, ProcessPlugin, read_manifest};
use capstan_protocol::{ApiError, ApiErrorCode, JsonObject, ModelId, ResultBody, RunContext, RunId};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const SCRIPT: &str = include_str!("scripted_plugin.py");

/// Folder of a plugin whose program is the script in one of its modes.
pub(crate) struct ScriptedPlugin {
    pub(crate) folder: TempDir,
    pub(crate) options: PluginOptions,
    pub(crate) settings: JsonObject,
}

impl ScriptedPlugin {
    /// Plugin with a runner `hello` and further contributions, as TOML.
    pub(crate) fn new(mode: &str, contributions: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manifest = format!(
            "id = \"ann/scripted\"\nversion = \"1.0.0\"\nprotocol = 1\n\
             command = [\"python3\", \"-S\", \"-E\", \"main.py\", \"{mode}\"]\n\
             permissions = [\"note\"]\nconfig_schema = {{type = \"object\", additionalProperties = true}}\n\
             [[runners]]\nname = \"hello\"\nlabel = \"Hello\"\n\
             capabilities = {{interrupt = true, effects_through_host = true}}\n{contributions}"
        );
        std::fs::write(folder.path().join("plugin.toml"), manifest).unwrap();
        std::fs::write(folder.path().join("main.py"), SCRIPT).unwrap();
        let plugin = Self { folder, options: PluginOptions::default(), settings: JsonObject::new() };
        std::fs::write(plugin.folder.path().join("plugin.json"), plugin.initialize_answer().to_string()).unwrap();
        plugin
    }

    /// Replaces a part of the manifest.
    pub(crate) fn edit_manifest(&self, from: &str, to: &str) {
        let path = self.folder.path().join("plugin.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    pub(crate) fn with_options(mut self, change: impl FnOnce(&mut PluginOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Answer to `initialize` that agrees with the manifest.
    fn initialize_answer(&self) -> Value {
        let manifest = read_manifest(self.folder.path()).unwrap();
        let names = |names: Vec<&String>| json!(names);
        let hooks: JsonObject = manifest
            .hooks
            .iter()
            .filter(|hook| hook.text.is_none())
            .map(|hook| (hook.name.clone(), json!(hook.arguments)))
            .collect();
        json!({
            "protocol": 1, "id": manifest.id, "version": manifest.version, "hooks": hooks,
            "runners": names(manifest.runners.iter().map(|it| &it.name).collect()),
            "tools": names(manifest.tools.iter().map(|it| &it.name).collect()),
            "channels": names(manifest.channels.iter().map(|it| &it.name).collect()),
            "knowledge": names(manifest.knowledge.iter().map(|it| &it.id).collect()),
            "models": names(manifest.models.iter().map(|it| &it.name).collect()),
        })
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Registers the plugin like a host does.
    pub(crate) fn register(&self) -> HookRuntime {
        self.register_from(self.folder.path())
    }

    /// Registers a copy of the plugin in another folder.
    pub(crate) fn register_from(&self, folder: &Path) -> HookRuntime {
        let manifest = read_manifest(folder).unwrap();
        let plugin = ProcessPlugin::new(manifest, folder.to_owned(), self.data_dir(), self.options.clone());
        let config = PluginConfig { settings: self.settings.clone(), allowed: None };
        let mut registry = Registry::new();
        registry.add(&PluginRegistration::register(&plugin, Ok(config)));
        assert!(registry.load_failures().is_empty(), "{:?}", registry.load_failures());
        HookRuntime::new(registry, HookDeadlines::default())
    }
}

/// Runner `hello` of a registered plugin.
pub(crate) fn runner(hooks: &HookRuntime) -> Arc<dyn Runner> {
    hooks.collect_provided::<ProvideRunners, Arc<dyn Runner>>(|it| it.descriptor().id.to_string()).remove(0)
}

/// Run API that answers a few methods and records all calls.
#[derive(Default)]
pub(crate) struct RecordingApi {
    pub(crate) calls: Mutex<Vec<ApiRequest>>,
}

impl RunApiBackend for RecordingApi {
    fn call(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiReply, ApiError>> {
        self.calls.lock().unwrap().push(request.clone());
        let reply = match request {
            ApiRequest::StateGet(call) => Ok(ApiReply::Response(ApiResponse::StateGet(Some(json!({"of": call.key}))))),
            ApiRequest::StateSet(_) => Ok(ApiReply::Response(ApiResponse::StateSet(()))),
            ApiRequest::ModelsStream(_) => {
                let events = (0..20).map(|number| ModelEvent::Text(number.to_string())).chain([ModelEvent::Stop]);
                Ok(ApiReply::Stream(stream::iter(events.map(Ok)).boxed()))
            }
            _ => Err(ApiError::new(ApiErrorCode::Unauthorized, "not in this test")),
        };
        futures::future::ready(reply).boxed()
    }

    fn default_model(&self) -> ModelId {
        "demo:x".parse().unwrap()
    }
}

pub(crate) fn run_api(run_id: &str, backend: Arc<RecordingApi>, cancel_token: CancellationToken) -> RunApi {
    RunApi::new(RunId::from(run_id), "session".into(), cancel_token, backend)
}

/// Context of a run for a message.
pub(crate) fn context(run_id: &str, text: &str) -> RunContext {
    serde_json::from_value(json!({
        "run_id": run_id,
        "trigger": {"type": "message.received", "binding_id": "b"},
        "event": {"event_id": "e", "event_type": "message.received", "event_time": "2026-01-01T00:00:00Z",
            "source": "cli", "input": {"text": text}},
        "conversation": {"session_id": "session"},
        "input": {"text": text},
        "delivery": {},
        "resources": {"grant": {}},
        "context": {"tape": "t"},
        "runtime": {"workspace": "/w", "started_at": "2026-01-01T00:00:00Z"},
    }))
    .unwrap()
}

/// Results of a run, parsed where they can be.
pub(crate) async fn collect(runner: &Arc<dyn Runner>, run_id: &str, text: &str) -> Vec<Value> {
    let api = run_api(run_id, Arc::default(), CancellationToken::new());
    runner.run(context(run_id, text), api).map(|result| to_json(result.body)).collect().await
}

pub(crate) fn to_json(body: ResultBody) -> Value {
    match body {
        ResultBody::Unparsed(value) => value,
        body => serde_json::to_value(body).unwrap(),
    }
}

/// Text of the complete message among the results of a run.
pub(crate) fn message(results: &[Value]) -> &str {
    let message = results.iter().find(|result| result["type"] == "message.completed");
    message.and_then(|message| message["data"]["content"].as_str()).unwrap_or_else(|| panic!("no message: {results:?}"))
}

/// Message of the failure with which a run ends.
pub(crate) fn failure(results: &[Value]) -> String {
    let last = results.last().unwrap();
    assert_eq!((&last["type"], &last["data"]["code"]), (&json!("run.failed"), &json!("plugin-failed")), "{results:?}");
    last["data"]["message"].as_str().unwrap().to_owned()
}

/// Ends the plugins of a registry, as a host does when it stops.
pub(crate) async fn stop(hooks: &HookRuntime) {
    tokio::time::timeout(Duration::from_mins(1), hooks.registry().stop_plugins()).await.unwrap();
}
