//! Runner that calls every run-API method without permission: each call is refused with the right code and recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::Plugin;
use capstan_hooks::contracts::{ApiMethod, ChildRunCall, RunApi};
use capstan_host::testing::TestHost;
use capstan_protocol::{ApiError, ApiErrorCode, Event, Outcome, PermissionSet, ToolCall};
use capstan_tape::Entry;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::api_runner::{action_runner_plugin, call_method, permissive_conversation};
use super::support::{test_tool, tools_plugin};

/// Result of one call of each method.
type AttemptResults = Arc<Mutex<BTreeMap<ApiMethod, Result<(), ApiError>>>>;

async fn call_all_methods(api: &RunApi, text: &str, attempts: &AttemptResults) {
    for method in ApiMethod::METHODS {
        let result = call_method(api, *method, text).await;
        attempts.lock().unwrap().insert(*method, result);
    }
}

/// Asserts that every method except `exceptions` was called and refused with `code`.
#[track_caller]
fn assert_refused(attempts: &AttemptResults, code: ApiErrorCode, exceptions: &[ApiMethod]) {
    let attempts = attempts.lock().unwrap();
    assert_eq!(attempts.len(), ApiMethod::METHODS.len(), "every method was called");
    for (method, result) in attempts.iter().filter(|(method, _)| !exceptions.contains(method)) {
        match result {
            Ok(()) => panic!("{method} was not refused"),
            Err(error) => assert_eq!(error.code, code, "{method}: {error}"),
        }
    }
}

/// Data of the recorded refusals.
async fn refused_calls(conversation: &TestHost) -> Vec<Value> {
    let entries = conversation.entries().await;
    let refusals = entries.iter().filter(|entry| entry.name() == Some("api.refused"));
    refusals.inspect(|entry| assert!(entry.is_hidden())).map(|entry: &Entry| entry.payload["data"].clone()).collect()
}

/// Asserts that a refusal with `code` is recorded for every method except `exceptions`.
async fn assert_refusals_recorded(conversation: &TestHost, code: ApiErrorCode, exceptions: &[ApiMethod]) {
    let refusals = refused_calls(conversation).await;
    for method in ApiMethod::METHODS.iter().filter(|method| !exceptions.contains(method)) {
        let is_refusal = |data: &&Value| data["method"] == method.as_str() && data["code"] == code.to_string();
        let data = refusals.iter().find(is_refusal).unwrap_or_else(|| panic!("no refusal of {method}: {refusals:?}"));
        assert!(!data["detail"].as_str().unwrap().is_empty());
    }
}

/// Methods that need no permission: the list of tools is empty under an empty grant.
const ALWAYS_ALLOWED_METHODS: [ApiMethod; 2] = [ApiMethod::ToolsList, ApiMethod::PlatformList];
/// Methods without an argument that could be large.
const METHODS_WITHOUT_PAYLOAD: [ApiMethod; 14] = [
    ApiMethod::TapeFork,
    ApiMethod::ModelsList,
    ApiMethod::SteeringPull,
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
    ApiMethod::PlatformList,
];

/// Methods with content arguments, which have a larger limit.
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

/// Run-API handle that a runner has stored, for use outside its run.
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

/// Plugin with a runner that stores its handle and completes.
fn leaking_plugin(leaked: &LeakedApi) -> impl Plugin + use<> {
    let leaked = leaked.clone();
    action_runner_plugin(PermissionSet::all(), move |_, api| {
        leaked.store(api);
        async {}
    })
}

