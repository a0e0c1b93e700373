//! Conformance of run contexts and results to the published schemas.

use std::path::Path;
use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{
    ActionRequest, Content, ContentPart, Descriptor, Event, JsonObject, ResultBody, RunContext, RunResult, StateScope,
    Timestamp, ToolCall, ToolOutput, Usage,
};
use capstan_testing::{ScriptedModel, ScriptedReply};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::support::FixedResultsRunner;

/// Contexts and results of the recorded runs, as JSON.
#[derive(Default)]
struct RecordedValues {
    contexts: Vec<Value>,
    results: Vec<Value>,
}

/// Runner that records the contexts and results of another.
struct RecordingRunner<R> {
    runner: R,
    recorded: Arc<Mutex<RecordedValues>>,
}

impl<R: Runner> Runner for RecordingRunner<R> {
    fn descriptor(&self) -> Descriptor {
        self.runner.descriptor()
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        self.recorded.lock().unwrap().contexts.push(serde_json::to_value(&context).unwrap());
        let recorded = Arc::clone(&self.recorded);
        let record = move |result: &RunResult| {
            recorded.lock().unwrap().results.push(serde_json::to_value(result).unwrap());
        };
        self.runner.run(context, api).inspect(record).boxed()
    }
}

fn recording_plugin(runner: impl Runner) -> (impl Plugin, Arc<Mutex<RecordedValues>>) {
    let recorded = Arc::new(Mutex::new(RecordedValues::default()));
    let runner: Arc<dyn Runner> = Arc::new(RecordingRunner { runner, recorded: Arc::clone(&recorded) });
    let plugin = ClosurePlugin::new("recorded", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    (plugin, recorded)
}

/// Published schema.
fn read_schema(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/schema").join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn published_validator(file: &str) -> jsonschema::Validator {
    jsonschema::validator_for(&read_schema(file)).unwrap()
}

#[track_caller]
fn assert_all_valid(file: &str, values: &[Value]) {
    let schema = published_validator(file);
    for value in values {
        let faults: Vec<String> = schema.iter_errors(value).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{file}: {value}\n{faults:?}");
    }
}

fn result_types(results: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn k01_contexts_and_results_of_the_built_in_agent_match_the_schemas() {
    let model = ScriptedModel::start(vec![
        ScriptedReply::text("hello to you"),
        ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]),
        ScriptedReply::text("done"),
        ScriptedReply::status(400, "{}"),
        ScriptedReply::text("welcome"),
    ])
    .await;
    let (plugin, recorded) = recording_plugin(capstan_agent::Agent::new(capstan_agent::LoopOptions::default()));
    let conversation = TestHost::builder().scripted_model(&model).agent_plugin(plugin).start().await;
    conversation.send_message("hello").await;
    conversation.send_message("work").await;
    let failed = conversation.send_message("fail").await;
    assert!(failed.error.is_some());
    let joined = Event::from_envelope(json!({
        "event_type": "group.member_joined", "source": "cli", "bot_id": "b", "conversation_id": "g", "thread_id": "t",
        "event_time": "2026-01-01T00:00:00Z", "input": {"text": ",help"}, "metadata": {"lang": "en"},
        "actor": {"id": "1", "name": "Ada"}, "subject": {"type": "group", "id": "g"},
        "delivery": {"chat_id": "g", "reply_to": "5"}
    }));
    conversation.serve(joined.unwrap()).await.unwrap();

    let recorded = recorded.lock().unwrap();
    assert_eq!(recorded.contexts.len(), 4);
    assert_all_valid("run_context.json", &recorded.contexts);
    assert_all_valid("run_result.json", &recorded.results);
    let kinds = result_types(&recorded.results);
    for kind in ["message.delta", "message.completed", "run.completed", "run.failed"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(recorded.contexts.iter().all(|context| context.get("messages").is_none()), "contexts carry no history");
}

fn all_result_kinds() -> Vec<ResultBody> {
    let parts = vec![ContentPart::from_text("done"), ContentPart::from_image_url("https://example.org/a.png")];
    let completed = |content| ResultBody::MessageCompleted { content, provider_meta: JsonObject::new() };
    vec![
        ResultBody::ReasoningDelta { delta: "hm".to_owned() },
        ResultBody::MessageDelta { delta: "looking".to_owned() },
        completed("looking".into()),
        ResultBody::ToolCallStarted { call: ToolCall::new("1", "look", "{}") },
        ResultBody::ToolCallCompleted {
            call_id: "1".to_owned(),
            name: "look".to_owned(),
            output: ToolOutput::error("nothing there"),
        },
        ResultBody::StateUpdated {
            scope: StateScope::Conversation,
            state: JsonObject::from_iter([("k".to_owned(), json!(1))]),
        },
        ResultBody::ArtifactCreated {
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            content: "AA==".to_owned(),
        },
        ResultBody::ActionRequested(ActionRequest {
            action: "message.delete".to_owned(),
            arguments: JsonObject::new(),
        }),
        completed(Content::Parts(parts)),
        ResultBody::RunCompleted { silent: false },
    ]
}

#[tokio::test]
async fn k02_every_result_type_matches_the_schema() {
    let (plugin, recorded) = recording_plugin(FixedResultsRunner(all_result_kinds()));
    let conversation = TestHost::builder().agent_plugin(plugin).start().await;
    assert_eq!(conversation.send_message("hi").await.output, "looking\n\ndone");
    let mut results = recorded.lock().unwrap().results.clone();
    let complete = RunResult {
        body: ResultBody::RunFailed { message: "no luck".to_owned(), code: Some("run-failed".into()) },
        run_id: Some("run-1".into()),
        usage: Some(Usage { total_tokens: Some(5), ..Usage::default() }),
        sequence: Some(3),
        timestamp: Some(Timestamp::now()),
    };
    results.push(serde_json::to_value(complete).unwrap());
    assert_eq!(result_types(&results).len(), ResultBody::RESULT_TYPES.len());
    assert_all_valid("run_result.json", &results);
    assert_all_valid("run_context.json", &recorded.lock().unwrap().contexts);
}

#[test]
fn k02_the_schema_rejects_what_the_host_rejects() {
    let schema = published_validator("run_result.json");
    let invalid = [
        json!({}),
        json!({"type": "message.telepathy", "data": {}}),
        json!({"type": "message.delta", "data": {"delta": 5}}),
        json!({"type": "state.updated", "data": {"state": {}, "force": true}}),
        json!({"type": "artifact.created", "data": {"name": "a", "media_type": "b", "content": "", "path": "/"}}),
        json!({"type": "action.requested", "data": {"action": "a", "now": true}}),
        json!({"type": "run.failed"}),
        json!({"type": "run.completed", "sequence": -1}),
    ];
    for value in invalid {
        assert!(!schema.is_valid(&value), "{value}");
        assert!(RunResult::from_json(value.clone()).is_err(), "{value}");
    }
    let short = json!({"type": "run.completed"});
    assert!(schema.is_valid(&short) && RunResult::from_json(short).is_ok());
}

#[test]
fn k01_the_protocol_page_names_every_field_and_every_result_type() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md")).unwrap();
    let mut names: Vec<String> = ResultBody::RESULT_TYPES.map(str::to_owned).to_vec();
    let fields = [
        ("event.json", "/properties"),
        ("binding.json", "/properties"),
        ("binding.json", "/$defs/BindingScope/properties"),
        ("binding.json", "/$defs/DeliveryPolicy/properties"),
        ("descriptor.json", "/properties"),
        ("descriptor.json", "/$defs/RunnerCapabilities/properties"),
        ("descriptor.json", "/$defs/PermissionSet/properties"),
        ("run_context.json", "/properties"),
        ("run_result.json", "/properties"),
    ];
    for (file, pointer) in fields {
        let schema = read_schema(file);
        names.extend(schema.pointer(pointer).and_then(Value::as_object).unwrap().keys().cloned());
    }
    let missing: Vec<&String> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/protocol.md does not mention {missing:?}");
}
