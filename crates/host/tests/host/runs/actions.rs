//! Platform actions: the permissions they need, how often they are performed, and their records.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::contracts::{ChannelError, ChildRunCall, ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::ServedEvent;
use capstan_host::testing::{ClosurePlugin, TestHost, TestHostBuilder};
use capstan_protocol::{
    ActionRequest, AllowList, ApiError, ApiErrorCode, Binding, Descriptor, JsonObject, PermissionSet, ResourcePolicy,
    ResultBody, RunContext, RunResult,
};
use capstan_testing::ReplyBarrier;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::api_runner::{action_runner_plugin, permissive_binding};
use crate::platform::GroupChannel;

fn delete_request() -> ActionRequest {
    action_request("message.delete", json!({"message_id": "m1"}))
}

fn action_request(action: &str, arguments: Value) -> ActionRequest {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    ActionRequest { action: action.to_owned(), arguments }
}

/// Permissions of a runner that may request these actions.
fn platform_authority(platform_api: AllowList) -> PermissionSet {
    PermissionSet { platform_api, ..PermissionSet::none() }
}

/// Binding that allows these actions.
fn platform_binding(platform_api: Option<AllowList>) -> Binding {
    Binding { resource_policy: ResourcePolicy { platform_api, ..ResourcePolicy::default() }, ..permissive_binding() }
}

/// Runner that yields fixed results.
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

/// Plugin with a runner that requests actions as results.
fn yielding_plugin(permissions: PermissionSet, requests: Vec<ActionRequest>) -> impl Plugin {
    let mut results: Vec<ResultBody> = requests.into_iter().map(ResultBody::ActionRequested).collect();
    results.push(ResultBody::RunCompleted { silent: true });
    let runner: Arc<dyn Runner> = Arc::new(ActionYieldingRunner(permissions, results));
    ClosurePlugin::new("yields", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

type PlatformReplies = Arc<Mutex<Vec<Result<Value, ApiError>>>>;

/// Plugin with a runner that requests actions through the run API, and the replies it receives.
fn calling_plugin(permissions: PermissionSet, requests: Vec<ActionRequest>) -> (impl Plugin, PlatformReplies) {
    let replies = PlatformReplies::default();
    let received = Arc::clone(&replies);
    let plugin = action_runner_plugin(permissions, move |_, api: RunApi| {
        let (requests, received) = (requests.clone(), Arc::clone(&received));
        async move {
            for request in requests {
                let reply = api.platform.call(request).await;
                received.lock().unwrap().push(reply);
            }
        }
    });
    (plugin, replies)
}

/// Conversation in a group chat, under a binding.
struct GroupConversation(TestHost);

impl GroupConversation {
    async fn new(
        group: &Arc<GroupChannel>,
        binding: Binding,
        configure: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
    ) -> Self {
        Self(configure(TestHost::builder().channel(group).binding(binding)).start().await)
    }

    async fn send_message(&self) -> ServedEvent {
        self.0.serve(GroupChannel::message("hi")).await.unwrap()
    }

    /// Data of the events with this name.
    async fn event_data(&self, name: &str) -> Vec<Value> {
        self.0.event_data(name).await
    }
}

#[tokio::test]
async fn k04_a_permitted_action_is_performed_once_after_its_start_is_recorded() {
    let barrier = ReplyBarrier::new();
    let handler_barrier = barrier.clone();
    let group = GroupChannel::with_handler(move |_| {
        let barrier = handler_barrier.clone();
        Box::pin(async move {
            barrier.wait_for_release().await;
            Ok(json!({"deleted": 1}))
        })
    });
    let (plugin, replies) =
        calling_plugin(platform_authority(AllowList::only(["message.delete"])), vec![delete_request()]);
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::only(["message.delete"]))), |b| {
            b.agent_plugin(plugin)
        })
        .await;
    let host = conversation.0.clone();
    let served = tokio::spawn(async move { host.serve(GroupChannel::message("hi")).await.unwrap() });
    barrier.reached().await;
    let started = conversation.event_data("action.started").await;
    assert_eq!(started[0]["action"], "message.delete");
    assert_eq!(started[0]["arguments"], json!({"message_id": "m1"}));
    assert!(conversation.event_data("action.ended").await.is_empty());
    barrier.release();
    assert_eq!(served.await.unwrap().error, None);
    assert_eq!(*replies.lock().unwrap(), [Ok(json!({"deleted": 1}))]);
    let requested = group.requested_actions();
    assert_eq!(requested.len(), 1);
    assert_eq!(
        (requested[0].event.conversation_id.as_deref(), json!(requested[0].id)),
        (Some("1"), started[0]["action_id"].clone())
    );
    let ended = conversation.event_data("action.ended").await;
    assert_eq!((&ended[0]["status"], &ended[0]["output"]), (&json!("done"), &json!({"deleted": 1})));
}

