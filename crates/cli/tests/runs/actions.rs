//! Actions on the platform: who must allow them, how often they are done, and what is on record.

use std::sync::{Arc, Mutex};

use capstan::hooks::contracts::{ChannelError, ChildRunCall, ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{
    ActionRequest, AllowList, ApiError, ApiErrorCode, Binding, Descriptor, JsonObject, PermissionSet, ResourcePolicy,
    ResultBody, RunContext, RunResult,
};
use capstan::{CapstanBuilder, ServedEvent};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::api_runner::{action_runner_plugin, permissive_binding};
use super::support::{ClosurePlugin, TestConversation};
use crate::platform::{GroupChannel, group_plugin};

fn delete_request() -> ActionRequest {
    action_request("message.delete", json!({"message_id": "m1"}))
}

fn action_request(action: &str, arguments: Value) -> ActionRequest {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    ActionRequest { action: action.to_owned(), arguments }
}

/// A runner that may ask for these actions.
fn platform_authority(platform_api: AllowList) -> PermissionSet {
    PermissionSet { platform_api, ..PermissionSet::none() }
}

/// A binding that allows these actions.
fn platform_binding(platform_api: Option<AllowList>) -> Binding {
    Binding { resource_policy: ResourcePolicy { platform_api, ..ResourcePolicy::default() }, ..permissive_binding() }
}

/// A runner that yields these results.
struct ActionYieldingRunner(PermissionSet, Vec<ResultBody>);

impl Runner for ActionYieldingRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: self.0.clone(), ..Descriptor::new("builtin:agent", "yields") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let results: Vec<RunResult> = self.1.iter().cloned().map(Into::into).collect();
        futures::stream::iter(results).boxed()
    }
}

/// A plugin with a runner that asks for actions as results.
fn yielding_plugin(permissions: PermissionSet, requests: Vec<ActionRequest>) -> impl Plugin {
    let mut results: Vec<ResultBody> = requests.into_iter().map(ResultBody::ActionRequested).collect();
    results.push(ResultBody::RunCompleted { silent: true });
    let runner: Arc<dyn Runner> = Arc::new(ActionYieldingRunner(permissions, results));
    ClosurePlugin("yields", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

type PlatformReplies = Arc<Mutex<Vec<Result<Value, ApiError>>>>;

/// A plugin with a runner that asks for actions through the run API, and what it is answered.
fn calling_plugin(permissions: PermissionSet, requests: Vec<ActionRequest>) -> (impl Plugin, PlatformReplies) {
    let answers = PlatformReplies::default();
    let heard = Arc::clone(&answers);
    let plugin = action_runner_plugin(permissions, move |_, api: RunApi| {
        let (requests, answers) = (requests.clone(), Arc::clone(&answers));
        async move {
            for request in requests {
                let answer = api.platform.call(request).await;
                answers.lock().unwrap().push(answer);
            }
        }
    });
    (plugin, heard)
}

/// A conversation in a group, under a binding.
struct GroupConversation(TestConversation);

impl GroupConversation {
    async fn new(
        group: &Arc<GroupChannel>,
        binding: Binding,
        build: impl FnOnce(CapstanBuilder) -> CapstanBuilder,
    ) -> Self {
        let talk = TestConversation::new(|builder| build(builder.plugin(group_plugin(group)))).await;
        talk.host.bindings().save(&binding, &talk.host.runners()).await.unwrap();
        Self(talk)
    }

    async fn send_message(&self) -> ServedEvent {
        self.0.host.serve(GroupChannel::message("hi")).await.unwrap()
    }

    /// What the tape tells under a name.
    async fn event_data(&self, name: &str) -> Vec<Value> {
        // The oldest tape is the system's, which tells of the binding.
        let mut told = Vec::new();
        for tape in self.0.host.tapes().list().await.unwrap() {
            let entries = self.0.host.tapes().read(&tape.name, &capstan::tape::TapeSlice::all()).await.unwrap();
            let named = entries.into_iter().filter(|entry| entry.name() == Some(name));
            told.extend(named.map(|entry| entry.payload["data"].clone()));
        }
        told
    }
}

#[tokio::test]
async fn k04_an_action_that_everybody_allows_is_done_once_and_its_beginning_is_on_record_first() {
    let gate = ReplyBarrier::new();
    let at_gate = gate.clone();
    let group = GroupChannel::with_handler(move |_| {
        let gate = at_gate.clone();
        Box::pin(async move {
            gate.wait_for_release().await;
            Ok(json!({"deleted": 1}))
        })
    });
    let (plugin, answers) =
        calling_plugin(platform_authority(AllowList::only(["message.delete"])), vec![delete_request()]);
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::only(["message.delete"]))), |b| {
        b.plugin(plugin)
    })
    .await;
    let host = talk.0.host.clone();
    let said = tokio::spawn(async move { host.serve(GroupChannel::message("hi")).await.unwrap() });
    gate.reached().await;
    let started = talk.event_data("action.started").await;
    assert_eq!(started[0]["action"], "message.delete");
    assert_eq!(started[0]["arguments"], json!({"message_id": "m1"}));
    assert!(talk.event_data("action.ended").await.is_empty());
    gate.release();
    assert_eq!(said.await.unwrap().error, None);
    assert_eq!(*answers.lock().unwrap(), [Ok(json!({"deleted": 1}))]);
    let asked = group.requested_actions();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].event.conversation_id.as_deref(), json!(asked[0].id)),
        (Some("1"), started[0]["action_id"].clone())
    );
    let ended = talk.event_data("action.ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["output"]), (&json!("done"), &json!({"deleted": 1})));
}