#[tokio::test]
async fn k04_a_runner_with_an_empty_grant_is_refused_every_method() {
    let attempts = AttemptResults::default();
    let (recorded, listed) = (Arc::clone(&attempts), Arc::new(Mutex::new(None)));
    let list = Arc::clone(&listed);
    let plugin = action_runner_plugin(PermissionSet::none(), move |_, api| {
        let (recorded, list) = (Arc::clone(&recorded), Arc::clone(&list));
        async move {
            call_all_methods(&api, "x", &recorded).await;
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
async fn k04_a_handle_is_refused_after_its_run() {
    let (leaked, attempts) = (LeakedApi::default(), AttemptResults::default());
    let conversation = permissive_conversation(leaking_plugin(&leaked)).await;
    conversation.send_message("go").await;
    let before = conversation.entries().await.len();
    call_all_methods(&leaked.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::Unauthorized, &[]).await;
    let after = conversation.entries().await;
    assert_eq!(after.len() - before, ApiMethod::METHODS.len(), "only the refusals were written");
    assert!(matches!(conversation.send_message("again").await.outcome, Some(Outcome::Silent)), "the session continues");
}

#[tokio::test]
async fn k04_the_handle_of_another_active_run_is_refused() {
    let (leaked, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (has_started, is_done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (handle, recorded, started, done) =
        (leaked.clone(), Arc::clone(&attempts), Arc::clone(&has_started), Arc::clone(&is_done));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (handle, recorded) = (handle.clone(), Arc::clone(&recorded));
        let (started, done) = (Arc::clone(&started), Arc::clone(&done));
        async move {
            if context.input.plain_text() == "victim" {
                handle.store(api);
                started.add_permits(1);
                done.acquire().await.unwrap().forget();
            } else {
                call_all_methods(&handle.api(), "x", &recorded).await;
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let act = async {
        has_started.acquire().await.unwrap().forget();
        let thief = conversation.serve(Event::message("cli", "another", "thief")).await.unwrap();
        is_done.add_permits(1);
        thief
    };
    let (victim, thief) = tokio::join!(conversation.send_message("victim"), act);
    assert_eq!((victim.outcome, thief.outcome), (Some(Outcome::Silent), Some(Outcome::Silent)));
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    let store = conversation.tapes().store();
    let run = store.run(&victim.run_id.unwrap()).await.unwrap().unwrap();
    let entries = conversation.tapes().read(&run.tape, &capstan_tape::TapeSlice::all()).await.unwrap();
    let refusals = entries.iter().filter(|entry| entry.name() == Some("api.refused")).count();
    assert_eq!(refusals, ApiMethod::METHODS.len(), "refusals are recorded on the tape of the handle");
}

#[tokio::test]
async fn k04_a_run_past_its_deadline_is_refused_every_method() {
    let (leaked, attempts) = (LeakedApi::default(), AttemptResults::default());
    let handle = leaked.clone();
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        handle.store(api);
        std::future::pending()
    });
    let conversation = TestHost::builder()
        .agent_plugin(plugin)
        .options(|options| options.run_timeout = Duration::from_secs(1))
        .start()
        .await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    call_all_methods(&leaked.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::DeadlineExceeded, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::DeadlineExceeded, &[]).await;
}

#[tokio::test]
async fn g04_a_runner_that_blocks_its_thread_past_the_deadline_is_timed_out() {
    let timeout = Duration::from_millis(200);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, _| async move {
        // Blocks without yielding, so that no timer can end the run.
        let started_at = std::time::Instant::now();
        while started_at.elapsed() < timeout * 2 {
            std::hint::spin_loop();
        }
    });
    let conversation =
        TestHost::builder().agent_plugin(plugin).options(|options| options.run_timeout = timeout).start().await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.error.unwrap().code(), "run-timeout");
    let run = conversation.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
    assert_eq!(run.status, capstan_tape::RunStatus::Timeout);
}

#[tokio::test]
async fn k04_a_search_of_too_many_words_is_refused() {
    let found = Arc::new(Mutex::new(Vec::new()));
    let results = Arc::clone(&found);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let results = Arc::clone(&results);
        async move {
            for words in [32, 33] {
                let text = "word ".repeat(words);
                let tape = api.tape.search(&text, 5).await.map(drop).map_err(|error| error.code);
                let history = api.history.search(None, &text, 5).await.map(drop).map_err(|error| error.code);
                results.lock().unwrap().extend([tape, history]);
            }
        }
    });
    let conversation = TestHost::builder().agent_plugin(plugin).start().await;
    conversation.send_message("go").await;
    let refused = Err(ApiErrorCode::InvalidArgument);
    assert_eq!(*found.lock().unwrap(), [Ok(()), Ok(()), refused, refused]);
}

#[tokio::test]
async fn k04_the_handle_of_an_ended_child_is_refused_on_the_tape_of_the_session() {
    let (leaked, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (handle, recorded) = (leaked.clone(), Arc::clone(&attempts));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (handle, recorded) = (handle.clone(), Arc::clone(&recorded));
        async move {
            if context.adapter.prompt.is_some_and(|prompt| prompt.text() == "child") {
                handle.store(api);
                return;
            }
            let ended = api.runs.child(ChildRunCall::new("child")).await.unwrap();
            assert_eq!(ended.run_id, handle.api().run_id);
            call_all_methods(&handle.api(), "x", &recorded).await;
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_refused(&attempts, ApiErrorCode::Unauthorized, &[]);
    assert_refusals_recorded(&conversation, ApiErrorCode::Unauthorized, &[]).await;
}

#[tokio::test]
async fn k04_a_cancelled_run_is_refused_every_method() {
    let (leaked, attempts) = (LeakedApi::default(), AttemptResults::default());
    let (handle, has_started) = (leaked.clone(), Arc::new(Semaphore::new(0)));
    let started = Arc::clone(&has_started);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        handle.store(api);
        started.add_permits(1);
        std::future::pending()
    });
    let conversation = permissive_conversation(plugin).await;
    let cancel = async {
        has_started.acquire().await.unwrap().forget();
        conversation.cancel_all_runs();
    };
    let (served, ()) = tokio::join!(conversation.send_message("go"), cancel);
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    call_all_methods(&leaked.api(), "x", &attempts).await;
    assert_refused(&attempts, ApiErrorCode::DeadlineExceeded, &[]);
}

#[tokio::test]
async fn k04_a_spawned_call_ends_with_its_run() {
    let slow = tools_plugin(|| vec![test_tool("slow", |_, _| std::future::pending())]);
    let task = Arc::new(Mutex::new(None));
    let task_slot = Arc::clone(&task);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let task_slot = Arc::clone(&task_slot);
        async move {
            let has_started = Arc::new(Semaphore::new(0));
            let started = Arc::clone(&has_started);
            let call = tokio::spawn(async move {
                let mut call = Box::pin(api.tools.call(vec![ToolCall::new("call", "slow", "{}")]));
                assert!((&mut call).now_or_never().is_none());
                started.add_permits(1);
                call.await
            });
            has_started.acquire().await.unwrap().forget();
            *task_slot.lock().unwrap() = Some(call);
        }
    });
    let conversation = TestHost::builder().agent_plugin(plugin).plugin(slow).start().await;
    conversation.send_message("go").await;
    let call = task.lock().unwrap().take().unwrap();
    assert_eq!(call.await.unwrap().unwrap_err().code, ApiErrorCode::Unauthorized);
}