#[tokio::test]
async fn k02_an_action_requested_as_a_result_is_performed_once() {
    let group = GroupChannel::new();
    let mute = action_request("member.mute", json!({"minutes": 5}));
    let plugin = yielding_plugin(platform_authority(AllowList::All), vec![delete_request(), mute]);
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.agent_plugin(plugin)).await;
    assert_eq!(conversation.send_message().await.error, None);
    let requested: Vec<String> = group.requested_actions().into_iter().map(|action| action.name).collect();
    assert_eq!(requested, ["message.delete", "member.mute"]);
    let ended: Vec<Value> =
        conversation.event_data("action.ended").await.iter().map(|event| event["status"].clone()).collect();
    assert_eq!(ended, ["done", "done"]);
    assert!(conversation.event_data("results.noted").await.is_empty(), "no irregular results");
}

#[tokio::test]
async fn g05_a_runner_lists_the_actions_that_it_may_request() {
    let all = || Some(AllowList::All);
    let mute = || AllowList::only(["member.mute", "message.pin"]);
    for (permissions, policy, expected) in [
        (AllowList::All, all(), &["member.mute", "message.delete"][..]),
        (mute(), all(), &["member.mute"]),
        (AllowList::All, Some(mute()), &["member.mute"]),
        (AllowList::All, None, &[]),
    ] {
        let group = GroupChannel::new();
        let listed = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&listed);
        let plugin = action_runner_plugin(platform_authority(permissions), move |_, api: RunApi| {
            let recorded = Arc::clone(&recorded);
            async move { *recorded.lock().unwrap() = api.platform.list().await.unwrap() }
        });
        let conversation = GroupConversation::new(&group, platform_binding(policy), |b| b.agent_plugin(plugin)).await;
        conversation.send_message().await;
        let listed = listed.lock().unwrap();
        assert_eq!(listed.iter().map(|action| action.name.as_str()).collect::<Vec<_>>(), expected);
        assert!(listed.iter().all(|action| action.parameters.is_object()));
    }
}

#[tokio::test]
async fn g05_runner_binding_and_channel_can_each_refuse_an_action() {
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
            "the binding permissive does not allow it",
        ),
        (
            "binding",
            platform_authority(AllowList::All),
            platform_binding(None),
            delete_request(),
            "the binding permissive does not allow it",
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
        let conversation = GroupConversation::new(&group, binding.clone(), |b| b.agent_plugin(plugin)).await;
        assert_eq!(conversation.send_message().await.error, None, "the run continues");
        let refused = json!({"action": request.action, "by": by, "reason": reason});
        assert_eq!(conversation.event_data("action.refused").await, [refused]);
        assert_eq!(conversation.event_data("results.noted").await[0]["refused"], 1);

        let (plugin, replies) = calling_plugin(permissions, vec![request]);
        let conversation = GroupConversation::new(&group, binding, |b| b.agent_plugin(plugin)).await;
        conversation.send_message().await;
        let refusal = replies.lock().unwrap()[0].clone().unwrap_err();
        let code = if by == "channel" { ApiErrorCode::NotFound } else { ApiErrorCode::Unauthorized };
        assert_eq!(refusal.code, code);
        assert!(refusal.message.ends_with(reason), "{refusal}");
        let record = if by == "channel" { "action.refused" } else { "api.refused" };
        let refused = conversation.event_data(record).await;
        assert!(refused[0].to_string().contains(reason), "{refused:?}");
        assert!(
            conversation.event_data("action.started").await.is_empty() && group.requested_actions().is_empty(),
            "no action was started"
        );
    }
}

#[tokio::test]
async fn k04_an_action_with_invalid_arguments_is_refused() {
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
    let (plugin, replies) = calling_plugin(platform_authority(AllowList::All), requests.clone());
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.agent_plugin(plugin)).await;
    assert_eq!(conversation.send_message().await.error, None);
    let codes: Vec<ApiErrorCode> =
        replies.lock().unwrap().iter().map(|reply| reply.clone().unwrap_err().code).collect();
    let (invalid, unknown, too_large) =
        (ApiErrorCode::InvalidArgument, ApiErrorCode::NotFound, ApiErrorCode::PayloadTooLarge);
    assert_eq!(codes, [invalid, invalid, invalid, too_large, unknown]);
    let refused = conversation.event_data("action.refused").await;
    assert!(refused[0]["reason"].as_str().unwrap().contains("message_id"), "{refused:?}");
    assert!(refused.iter().all(|event| event.to_string().len() < 1000), "the records are short");

    let conversation = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.agent_plugin(yielding_plugin(platform_authority(AllowList::All), requests))
    })
    .await;
    assert_eq!(conversation.send_message().await.error, None);
    assert_eq!(conversation.event_data("action.refused").await.len(), 4);
    assert_eq!(conversation.event_data("result.dropped").await[0]["type"], "action.requested", "the oversized request");
    assert!(group.requested_actions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn x05_the_end_of_an_action_is_recorded_when_its_channel_hangs_panics_or_fails() {
    let group = GroupChannel::with_handler(|action| {
        let behaviour = action.arguments["message_id"].as_str().unwrap().to_owned();
        Box::pin(async move {
            match behaviour.as_str() {
                "hang" => std::future::pending().await,
                "crash" => panic!("the channel crashes"),
                "break" => Err(ChannelError::unknown("group".into(), "the connection broke")),
                "large" => Ok(json!("x".repeat(5 << 20))),
                _ => Err(ChannelError::permanent("group".into(), "there is no such message")),
            }
        })
    });
    let behaviours = ["hang", "crash", "break", "fail", "large"];
    let requests = behaviours.map(|id| action_request("message.delete", json!({"message_id": id}))).to_vec();
    let (plugin, replies) = calling_plugin(platform_authority(AllowList::All), requests);
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.agent_plugin(plugin)).await;
    assert_eq!(conversation.send_message().await.error, None, "the run continues");
    let ended = conversation.event_data("action.ended").await;
    let statuses: Vec<&Value> = ended.iter().map(|event| &event["status"]).collect();
    assert_eq!(statuses, ["unknown", "unknown", "unknown", "failed", "done"]);
    assert_eq!(ended[0]["reason"], "the channel did not answer within 60 seconds");
    assert_eq!(ended[3]["reason"], "there is no such message");
    assert!(ended[4]["output"].as_str().unwrap().contains("was left out"));
    let causes = replies
        .lock()
        .unwrap()
        .iter()
        .map(|reply| reply.as_ref().err().and_then(|error| error.cause.clone()))
        .collect::<Vec<_>>();
    let unknown = || Some("action-unknown".into());
    assert_eq!(causes, [unknown(), unknown(), unknown(), None, None]);
    assert_eq!(group.requested_actions().len(), 5, "no action is retried");
}

