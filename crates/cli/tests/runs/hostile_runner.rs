//! A runner that tries everything it may not do: each attempt is refused with the right code, and stands on the tape.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{ApiMethod, ChildRunCall, RunApi};
use capstan::protocol::{ApiError, ApiErrorCode, Event, Outcome, PermissionSet, ToolCall};
use capstan::tape::Entry;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::api_runner::{action_runner_plugin, call_method, permissive_conversation};
use super::support::{TestConversation, test_tool, tools_plugin};

/// What came of an attempt at each method.
type AttemptResults = Arc<Mutex<BTreeMap<ApiMethod, Result<(), ApiError>>>>;

async fn call_all_methods(api: &RunApi, text: &str, attempts: &AttemptResults) {
    for method in ApiMethod::METHODS {
        let result = call_method(api, *method, text).await;
        attempts.lock().unwrap().insert(*method, result);
    }
}

/// What a call is refused with that was tried by every method.
#[track_caller]
fn assert_refused(attempts: &AttemptResults, code: ApiErrorCode, but_not: &[ApiMethod]) {
    let attempts = attempts.lock().unwrap();
    assert_eq!(attempts.len(), ApiMethod::METHODS.len(), "every method was tried");
    for (method, result) in attempts.iter().filter(|(method, _)| !but_not.contains(method)) {
        match result {
            Ok(()) => panic!("{method} was not refused"),
            Err(error) => assert_eq!(error.code, code, "{method}: {error}"),
        }
    }
}

/// What the tape tells of calls that were refused: their data.
async fn refused_calls(conversation: &TestConversation) -> Vec<Value> {
    let entries = conversation.entries().await;
    let told = entries.iter().filter(|entry| entry.name() == Some("api.refused"));
    told.inspect(|entry| assert!(entry.is_hidden())).map(|entry: &Entry| entry.payload["data"].clone()).collect()
}

/// That the tape tells of every method that was refused.
async fn assert_refusals_recorded(conversation: &TestConversation, code: ApiErrorCode, but_not: &[ApiMethod]) {
    let told = refused_calls(conversation).await;
    for method in ApiMethod::METHODS.iter().filter(|method| !but_not.contains(method)) {
        let is_told = |data: &&Value| data["method"] == method.as_str() && data["code"] == code.to_string();
        let data = told.iter().find(is_told).unwrap_or_else(|| panic!("nothing is told of {method}: {told:?}"));
        assert!(!data["detail"].as_str().unwrap().is_empty());
    }
}

/// What a runner may always ask: it is shown what its grant covers, which is nothing.
const ALWAYS_ALLOWED_METHODS: [ApiMethod; 1] = [ApiMethod::ToolsList];
/// Methods that are given nothing that could be large.
const METHODS_WITHOUT_PAYLOAD: [ApiMethod; 10] = [
    ApiMethod::ToolsList,
    ApiMethod::TapeView,
    ApiMethod::TapeReset,
    ApiMethod::TapeInfo,
    ApiMethod::TapeAnchors,
    ApiMethod::PromptSystem,
    ApiMethod::PromptContinuation,
    ApiMethod::SteeringTake,
    ApiMethod::SessionModel,
    ApiMethod::KnowledgeList,
];

/// Methods that are given contents, which may be larger.
const METHODS_WITH_CONTENT: [ApiMethod; 9] = [
    ApiMethod::ModelsStream,
    ApiMethod::ModelsInvoke,
    ApiMethod::ModelsCountTokens,
    ApiMethod::ModelsRerank,
    ApiMethod::ToolsCall,
    ApiMethod::TapeSay,
    ApiMethod::ArtifactsCreate,
    ApiMethod::RunsChild,
    ApiMethod::StoragePut,
];

/// A handle that a runner has kept, to be used when it should not be.
#[derive(Clone, Default)]
struct LeakedApi(Arc<Mutex<Option<RunApi>>>);

impl LeakedApi {
    fn store(&self, api: RunApi) {
        self.0.lock().unwrap().get_or_insert(api);
    }

    fn api(&self) -> RunApi {
        self.0.lock().unwrap().clone().unwrap()
    }
}

/// A runner that keeps its handle and is done.
fn leaking_plugin(stolen: &LeakedApi) -> impl Plugin + use<> {
    let stolen = stolen.clone();
    action_runner_plugin(PermissionSet::all(), move |_, api| {
        stolen.store(api);
        async {}
    })
}

