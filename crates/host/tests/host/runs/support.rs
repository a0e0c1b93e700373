//! Plugins for the runner and the tools of a host.

use std::sync::Arc;

use capstan_hooks::Plugin;
use capstan_hooks::contracts::{FnTool, ResultStream, RunApi, Runner, Tool, ToolContext, ToolError};
use capstan_hooks::points::{ProvideRunners, ProvideTools};
use capstan_host::testing::ClosurePlugin;
use capstan_protocol::{Descriptor, JsonObject, ResultBody, RunContext, RunResult, RunnerCapabilities, ToolOutput};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// Runner that yields fixed results in place of the built-in agent.
pub struct FixedResultsRunner(pub Vec<ResultBody>);

impl Runner for FixedResultsRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { capabilities: broad_capabilities(), ..Descriptor::new("builtin:agent", "scripted") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let results: Vec<RunResult> = self.0.iter().cloned().map(Into::into).collect();
        futures::stream::iter(results).boxed()
    }
}

/// Capabilities of a runner that streams and serves every event with its attachments.
pub fn broad_capabilities() -> RunnerCapabilities {
    RunnerCapabilities { streaming: true, event_context: true, multimodal_input: true, ..RunnerCapabilities::default() }
}

/// Plugin whose runner yields `results`.
pub fn results_plugin(results: Vec<ResultBody>) -> impl Plugin {
    let runner: Arc<dyn Runner> = Arc::new(FixedResultsRunner(results));
    ClosurePlugin::new("scripted", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

/// Plugin that provides the tools built by `make`.
pub fn tools_plugin(make: impl Fn() -> Vec<FnTool> + Send + Sync + 'static) -> impl Plugin {
    let make = Arc::new(make);
    ClosurePlugin::new("tools", move |hooks| {
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