#[tokio::test]
async fn k02_an_action_that_is_requested_as_a_result_is_done_once() {
    let group = GroupChannel::new();
    let mute = action_request("member.mute", json!({"minutes": 5}));
    let plugin = yielding_plugin(platform_authority(AllowList::All), vec![delete_request(), mute]);
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.plugin(plugin)).await;
    assert_eq!(talk.send_message().await.error, None);
    let asked: Vec<String> = group.requested_actions().into_iter().map(|action| action.name).collect();
    assert_eq!(asked, ["message.delete", "member.mute"]);
    let ended: Vec<Value> = talk.event_data("action.ended").await.iter().map(|told| told["status"].clone()).collect();
    assert_eq!(ended, ["done", "done"]);
    assert!(talk.event_data("results.noted").await.is_empty(), "nothing was odd");
}

#[tokio::test]
async fn g05_each_of_runner_binding_and_channel_can_withhold_an_action_by_itself() {
    let all = || Some(AllowList::All);
    let other = || AllowList::only(["member.mute"]);
    let pin = || action_request("message.pin", json!({}));
    let cases = [
        (
            "runner",
            platform_authority(other()),
            platform_binding(all()),
            delete_request(),
            "the runner builtin:agent does not ask for it",
        ),
        (
            "binding",
            platform_authority(AllowList::All),
            platform_binding(Some(other())),
            delete_request(),
            "the binding generous does not allow it",
        ),
        (
            "binding",
            platform_authority(AllowList::All),
            platform_binding(None),
            delete_request(),
            "the binding generous does not allow it",
        ),
        (
            "channel",
            platform_authority(AllowList::All),
            platform_binding(all()),
            pin(),
            "the channel group has no such action",
        ),
    ];
    for (by, permissions, binding, request, reason) in cases {
        let group = GroupChannel::new();
        let plugin = yielding_plugin(permissions.clone(), vec![request.clone()]);
        let talk = GroupConversation::new(&group, binding.clone(), |b| b.plugin(plugin)).await;
        assert_eq!(talk.send_message().await.error, None, "the run goes on");
        let told = json!({"action": request.action, "by": by, "reason": reason});
        assert_eq!(talk.event_data("action.refused").await, [told]);
        assert_eq!(talk.event_data("results.noted").await[0]["refused"], 1);

        let (plugin, answers) = calling_plugin(permissions, vec![request]);
        let talk = GroupConversation::new(&group, binding, |b| b.plugin(plugin)).await;
        talk.send_message().await;
        let refusal = answers.lock().unwrap()[0].clone().unwrap_err();
        let code = if by == "channel" { ApiErrorCode::NotFound } else { ApiErrorCode::Unauthorized };
        assert_eq!(refusal.code, code);
        assert!(refusal.message.ends_with(reason), "{refusal}");
        let record = if by == "channel" { "action.refused" } else { "api.refused" };
        let told = talk.event_data(record).await;
        assert!(told[0].to_string().contains(reason), "{told:?}");
        assert!(
            talk.event_data("action.started").await.is_empty() && group.requested_actions().is_empty(),
            "nothing was done"
        );
    }
}