#[tokio::test]
async fn k04_a_runner_with_an_empty_grant_is_refused_everything() {
    let attempts = AttemptResults::default();
    let (seen, listed) = (Arc::clone(&attempts), Arc::new(Mutex::new(None)));
    let list = Arc::clone(&listed);
    let plugin = action_runner_plugin(PermissionSet::none(), move |_, api| {
        let (seen, list) = (Arc::clone(&seen), Arc::clone(&list));
        async move {
            call_all_methods(&api, "x", &seen).await;
            *list.lock().unwrap() = Some(api.tools.list().await);
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &ALWAYS_ALLOWED_METHODS);
    assert_eq!(listed.lock().unwrap().take(), Some(Ok([].into())));
    assert_refusals_recorded(&conversation, ApiErrorCode::Unauthorized, &ALWAYS_ALLOWED_METHODS).await;
    assert_eq!(refused_calls(&conversation).await.len(), ApiMethod::METHODS.len() - ALWAYS_ALLOWED_METHODS.len());
}

#[tokio::test]
async fn k04_a_handle_that_outlives_its_run_is_refused() {
    let (stolen, attempts) = (LeakedApi::default(), AttemptResults::default());
    let conversation = permissive_conversation(leaking_plugin(&stolen)).await;
    conversation.send_message("go").await;
    let before = conversation.entries().await.len();
    call_all_methods(&stolen.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::Unauthorized, &[]).await;
    let after = conversation.entries().await;
    assert_eq!(after.len() - before, ApiMethod::METHODS.len(), "and nothing else was written");
    assert!(matches!(conversation.send_message("again").await.outcome, Some(Outcome::Silent)), "the session goes on");
}

#[tokio::test]
async fn k04_the_handle_of_another_run_is_refused_while_that_run_goes_on() {
    let (stolen, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (has_begun, is_done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (handle, seen, begun, done) =
        (stolen.clone(), Arc::clone(&attempts), Arc::clone(&has_begun), Arc::clone(&is_done));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (handle, seen) = (handle.clone(), Arc::clone(&seen));
        let (begun, done) = (Arc::clone(&begun), Arc::clone(&done));
        async move {
            if context.input.plain_text() == "victim" {
                handle.store(api);
                begun.add_permits(1);
                done.acquire().await.unwrap().forget();
            } else {
                call_all_methods(&handle.api(), "x", &seen).await;
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let act = async {
        has_begun.acquire().await.unwrap().forget();
        let thief = conversation.host.serve(Event::message("cli", "another", "thief")).await.unwrap();
        is_done.add_permits(1);
        thief
    };
    let (victim, thief) = tokio::join!(conversation.send_message("victim"), act);
    assert_eq!((victim.outcome, thief.outcome), (Some(Outcome::Silent), Some(Outcome::Silent)));
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    let store = conversation.host.tapes().store();
    let run = store.run(&victim.run_id.unwrap()).await.unwrap().unwrap();
    let entries = conversation.host.tapes().read(&run.tape, &capstan::tape::TapeSlice::all()).await.unwrap();
    let told = entries.iter().filter(|entry| entry.name() == Some("api.refused")).count();
    assert_eq!(told, ApiMethod::METHODS.len(), "it stands where the handle belongs");
}

#[tokio::test]
async fn k04_past_its_deadline_a_run_is_refused_everything() {
    let (stolen, attempts) = (LeakedApi::default(), AttemptResults::default());
    let handle = stolen.clone();
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        handle.store(api);
        std::future::pending()
    });
    let conversation = TestConversation::new(|builder| builder.plugin(plugin).set("run_timeout_seconds", "1")).await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    call_all_methods(&stolen.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::DeadlineExceeded, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::DeadlineExceeded, &[]).await;
}

#[tokio::test]
async fn k04_the_handle_of_a_child_that_has_ended_is_refused_and_its_session_is_told() {
    let (stolen, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (handle, seen) = (stolen.clone(), Arc::clone(&attempts));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (handle, seen) = (handle.clone(), Arc::clone(&seen));
        async move {
            if context.adapter.prompt.is_some_and(|prompt| prompt.text() == "child") {
                handle.store(api);
                return;
            }
            let ended = api.runs.child(ChildRunCall::new("child")).await.unwrap();
            assert_eq!(ended.run_id, handle.api().run_id);
            call_all_methods(&handle.api(), "x", &seen).await;
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::Unauthorized, &[]).await;
}

#[tokio::test]
async fn k04_a_run_that_was_cancelled_is_refused_everything() {
    let (stolen, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (handle, has_begun) = (stolen.clone(), Arc::new(Semaphore::new(0)));
    let begun = Arc::clone(&has_begun);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        handle.store(api);
        begun.add_permits(1);
        std::future::pending()
    });
    let conversation = permissive_conversation(plugin).await;
    let cancel = async {
        has_begun.acquire().await.unwrap().forget();
        conversation.host.cancel();
    };
    let (served, ()) = tokio::join!(conversation.send_message("go"), cancel);
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    call_all_methods(&stolen.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::DeadlineExceeded, &[]);
}

#[tokio::test]
async fn k04_what_goes_on_elsewhere_ends_with_its_run() {
    let slow = tools_plugin(|| vec![test_tool("slow", |_, _| std::future::pending())]);
    let task = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&task);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let kept = Arc::clone(&kept);
        async move {
            let has_begun = Arc::new(Semaphore::new(0));
            let begun = Arc::clone(&has_begun);
            let call = tokio::spawn(async move {
                let mut call = api.tools.call(vec![ToolCall::new("call", "slow", "{}")]);
                assert!((&mut call).now_or_never().is_none());
                begun.add_permits(1);
                call.await
            });
            has_begun.acquire().await.unwrap().forget();
            *kept.lock().unwrap() = Some(call);
        }
    });
    let conversation = TestConversation::new(|builder| builder.plugin(plugin).plugin(slow)).await;
    conversation.send_message("go").await;
    let call = task.lock().unwrap().take().unwrap();
    assert_eq!(call.await.unwrap().unwrap_err().code, ApiErrorCode::Unauthorized);
}

#[tokio::test]
async fn k04_what_is_too_large_is_refused() {
    let attempts = AttemptResults::default();
    let seen = Arc::clone(&attempts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let seen = Arc::clone(&seen);
        async move {
            let (large, larger) = ("x".repeat(1024 * 1024 + 1), "x".repeat(64 * 1024 * 1024 + 1));
            for method in ApiMethod::METHODS {
                let text = if METHODS_WITH_CONTENT.contains(method) { &larger } else { &large };
                let result = call_method(&api, *method, text).await;
                seen.lock().unwrap().insert(*method, result);
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.send_message("go").await;
    assert_refused(&attempts, ApiErrorCode::PayloadTooLarge, &METHODS_WITHOUT_PAYLOAD);
    assert_refusals_recorded(&conversation, ApiErrorCode::PayloadTooLarge, &METHODS_WITHOUT_PAYLOAD).await;
}

#[tokio::test]
async fn k04_a_run_that_asks_too_often_is_refused_and_told_to_try_again() {
    let attempts = AttemptResults::default();
    let seen = Arc::clone(&attempts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let seen = Arc::clone(&seen);
        async move {
            // As many calls as may be served at once.
            let waiting = |number: usize| {
                let api = api.clone();
                async move { api.tools.call(vec![ToolCall::new(format!("call_{number}"), "slow", "{}")]).await }
            };
            let mut calls: FuturesUnordered<_> = (0..64).map(waiting).collect();
            assert!(calls.next().now_or_never().is_none());
            call_all_methods(&api, "x", &seen).await;
        }
    });
    let slow = tools_plugin(|| vec![test_tool("slow", |_, _| std::future::pending())]);
    let conversation = TestConversation::new(|builder| builder.plugin(plugin).plugin(slow)).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_refused(&attempts, ApiErrorCode::RateLimited, &[]);
    assert!(attempts.lock().unwrap().values().all(|result| result.as_ref().unwrap_err().retryable));
    assert_refusals_recorded(&conversation, ApiErrorCode::RateLimited, &[]).await;
}

#[tokio::test]
async fn k04_a_flood_is_refused_and_leaves_a_bounded_record() {
    let refused = Arc::new(Mutex::new(0_u64));
    let count = Arc::clone(&refused);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let count = Arc::clone(&count);
        async move {
            while *count.lock().unwrap() < 150 {
                if let Err(error) = api.tools.list().await {
                    assert!(error.code == ApiErrorCode::RateLimited && error.retryable);
                    *count.lock().unwrap() += 1;
                }
            }
        }
    });
    let conversation = TestConversation::new(|builder| builder.plugin(plugin).set("api_calls_per_second", "5")).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    let told = refused_calls(&conversation).await;
    assert_eq!(told.len(), 101);
    assert_eq!(told[100], serde_json::json!({"more": 50}));
}