#[tokio::test(start_paused = true)]
async fn x02_an_action_of_an_interrupted_run_ends_with_status_unknown() {
    let group = GroupChannel::with_handler(|_| Box::pin(std::future::pending()));
    let (plugin, _) = calling_plugin(platform_authority(AllowList::All), vec![delete_request()]);
    let conversation = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.agent_plugin(plugin).options(|options| options.run_timeout = Duration::from_secs(1))
    })
    .await;
    assert_eq!(conversation.send_message().await.error.unwrap().code(), "run-timeout");
    let ended = conversation.event_data("action.ended").await;
    assert_eq!((ended.len(), &ended[0]["status"]), (1, &json!("unknown")));
    assert_eq!(group.requested_actions().len(), 1);
}

#[tokio::test]
async fn x02_an_action_that_outlives_its_run_is_recorded_once() {
    let barrier = ReplyBarrier::new();
    let handler_barrier = barrier.clone();
    let group = GroupChannel::with_handler(move |_| {
        let barrier = handler_barrier.clone();
        Box::pin(async move {
            barrier.wait_for_release().await;
            Ok(Value::Null)
        })
    });
    let pending_call = Arc::new(Mutex::new(None));
    let (call_slot, runner_barrier) = (Arc::clone(&pending_call), barrier.clone());
    let plugin = action_runner_plugin(platform_authority(AllowList::All), move |_, api: RunApi| {
        let (call_slot, barrier) = (Arc::clone(&call_slot), runner_barrier.clone());
        async move {
            *call_slot.lock().unwrap() = Some(tokio::spawn(async move { api.platform.call(delete_request()).await }));
            barrier.reached().await;
        }
    });
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.agent_plugin(plugin)).await;
    conversation.send_message().await;
    barrier.release();
    let pending_call = pending_call.lock().unwrap().take().unwrap();
    assert!(pending_call.await.unwrap().is_err(), "its run has ended");
    let ended = conversation.event_data("action.ended").await;
    assert_eq!((ended.len(), &ended[0]["status"]), (1, &json!("unknown")));
}

#[tokio::test]
async fn x05_a_flood_of_requests_adds_a_bounded_number_of_entries() {
    let group = GroupChannel::new();
    let requests = vec![ActionRequest { action: "message.pin".to_owned(), arguments: JsonObject::new() }; 500];
    let conversation = GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| {
        b.agent_plugin(yielding_plugin(platform_authority(AllowList::All), requests))
    })
    .await;
    assert_eq!(conversation.send_message().await.error, None);
    assert_eq!(conversation.event_data("action.refused").await.len(), 16);
    assert_eq!(conversation.event_data("results.noted").await[0]["refused"], 500);
}

#[tokio::test]
async fn x02_actions_of_a_child_are_recorded_in_its_parent_run() {
    let group = GroupChannel::new();
    let permissions = PermissionSet { children: true, ..platform_authority(AllowList::All) };
    let plugin = action_runner_plugin(permissions, |context: RunContext, api: RunApi| async move {
        if context.input.plain_text() == "delete it" {
            api.platform.call(delete_request()).await.unwrap();
        } else {
            api.runs.child(ChildRunCall::new("delete it")).await.unwrap();
        }
    });
    let conversation =
        GroupConversation::new(&group, platform_binding(Some(AllowList::All)), |b| b.agent_plugin(plugin)).await;
    let served = conversation.send_message().await;
    assert_eq!((served.error, group.requested_actions().len()), (None, 1));
    let ended = conversation.event_data("action.by_child").await;
    assert_eq!((ended.len(), &ended[0]["actions"]), (1, &json!(["message.delete"])));
}