#[tokio::test]
async fn k04_an_action_is_not_done_with_arguments_that_its_channel_does_not_take() {
    let deep = (0..100).fold(json!(1), |value, _| json!([value]));
    let large = "x".repeat(2 << 20);
    let requests = vec![
        action_request("message.delete", json!({})),
        action_request("message.delete", json!({"message_id": 7})),
        action_request("message.delete", json!({"message_id": "m1", "deep": deep})),
        action_request("message.delete", json!({"message_id": large})),
        action_request(&"x".repeat(100_000), json!({})),
    ];
    let group = GroupChannel::new();
    let (plugin, answers) = calling_plugin(platform_authority(AllowList::All), requests.clone());
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.plugin(plugin)).await;
    assert_eq!(talk.send_message().await.error, None);
    let codes: Vec<ApiErrorCode> =
        answers.lock().unwrap().iter().map(|answer| answer.clone().unwrap_err().code).collect();
    let (invalid, unknown, too_large) =
        (ApiErrorCode::InvalidArgument, ApiErrorCode::NotFound, ApiErrorCode::PayloadTooLarge);
    assert_eq!(codes, [invalid, invalid, invalid, too_large, unknown]);
    let refused = talk.event_data("action.refused").await;
    assert!(refused[0]["reason"].as_str().unwrap().contains("message_id"), "{refused:?}");
    assert!(refused.iter().all(|told| told.to_string().len() < 1000), "what is told is short");

    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.plugin(yielding_plugin(platform_authority(AllowList::All), requests))
    })
    .await;
    assert_eq!(talk.send_message().await.error, None);
    assert_eq!(talk.event_data("action.refused").await.len(), 4);
    assert_eq!(talk.event_data("result.dropped").await[0]["type"], "action.requested", "the one that is too large");
    assert!(group.requested_actions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn x05_what_a_channel_that_hangs_crashes_or_fails_did_is_told_as_far_as_it_is_known() {
    let group = GroupChannel::with_handler(|action| {
        let how = action.arguments["message_id"].as_str().unwrap().to_owned();
        Box::pin(async move {
            match how.as_str() {
                "hang" => std::future::pending().await,
                "crash" => panic!("the channel crashes"),
                "break" => Err(ChannelError::unknown("group".into(), "the connection broke")),
                "large" => Ok(json!("x".repeat(5 << 20))),
                _ => Err(ChannelError::permanent("group".into(), "there is no such message")),
            }
        })
    });
    let how = ["hang", "crash", "break", "fail", "large"];
    let requests = how.map(|how| action_request("message.delete", json!({"message_id": how}))).to_vec();
    let (plugin, answers) = calling_plugin(platform_authority(AllowList::All), requests);
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.plugin(plugin)).await;
    assert_eq!(talk.send_message().await.error, None, "the run goes on");
    let told = talk.event_data("action.ended").await;
    let status: Vec<&Value> = told.iter().map(|told| &told["status"]).collect();
    assert_eq!(status, ["unknown", "unknown", "unknown", "failed", "done"]);
    assert_eq!(told[0]["reason"], "the channel did not answer within 60 seconds");
    assert_eq!(told[3]["reason"], "there is no such message");
    assert!(told[4]["output"].as_str().unwrap().contains("was left out"));
    let causes = answers
        .lock()
        .unwrap()
        .iter()
        .map(|answer| answer.as_ref().err().and_then(|e| e.cause.clone()))
        .collect::<Vec<_>>();
    let unknown = || Some("action-unknown".into());
    assert_eq!(causes, [unknown(), unknown(), unknown(), None, None]);
    assert_eq!(group.requested_actions().len(), 5, "none is tried again");
}

