//! Orphaned events that carry their own binding.

use capstan_hooks::HookRegistrar;
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Binding, Descriptor, ResultBody, RunContext, RunResult};
use futures::StreamExt as _;
use serde_json::{Value, json};

use std::sync::Arc;

use crate::sessions::orphaned_events::{OrphanedSession, phone_channel, session_message};
use crate::sessions::support::format_outcome;

/// Runner that replies with the id of its binding.
struct BindingNameRunner;

impl Runner for BindingNameRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("plugin:local/binding-name/runner", "binding name")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let text = format!("under {}", context.trigger.binding_id);
        let message = ResultBody::MessageCompleted { content: text.into(), provider_meta: Default::default() };
        let results: Vec<RunResult> = vec![message.into(), ResultBody::RunCompleted { silent: false }.into()];
        futures::stream::iter(results).boxed()
    }
}

/// Outcome of a recovered event whose entry has this binding.
async fn recover_with_binding(binding: Value) -> String {
    let environment = TestEnvironment::in_memory();
    let event = session_message("phone", "hello");
    OrphanedSession::new(&environment).accept_event(&event, 0, json!({ "binding": binding })).await;
    let runner_plugin = ClosurePlugin::new("binding-name", |hooks: &mut HookRegistrar| {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(BindingNameRunner) as Arc<dyn Runner>])));
    });
    let host = environment.host().channel(&phone_channel()).plugin(runner_plugin).start().await;
    host.listen(&["phone".into()]).await;
    let outcome = format_outcome(&environment.wait_until_settled(&event).await);
    host.stop().await.unwrap();
    environment.assert_settled().await;
    outcome
}

#[tokio::test]
async fn g09_an_event_keeps_its_own_binding_after_a_crash() {
    let own = Binding {
        binding_id: "pipeline:p-1".into(),
        runner_id: "plugin:local/binding-name/runner".into(),
        ..capstan_policy::default_binding()
    };
    assert_eq!(recover_with_binding(json!(own)).await, "replied: under pipeline:p-1");
}

#[tokio::test]
async fn g09_an_event_with_an_unreadable_binding_gets_no_other() {
    let outcome = recover_with_binding(json!({"binding_id": "pipeline:p-1", "colour": "blue"})).await;
    assert!(outcome.starts_with("failed") && outcome.contains("can no longer be read"), "{outcome}");
}