#[tokio::test]
async fn k04_oversized_arguments_are_refused() {
    let attempts = AttemptResults::default();
    let recorded = Arc::clone(&attempts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let (large, larger) = ("x".repeat(1024 * 1024 + 1), "x".repeat(64 * 1024 * 1024 + 1));
            for method in ApiMethod::METHODS {
                let text = if METHODS_WITH_CONTENT.contains(method) { &larger } else { &large };
                let result = call_method(&api, *method, text).await;
                recorded.lock().unwrap().insert(*method, result);
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.send_message("go").await;
    assert_refused(&attempts, ApiErrorCode::PayloadTooLarge, &METHODS_WITHOUT_PAYLOAD);
    assert_refusals_recorded(&conversation, ApiErrorCode::PayloadTooLarge, &METHODS_WITHOUT_PAYLOAD).await;
}

#[tokio::test]
async fn k04_too_many_parallel_calls_are_refused_as_retryable() {
    let attempts = AttemptResults::default();
    let recorded = Arc::clone(&attempts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            // The maximum number of parallel calls.
            let pending_call = |number: usize| {
                let api = api.clone();
                async move { api.tools.call(vec![ToolCall::new(format!("call_{number}"), "slow", "{}")]).await }
            };
            let mut calls: FuturesUnordered<_> = (0..64).map(pending_call).collect();
            assert!(calls.next().now_or_never().is_none());
            call_all_methods(&api, "x", &recorded).await;
        }
    });
    let slow = tools_plugin(|| vec![test_tool("slow", |_, _| std::future::pending())]);
    let conversation = TestHost::builder().agent_plugin(plugin).plugin(slow).start().await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_refused(&attempts, ApiErrorCode::RateLimited, &[]);
    assert!(attempts.lock().unwrap().values().all(|result| result.as_ref().unwrap_err().retryable));
    assert_refusals_recorded(&conversation, ApiErrorCode::RateLimited, &[]).await;
}

#[tokio::test]
async fn k04_a_flood_of_calls_is_refused_with_a_bounded_record() {
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
    let conversation = TestHost::builder()
        .agent_plugin(plugin)
        .options(|options| options.limits.api.calls_per_second = 5)
        .start()
        .await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    let refusals = refused_calls(&conversation).await;
    assert_eq!(refusals.len(), 101);
    assert_eq!(refusals[100], serde_json::json!({"more": 50}));
}
