//! What runners are given and what they yield is what the published schemas say.

use std::path::Path;
use std::sync::{Arc, Mutex};

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{
    ActionRequest, Content, ContentPart, Descriptor, Event, Map, ResultBody, RunContext, RunResult, StateScope,
    Timestamp, ToolCall, ToolOutput, Usage,
};
use capstan_testing::{Reply, ScriptedModel};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::support::{Conversation, Registers, Scripted};

/// What came by, as JSON.
#[derive(Default)]
struct Seen {
    contexts: Vec<Value>,
    results: Vec<Value>,
}

/// A runner whose runs are looked at.
struct Watched<R> {
    runner: R,
    seen: Arc<Mutex<Seen>>,
}

impl<R: Runner> Runner for Watched<R> {
    fn descriptor(&self) -> Descriptor {
        self.runner.descriptor()
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        self.seen.lock().unwrap().contexts.push(serde_json::to_value(&context).unwrap());
        let seen = Arc::clone(&self.seen);
        let look = move |result: &RunResult| {
            seen.lock().unwrap().results.push(serde_json::to_value(result).unwrap());
        };
        self.runner.run(context, api).inspect(look).boxed()
    }
}

fn watched(runner: impl Runner) -> (impl Plugin, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let runner: Arc<dyn Runner> = Arc::new(Watched { runner, seen: Arc::clone(&seen) });
    let plugin = Registers("watched", move |hooks: &mut Registrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    (plugin, seen)
}

/// A schema as it is published.
fn schema(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/schema").join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn published(file: &str) -> jsonschema::Validator {
    jsonschema::validator_for(&schema(file)).unwrap()
}

#[track_caller]
fn assert_all_valid(file: &str, values: &[Value]) {
    let schema = published(file);
    for value in values {
        let faults: Vec<String> = schema.iter_errors(value).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{file}: {value}\n{faults:?}");
    }
}

fn kinds(results: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn k01_what_the_built_in_agent_is_given_and_yields_fits_the_schemas() {
    let model = ScriptedModel::start(vec![
        Reply::text("hello to you"),
        Reply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]),
        Reply::text("done"),
        Reply::status(400, "{}"),
        Reply::text("welcome"),
    ])
    .await;
    let (plugin, seen) = watched(capstan_agent::Agent::new(capstan_agent::Options::default()));
    let conversation = Conversation::scripted(&model, plugin).await;
    conversation.say("hello").await;
    conversation.say("work").await;
    let failed = conversation.say("fail").await;
    assert!(failed.error.is_some());
    let joined = Event::from_envelope(json!({
        "event_type": "group.member_joined", "source": "cli", "bot_id": "b", "conversation_id": "g", "thread_id": "t",
        "event_time": "2026-01-01T00:00:00Z", "input": {"text": ",help"}, "metadata": {"lang": "en"},
        "actor": {"id": "1", "name": "Ada"}, "subject": {"type": "group", "id": "g"},
        "delivery": {"chat_id": "g", "reply_to": "5"}
    }));
    conversation.host.serve(joined.unwrap()).await.unwrap();

    let seen = seen.lock().unwrap();
    assert_eq!(seen.contexts.len(), 4);
    assert_all_valid("run_context.json", &seen.contexts);
    assert_all_valid("run_result.json", &seen.results);
    let kinds = kinds(&seen.results);
    for kind in ["message.delta", "message.completed", "run.completed", "run.failed"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(seen.contexts.iter().all(|context| context.get("messages").is_none()), "there is no history in it");
}

fn one_of_each() -> Vec<ResultBody> {
    let parts = vec![ContentPart::text("done"), ContentPart::image("https://example.org/a.png")];
    let completed = |content| ResultBody::MessageCompleted { content, provider_meta: Map::new() };
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
            state: Map::from_iter([("k".to_owned(), json!(1))]),
        },
        ResultBody::ArtifactCreated {
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            content: "AA==".to_owned(),
        },
        ResultBody::ActionRequested(ActionRequest { action: "message.delete".to_owned(), arguments: Map::new() }),
        completed(Content::Parts(parts)),
        ResultBody::RunCompleted { silent: false },
    ]
}

#[tokio::test]
async fn k02_every_type_of_result_fits_the_schema() {
    let (plugin, seen) = watched(Scripted(one_of_each()));
    let conversation = Conversation::with(plugin).await;
    assert_eq!(conversation.say("hi").await.output, "looking\n\ndone");
    let mut results = seen.lock().unwrap().results.clone();
    let whole = RunResult {
        body: ResultBody::RunFailed { message: "no luck".to_owned(), code: Some("run-failed".to_owned()) },
        usage: Some(Usage { total_tokens: Some(5), ..Usage::default() }),
        sequence: Some(3),
        timestamp: Some(Timestamp::now()),
    };
    results.push(serde_json::to_value(whole).unwrap());
    assert_eq!(kinds(&results).len(), ResultBody::TYPES.len());
    assert_all_valid("run_result.json", &results);
    assert_all_valid("run_context.json", &seen.lock().unwrap().contexts);
}

#[test]
fn k02_the_schema_refuses_what_the_host_does_not_take() {
    let schema = published("run_result.json");
    let wrong = [
        json!({}),
        json!({"type": "message.telepathy", "data": {}}),
        json!({"type": "message.delta", "data": {"delta": 5}}),
        json!({"type": "state.updated", "data": {"state": {}, "force": true}}),
        json!({"type": "artifact.created", "data": {"name": "a", "media_type": "b", "content": "", "path": "/"}}),
        json!({"type": "action.requested", "data": {"action": "a", "now": true}}),
        json!({"type": "run.failed"}),
        json!({"type": "run.completed", "sequence": -1}),
    ];
    for value in wrong {
        assert!(!schema.is_valid(&value), "{value}");
        assert!(RunResult::read(value.clone()).is_err(), "{value}");
    }
    let short = json!({"type": "run.completed"});
    assert!(schema.is_valid(&short) && RunResult::read(short).is_ok());
}

#[test]
fn k01_the_page_on_the_protocol_names_every_field_and_every_type() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md")).unwrap();
    let mut names: Vec<String> = ResultBody::TYPES.map(str::to_owned).to_vec();
    let fields = [
        ("event.json", "/properties"),
        ("binding.json", "/properties"),
        ("binding.json", "/$defs/BindingScope/properties"),
        ("binding.json", "/$defs/DeliveryPolicy/properties"),
        ("descriptor.json", "/properties"),
        ("descriptor.json", "/$defs/Capabilities/properties"),
        ("descriptor.json", "/$defs/Authority/properties"),
        ("run_context.json", "/properties"),
        ("run_result.json", "/properties"),
    ];
    for (file, place) in fields {
        let schema = schema(file);
        names.extend(schema.pointer(place).and_then(Value::as_object).unwrap().keys().cloned());
    }
    let missing: Vec<&String> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/protocol.md does not tell of {missing:?}");
}
