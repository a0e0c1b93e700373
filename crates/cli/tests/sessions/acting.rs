//! Actions on a platform whose host dies: none is done a second time.

use std::sync::Arc;

use capstan::Host;
use capstan::hooks::Registrar;
use capstan::hooks::contracts::{Gateway as _, ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::protocol::{
    Access, ActionRequest, Authority, Binding, Capabilities, Descriptor, Event, EventKey, Map, ResourcePolicy,
    ResultBody, RunContext,
};
use capstan::tape::Slice;
use capstan_testing::Gate;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::house::{House, in_words, plugin};
use crate::left::until_settled;
use crate::platform::{Group, provides};

/// A runner that deletes a message, passes a gate, and is done. Whatever it does, it does through the host.
struct Deletes(Gate);

impl Runner for Deletes {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            capabilities: Capabilities { effects_through_host: true, ..Capabilities::default() },
            permissions: Authority { platform_api: Access::All, ..Authority::none() },
            ..Descriptor::new("test:deletes", "deletes")
        }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let gate = self.0.clone();
        let arguments = Map::from_iter([("message_id".to_owned(), json!("m1"))]);
        let work = async move {
            let done = api.platform.call(ActionRequest { action: "message.delete".to_owned(), arguments }).await;
            gate.pass().await;
            match done {
                Ok(_) => ResultBody::RunCompleted { silent: true }.into(),
                Err(error) => ResultBody::RunFailed { message: error.to_string(), code: None }.into(),
            }
        };
        stream::once(work.boxed()).boxed()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn host(house: &House, group: &Arc<Group>, gate: &Gate) -> Host {
    let runner: Arc<dyn Runner> = Arc::new(Deletes(gate.clone()));
    let runs = plugin("deletes", move |hooks: &mut Registrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let host = house.host().plugin(Box::new(provides(group))).plugin(runs).start().await;
    let resource_policy = ResourcePolicy { platform_api: Some(Access::All), ..ResourcePolicy::default() };
    let binding = Binding {
        binding_id: "deletes".into(),
        event_types: vec!["message.*".to_owned()],
        runner_id: "test:deletes".into(),
        resource_policy,
        ..capstan_host::default_binding()
    };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    host.listen(&["group".into()]).await;
    host
}

/// A host takes an event in and dies, with everything it had begun, when the gate is reached.
fn dies_at(house: &House, group: &Arc<Group>, runner_gate: &Gate, gate: &Gate, event: &Event) {
    let dying = runtime();
    dying.block_on(async {
        let host = host(house, group, runner_gate).await;
        host.submit(event.clone().into()).await.unwrap();
        gate.reached().await;
    });
}

/// What became of the event in the next host, what that host was asked to do, and how the actions on its tape ended.
fn afterwards(house: &House, event: &Event) -> (String, usize, Vec<Value>) {
    runtime().block_on(async {
        let (group, gate) = (Group::new(), Gate::new());
        gate.open();
        let host = host(house, &group, &gate).await;
        let outcome = in_words(&until_settled(house, event).await);
        let tape = house.store().accepted(&EventKey::from(event)).await.unwrap().unwrap().tape;
        let entries = host.tapes().read(&tape, &Slice::all()).await.unwrap();
        let ended = entries.iter().filter(|entry| entry.name() == Some("action.ended"));
        let ended = ended.map(|entry| entry.payload["data"]["status"].clone()).collect();
        host.stop().await.unwrap();
        house.assert_tidy().await;
        (outcome, group.asked().len(), ended)
    })
}

#[test]
fn x02_an_action_that_a_crash_cut_off_is_not_done_again_and_its_fate_is_unknown() {
    let (house, gate, event) = (House::on_disk(), Gate::new(), Group::message("hi"));
    let at_gate = gate.clone();
    let hangs = Group::that(move |_| {
        let gate = at_gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Ok(Value::Null)
        })
    });
    dies_at(&house, &hangs, &Gate::new(), &gate, &event);
    assert_eq!(hangs.asked().len(), 1);
    let (outcome, asked, ended) = afterwards(&house, &event);
    assert!(outcome.contains("while message.delete was at work"), "{outcome}");
    assert_eq!((asked, ended), (0, vec![json!("unknown")]));
}

#[test]
fn x02_an_action_that_was_done_before_a_crash_is_not_done_again() {
    let (house, gate, event) = (House::on_disk(), Gate::new(), Group::message("hi"));
    let group = Group::new();
    dies_at(&house, &group, &gate, &gate, &event);
    assert_eq!(group.asked().len(), 1);
    let (outcome, asked, ended) = afterwards(&house, &event);
    assert!(outcome.contains("after message.delete was asked for"), "{outcome}");
    assert_eq!((asked, ended), (0, vec![json!("done")]));
}
