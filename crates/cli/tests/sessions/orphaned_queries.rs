//! Events with a binding of their own that a process left which died.

use capstan::hooks::HookRegistrar;
use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::protocol::{Binding, Descriptor, ResultBody, RunContext, RunResult};
use futures::StreamExt as _;
use serde_json::{Value, json};

use std::sync::Arc;

use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome};
use crate::orphaned_events::{OrphanedSession, phone_channel, session_message, wait_until_settled};

/// Says under which binding it runs.
struct BindingNameRunner;

impl Runner for BindingNameRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("test:says", "says")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let said = format!("under {}", context.trigger.binding_id);
        let said = ResultBody::MessageCompleted { content: said.into(), provider_meta: Default::default() };
        let results: Vec<RunResult> = vec![said.into(), ResultBody::RunCompleted { silent: false }.into()];
        futures::stream::iter(results).boxed()
    }
}

/// What becomes of an event whose entry has this for its binding.
async fn recover_with_binding(binding: Value) -> String {
    let house = HostFixture::in_memory();
    let event = session_message("phone", "hello");
    OrphanedSession::new(&house).accept_event(&event, 0, json!({ "binding": binding })).await;
    let says = boxed_plugin("says", |hooks: &mut HookRegistrar| {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(BindingNameRunner) as Arc<dyn Runner>])));
    });
    let host = house.host_builder().channel(&phone_channel()).plugin(says).start().await;
    host.listen(&["phone".into()]).await;
    let outcome = format_outcome(&wait_until_settled(&house, &event).await);
    host.stop().await.unwrap();
    house.assert_settled().await;
    outcome
}

#[tokio::test]
async fn g09_an_event_keeps_its_own_binding_over_a_crash() {
    let own = Binding {
        binding_id: "pipeline:p-1".into(),
        runner_id: "test:says".into(),
        ..capstan_policy::default_binding()
    };
    assert_eq!(recover_with_binding(json!(own)).await, "replied: under pipeline:p-1");
}

#[tokio::test]
async fn g09_an_event_whose_own_binding_cannot_be_read_does_not_get_another() {
    let outcome = recover_with_binding(json!({"binding_id": "pipeline:p-1", "colour": "blue"})).await;
    assert!(outcome.starts_with("failed") && outcome.contains("can no longer be read"), "{outcome}");
}
