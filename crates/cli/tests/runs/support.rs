//! Host in this process with one conversation, and plugins for its runner and tools.

use std::sync::Arc;

use capstan::hooks::contracts::{FnTool, ResultStream, RunApi, Runner, Tool, ToolContext, ToolError};
use capstan::hooks::points::{ProvideRunners, ProvideTools};
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{
    Descriptor, Event, JsonObject, MessageRole, ResultBody, RunContext, RunResult, TapeName, ToolOutput,
};
use capstan::tape::{DefaultView, Entry, MemoryStore, TapeSlice, View};
use capstan::{Capstan, CapstanBuilder, Host, ServedEvent};
use capstan_testing::ScriptedModel;
use futures::StreamExt as _;
use serde_json::{Value, json};

/// API key sent to the scripted model.
pub const SCRIPTED_MODEL_KEY: &str = "sk-0123456789abcdef";

pub use crate::registers::ClosurePlugin;

/// Runner that yields fixed results in place of the built-in agent.
pub struct FixedResultsRunner(pub Vec<ResultBody>);

impl Runner for FixedResultsRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "scripted")
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let results: Vec<RunResult> = self.0.iter().cloned().map(Into::into).collect();
        futures::stream::iter(results).boxed()
    }
}

/// Configures the scripted model as the model of the host.
pub fn with_scripted_model(builder: CapstanBuilder, server: &ScriptedModel) -> CapstanBuilder {
    let builder = builder.set("model", "openai:scripted").set("api_base", &server.base_url());
    builder.set("api_key", SCRIPTED_MODEL_KEY).set("tool_timeout_seconds", "60")
}

/// Plugin whose runner yields `results`.
pub fn results_plugin(results: Vec<ResultBody>) -> impl Plugin {
    let runner: Arc<dyn Runner> = Arc::new(FixedResultsRunner(results));
    ClosurePlugin("scripted", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

/// Plugin that provides the tools built by `make`.
pub fn tools_plugin(make: impl Fn() -> Vec<FnTool> + Send + Sync + 'static) -> impl Plugin {
    let make = Arc::new(make);
    ClosurePlugin("tools", move |hooks: &mut HookRegistrar| {
        let make = Arc::clone(&make);
        hooks.on_sync(ProvideTools, move || {
            Ok(Some(make().into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect()))
        });
    })
}

/// Tool that runs `action`.
pub fn test_tool<F, Fut>(name: &str, action: F) -> FnTool
where
    F: Fn(JsonObject, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    FnTool::new(name, "Runs the action of the test.", schema, action)
}

/// Tool results in a model request, in order, as `call id: text`.
pub fn tool_replies(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    messages
        .map(|message| {
            format!("{}: {}", message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap())
        })
        .collect()
}

/// Host with its own store and its own workspace.
pub struct TestConversation {
    pub host: Host,
    workspace: tempfile::TempDir,
}

impl TestConversation {
    pub async fn new(build: impl FnOnce(CapstanBuilder) -> CapstanBuilder) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        let builder =
            Capstan::builder().workspace(workspace.path()).home(workspace.path()).store(Arc::new(MemoryStore::new()));
        // These tests compare message texts, which would otherwise begin with their origin.
        let builder = builder.set("message_context", "false");
        Self { host: build(builder).start().await.unwrap(), workspace }
    }

    pub async fn with_plugin(plugin: impl Plugin) -> Self {
        Self::new(|builder| builder.plugin(plugin)).await
    }

    /// Conversation with the scripted model.
    pub async fn with_scripted_model(server: &ScriptedModel, plugin: impl Plugin) -> Self {
        Self::new(|builder| with_scripted_model(builder, server).plugin(plugin)).await
    }

    pub async fn send_message(&self, text: &str) -> ServedEvent {
        self.host.serve(Event::message("cli", "local", text)).await.unwrap()
    }

    pub fn workspace(&self) -> &std::path::Path {
        self.workspace.path()
    }

    pub async fn tape(&self) -> TapeName {
        self.host.tapes().list().await.unwrap().remove(0).name
    }

    pub async fn entries(&self) -> Vec<Entry> {
        self.host.tapes().read(&self.tape().await, &TapeSlice::all()).await.unwrap()
    }

    /// Names of the events on the tape, in order.
    pub async fn event_names(&self) -> Vec<String> {
        let entries = self.entries().await;
        entries
            .iter()
            .filter(|entry| entry.kind.as_str() == "event")
            .filter_map(Entry::name)
            .map(str::to_owned)
            .collect()
    }

    /// Messages that a model would read, one line each.
    pub async fn view(&self) -> Vec<String> {
        let window = self.host.tapes().window(&self.tape().await).await.unwrap();
        let messages = DefaultView.messages(&window);
        let line = |message: &capstan::protocol::ChatMessage| {
            let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
            match message.role {
                MessageRole::Tool => {
                    format!("tool {}: {}", message.tool_call_id.as_deref().unwrap(), message.content.text())
                }
                MessageRole::Assistant if !calls.is_empty() => format!("calls {}", calls.join(" ")),
                role => format!("{role:?}: {}", message.content.text()).to_lowercase(),
            }
        };
        messages.iter().map(line).collect()
    }
}
