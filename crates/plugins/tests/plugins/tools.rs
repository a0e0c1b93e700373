//! Tools and knowledge sources of a plugin process.

use std::path::Path;
use std::sync::Arc;

use capstan_hooks::contracts::{KnowledgeQuery, KnowledgeSource, Tool, ToolContext, ToolEffect};
use capstan_hooks::points::{ProvideKnowledge, ProvideTools};
use capstan_hooks::{HookRuntime, SecretMasker};
use capstan_protocol::JsonObject;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{RecordingApi, ScriptedPlugin, run_api, stop};

const TOOLS: &str = r#"
[[tools]]
name = "echo.back"
description = "Repeat."
effect = "reads"
parameters = {type = "object", properties.city.type = "string", required = ["city"]}

[[tools]]
name = "file.write"
description = "Write."
effect = "writes"
resource = "file"
parameters = {type = "object", properties.file.type = "string"}

[[tools]]
name = "steal"
description = "Try what is not allowed."

[[tools]]
name = "fails"
description = "Fail."

[[knowledge]]
id = "climate"
description = "Tables"
"#;

fn tools(hooks: &HookRuntime) -> Vec<Arc<dyn Tool>> {
    hooks.collect_provided::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string())
}

fn object(value: &Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn tool_context(backend: &Arc<RecordingApi>) -> ToolContext {
    let cancel_token = CancellationToken::new();
    let api = run_api("run-1", Arc::clone(backend), cancel_token.clone());
    ToolContext { workspace: "/w".into(), api, cancel_token, secrets: SecretMasker::new(Vec::new()) }
}

#[tokio::test]
async fn k06_a_tool_is_described_by_the_manifest_and_called_at_the_plugin() {
    let plugin = ScriptedPlugin::new("echo", TOOLS);
    let hooks = plugin.register();
    let tools = tools(&hooks);
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name.to_string()).collect();
    assert_eq!(names, ["echo.back", "file.write", "steal", "fails"]);
    let (echo, write) = (&tools[0], &tools[1]);
    assert!(echo.is_read_only() && !write.is_read_only());
    let effect = |tool: &Arc<dyn Tool>, arguments: Value| tool.effect(&object(&arguments), Path::new("/w"));
    assert_eq!(effect(echo, json!({})), ToolEffect::Reads);
    assert_eq!(effect(write, json!({"file": "a"})), ToolEffect::Writes("file.write:a".to_owned()));
    assert_eq!(effect(write, json!({})), ToolEffect::Unrestricted);
    assert_eq!(effect(&tools[2], json!({})), ToolEffect::Unrestricted);
    assert!(!plugin.data_dir().exists(), "nothing was started");
    let backend = Arc::default();
    let output = echo.call(object(&json!({"city": "Par\u{ed}s"})), tool_context(&backend)).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&output.text()).unwrap(), json!({"city": "Par\u{ed}s"}));
    let invalid = echo.call(object(&json!({"city": 7})), tool_context(&backend)).await.unwrap_err();
    assert!(invalid.to_string().contains("invalid arguments"), "{invalid}");
    let failed = tools[3].call(JsonObject::new(), tool_context(&backend)).await.unwrap_err();
    assert_eq!(failed.to_string(), "no luck today");
    stop(&hooks).await;
}

#[tokio::test]
async fn g15_a_tool_acts_with_the_authority_of_its_call_and_not_with_that_of_the_run() {
    let plugin = ScriptedPlugin::new("echo", TOOLS);
    let hooks = plugin.register();
    let backend = Arc::default();
    let output = tools(&hooks)[2].call(JsonObject::new(), tool_context(&backend)).await.unwrap();
    assert_eq!(output.text(), r#"["allowed", -32005]"#, "its call_id reaches its own authority, the run_id nothing");
    assert_eq!(backend.calls.lock().unwrap().len(), 1);
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_call_that_is_cancelled_ends_at_once() {
    let plugin = ScriptedPlugin::new("echo", TOOLS);
    let hooks = plugin.register();
    let context = tool_context(&Arc::default());
    context.cancel_token.cancel();
    let cancelled = tools(&hooks)[3].call(JsonObject::new(), context).await.unwrap_err();
    assert_eq!(cancelled.to_string(), "cancelled");
    stop(&hooks).await;
}

#[tokio::test]
async fn h02_a_knowledge_source_is_searched_at_the_plugin() {
    let plugin = ScriptedPlugin::new("echo", TOOLS);
    let hooks = plugin.register();
    let sources =
        hooks.collect_provided::<ProvideKnowledge, Arc<dyn KnowledgeSource>>(|source| source.knowledge_base().id);
    assert_eq!(sources[0].knowledge_base().description, "Tables");
    let query = KnowledgeQuery { text: "rain".to_owned(), offset: 0, limit: 5 };
    let found = sources[0].retrieve(query).await.unwrap();
    assert_eq!((found.passages[0].text.as_str(), found.passages[0].line), ("RAIN", Some(3)));
    assert_eq!(found.skipped.as_deref(), Some("b.md is not text"));
    stop(&hooks).await;
}
