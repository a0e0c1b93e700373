//! LangBot queries: events that carry their own binding and are served like any other event.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{
    AllowList, Descriptor, PermissionSet, ResourceAccess, ResultBody, RunContext, RunResult, ToolOutput,
};
use capstan_tape::{EventLogRow, TapeSlice};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::support::{test_tool, tools_plugin};

/// Runner that replies with its configured mood and records its run context.
struct MoodyRunner(Arc<Mutex<Vec<RunContext>>>);

impl Runner for MoodyRunner {
    fn descriptor(&self) -> Descriptor {
        let schema = json!({
            "type": "object", "properties": {"mood": {"enum": ["kind", "grim"]}}, "additionalProperties": false,
        });
        Descriptor {
            permissions: PermissionSet { tools: ResourceAccess::only(["weather", "bash"]), ..PermissionSet::none() },
            config_schema: Some(schema),
            ..Descriptor::new("plugin:ann/moody/runner", "moody")
        }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let text =
            format!("{} and {}", context.config["mood"].as_str().unwrap_or("nothing"), context.input.plain_text());
        self.0.lock().unwrap().push(context);
        let message = ResultBody::MessageCompleted { content: text.into(), provider_meta: Default::default() };
        let results: Vec<RunResult> = vec![message.into(), ResultBody::RunCompleted { silent: false }.into()];
        futures::stream::iter(results).boxed()
    }
}

fn moody_plugin(runs: &Arc<Mutex<Vec<RunContext>>>) -> impl Plugin + use<> {
    let runner: Arc<dyn Runner> = Arc::new(MoodyRunner(Arc::clone(runs)));
    ClosurePlugin::new("moody", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
    .with_author("ann")
}

fn langbot_query() -> Value {
    json!({
        "adapter": "telegram",
        "pipeline_uuid": "p-1",
        "launcher_type": "person",
        "launcher_id": 42,
        "sender_id": 42,
        "text": "hello",
        "pipeline_config": {
            "ai": {"runner": {"runner": "plugin:ann/moody/runner"}, "plugin:ann/moody/runner": {"mood": "kind"}},
        },
        "extensions_preferences": {"enable_all_plugins": false, "plugins": [{"author": "ann", "name": "tools"}]},
    })
}

async fn moody_conversation(runs: &Arc<Mutex<Vec<RunContext>>>) -> TestHost {
    let weather = tools_plugin(|| vec![test_tool("weather", |_, _| async { Ok(ToolOutput::ok("rain")) })]);
    TestHost::builder().plugin(moody_plugin(runs)).plugin(weather).start().await
}

#[tokio::test]
async fn g09_a_query_is_served_under_the_binding_of_its_pipeline() {
    let runs = Arc::default();
    let conversation = moody_conversation(&runs).await;
    let host = &conversation;
    let served = host.serve(host.map_langbot_query(langbot_query(), &"cli".into()).unwrap()).await.unwrap();
    assert_eq!(served.output, "kind and hello");
    assert_eq!(served.session.as_str(), "telegram:person_42");
    let run = host.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
    assert_eq!((run.binding.as_str(), run.runner.as_str()), ("pipeline:p-1", "plugin:ann/moody/runner"));
    assert_eq!(run.grant.may.tools.names, AllowList::only(["weather"]), "tools named by both runner and preferences");
    assert_eq!(runs.lock().unwrap()[0].trigger.binding_id.as_str(), "pipeline:p-1");
    let log = host.tapes().event_log(&run.tape, &TapeSlice::all()).await.unwrap();
    let inbound = log.iter().find(|fact| matches!(fact, EventLogRow::Inbound { .. })).unwrap().to_json();
    assert_eq!(inbound["binding"]["runner_config"], json!({"mood": "kind"}), "the tape records the binding of the run");
    let stored = host.bindings().all().await.unwrap();
    assert_eq!(stored.len(), 1, "no binding is stored for other events");
}

#[tokio::test]
async fn g09_a_query_with_an_invalid_binding_is_rejected_and_not_accepted() {
    let runs = Arc::default();
    let conversation = moody_conversation(&runs).await;
    let cases = [
        ("/pipeline_config/ai/runner/runner", json!("dify"), "runner-unknown", "there is no runner dify"),
        ("/pipeline_config/ai/plugin:ann~1moody~1runner/mood", json!("odd"), "binding-invalid", "runner_config"),
        ("/extensions_preferences/plugins/0/name", json!("maps"), "query-invalid", "no plugin ann/maps has tools"),
        ("/pipeline_uuid", json!("a b"), "binding-invalid", "its id must have"),
        ("/sender_id", json!(""), "query-invalid", "actor.id is not valid: it is empty"),
    ];
    for (path, value, code, message) in cases {
        let mut query = langbot_query();
        *query.pointer_mut(path).unwrap() = value;
        let error = conversation.map_langbot_query(query, &"cli".into()).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    assert!(conversation.tapes().list().await.unwrap().is_empty());
}