#[tokio::test(start_paused = true)]
async fn x02_nobody_knows_what_became_of_an_action_whose_run_was_broken_off() {
    let group = GroupChannel::with_handler(|_| Box::pin(std::future::pending()));
    let (plugin, _) = calling_plugin(platform_authority(AllowList::All), vec![delete_request()]);
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.plugin(plugin).set("run_timeout_seconds", "1")
    })
    .await;
    assert_eq!(talk.send_message().await.error.unwrap().code(), "run-timeout");
    let told = talk.event_data("action.ended").await;
    assert_eq!((told.len(), &told[0]["status"]), (1, &json!("unknown")));
    assert_eq!(group.requested_actions().len(), 1);
}

#[tokio::test]
async fn x02_an_action_that_outlives_its_run_is_told_of_once() {
    let gate = ReplyBarrier::new();
    let at_gate = gate.clone();
    let group = GroupChannel::with_handler(move |_| {
        let gate = at_gate.clone();
        Box::pin(async move {
            gate.wait_for_release().await;
            Ok(Value::Null)
        })
    });
    let left = Arc::new(Mutex::new(None));
    let (kept, reached) = (Arc::clone(&left), gate.clone());
    let plugin = action_runner_plugin(platform_authority(AllowList::All), move |_, api: RunApi| {
        let (left, gate) = (Arc::clone(&kept), reached.clone());
        async move {
            *left.lock().unwrap() = Some(tokio::spawn(async move { api.platform.call(delete_request()).await }));
            gate.reached().await;
        }
    });
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.plugin(plugin)).await;
    talk.send_message().await;
    gate.release();
    let left = left.lock().unwrap().take().unwrap();
    assert!(left.await.unwrap().is_err(), "its run has ended");
    let told = talk.event_data("action.ended").await;
    assert_eq!((told.len(), &told[0]["status"]), (1, &json!("unknown")));
}

#[tokio::test]
async fn x05_a_flood_of_requests_leaves_a_few_entries() {
    let group = GroupChannel::new();
    let requests = vec![ActionRequest { action: "message.pin".to_owned(), arguments: JsonObject::new() }; 500];
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.plugin(yielding_plugin(platform_authority(AllowList::All), requests))
    })
    .await;
    assert_eq!(talk.send_message().await.error, None);
    assert_eq!(talk.event_data("action.refused").await.len(), 16);
    assert_eq!(talk.event_data("results.noted").await[0]["refused"], 500);
}

#[tokio::test]
async fn x02_a_run_knows_of_what_its_children_did() {
    let group = GroupChannel::new();
    let permissions = PermissionSet { children: true, ..platform_authority(AllowList::All) };
    let plugin = action_runner_plugin(permissions, |context: RunContext, api: RunApi| async move {
        if context.input.plain_text() == "delete it" {
            api.platform.call(delete_request()).await.unwrap();
        } else {
            api.runs.child(ChildRunCall::new("delete it")).await.unwrap();
        }
    });
    let talk = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.plugin(plugin)).await;
    let served = talk.send_message().await;
    assert_eq!((served.error, group.requested_actions().len()), (None, 1));
    let told = talk.event_data("action.by_child").await;
    assert_eq!((told.len(), &told[0]["actions"]), (1, &json!(["message.delete"])));
}
