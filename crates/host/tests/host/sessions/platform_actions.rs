//! Platform actions of a host that crashes: none is performed twice.

use std::sync::Arc;

use capstan_hooks::HookRegistrar;
use capstan_hooks::contracts::{Gateway as _, ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{
    ActionRequest, AllowList, Binding, Descriptor, Event, EventKey, JsonObject, PermissionSet, ResourcePolicy,
    ResultBody, RunContext, RunnerCapabilities,
};
use capstan_tape::TapeSlice;
use capstan_testing::ReplyBarrier;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::platform::GroupChannel;
use crate::sessions::support::format_outcome;

/// Runner that deletes a message, waits for the release of its barrier and completes. All its effects go through the host.
struct DeletingRunner(ReplyBarrier);

impl Runner for DeletingRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            capabilities: RunnerCapabilities { effects_through_host: true, ..RunnerCapabilities::default() },
            permissions: PermissionSet { platform_api: AllowList::All, ..PermissionSet::none() },
            ..Descriptor::new("plugin:local/deletes/runner", "deletes")
        }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let barrier = self.0.clone();
        let arguments = JsonObject::from_iter([("message_id".to_owned(), json!("m1"))]);
        let work = async move {
            let done = api.platform.call(ActionRequest { action: "message.delete".to_owned(), arguments }).await;
            barrier.wait_for_release().await;
            match done {
                Ok(_) => ResultBody::RunCompleted { silent: true }.into(),
                Err(error) => ResultBody::RunFailed { message: error.to_string(), code: None }.into(),
            }
        };
        stream::once(work.boxed()).boxed()
    }
}

fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn start_host(environment: &TestEnvironment, group: &Arc<GroupChannel>, barrier: &ReplyBarrier) -> TestHost {
    let runner: Arc<dyn Runner> = Arc::new(DeletingRunner(barrier.clone()));
    let runner_plugin = ClosurePlugin::new("deletes", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let host = environment.host().channel(group).plugin(runner_plugin).start().await;
    let resource_policy = ResourcePolicy { platform_api: Some(AllowList::All), ..ResourcePolicy::default() };
    let binding = Binding {
        binding_id: "deletes".into(),
        event_types: vec!["message.*".to_owned()],
        runner_id: "plugin:local/deletes/runner".into(),
        resource_policy,
        ..capstan_policy::default_binding()
    };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    host.listen(&["group".into()]).await;
    host
}

/// Starts a host that accepts an event, and drops it with all its tasks when `barrier` is reached.
fn crash_at_barrier(
    environment: &TestEnvironment,
    group: &Arc<GroupChannel>,
    runner_barrier: &ReplyBarrier,
    barrier: &ReplyBarrier,
    event: &Event,
) {
    let runtime = current_thread_runtime();
    runtime.block_on(async {
        let host = start_host(environment, group, runner_barrier).await;
        host.submit(event.clone().into()).await.unwrap();
        barrier.reached().await;
    });
}

/// Outcome of the event in the next host, the number of actions requested there, and the recorded ends of all actions.
fn recovered_outcome(environment: &TestEnvironment, event: &Event) -> (String, usize, Vec<Value>) {
    current_thread_runtime().block_on(async {
        let (group, barrier) = (GroupChannel::new(), ReplyBarrier::new());
        barrier.release();
        let host = start_host(environment, &group, &barrier).await;
        let outcome = format_outcome(&environment.wait_until_settled(event).await);
        let tape = environment.store().inbox_record(&EventKey::from(event)).await.unwrap().unwrap().tape;
        let entries = host.tapes().read(&tape, &TapeSlice::all()).await.unwrap();
        let ended = entries.iter().filter(|entry| entry.name() == Some("action.ended"));
        let ended = ended.map(|entry| entry.payload["data"]["status"].clone()).collect();
        host.stop().await.unwrap();
        environment.assert_settled().await;
        (outcome, group.requested_actions().len(), ended)
    })
}

#[test]
fn x02_an_action_interrupted_by_a_crash_is_not_repeated_and_ends_unknown() {
    let (environment, barrier, event) = (TestEnvironment::on_disk(), ReplyBarrier::new(), GroupChannel::message("hi"));
    let handler_barrier = barrier.clone();
    let group = GroupChannel::with_handler(move |_| {
        let barrier = handler_barrier.clone();
        Box::pin(async move {
            barrier.wait_for_release().await;
            Ok(Value::Null)
        })
    });
    crash_at_barrier(&environment, &group, &ReplyBarrier::new(), &barrier, &event);
    assert_eq!(group.requested_actions().len(), 1);
    let (outcome, requested, ended) = recovered_outcome(&environment, &event);
    assert!(outcome.contains("while message.delete was at work"), "{outcome}");
    assert_eq!((requested, ended), (0, vec![json!("unknown")]));
}

#[test]
fn x02_an_action_performed_before_a_crash_is_not_repeated() {
    let (environment, barrier, event) = (TestEnvironment::on_disk(), ReplyBarrier::new(), GroupChannel::message("hi"));
    let group = GroupChannel::new();
    crash_at_barrier(&environment, &group, &barrier, &barrier, &event);
    assert_eq!(group.requested_actions().len(), 1);
    let (outcome, requested, ended) = recovered_outcome(&environment, &event);
    assert!(outcome.contains("after message.delete was asked for"), "{outcome}");
    assert_eq!((requested, ended), (0, vec![json!("done")]));
}
