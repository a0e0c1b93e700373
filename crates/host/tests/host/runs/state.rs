//! Runner state and storage: visibility, limits, administration and removal.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ChildRunCall, NewArtifact, ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::state_admin::{StateAdmin, StateAdminError};
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_policy::default_binding;
use capstan_protocol::Clock;
use capstan_protocol::{
    ApiErrorCode, Binding, BlobHash, Descriptor, Event, JsonObject, Outcome, PermissionSet, ResultBody, RunContext,
    RunResult, StateLimits, StatePolicy, StateScope, StorageArea,
};
use capstan_tape::TapeAddress;
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::sync::Barrier;

use super::api_runner::{action_runner_plugin, permissive_binding, permissive_conversation};

/// Runner that yields a value for each key, and replies with the value it reads for the last one.
struct StateKeysRunner(&'static [&'static str]);

impl Runner for StateKeysRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "state") }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let (keys, scope) = (self.0, StateScope::Conversation);
        let update = move |key: &&str| {
            let state = JsonObject::from_iter([((*key).to_owned(), json!(1))]);
            RunResult::from(ResultBody::StateUpdated { scope, state })
        };
        let found = async move {
            let found = api.state.get(scope, keys[keys.len() - 1]).await.unwrap();
            let content = format!("{found:?}").into();
            RunResult::from(ResultBody::MessageCompleted { content, provider_meta: JsonObject::new() })
        };
        let done = RunResult::from(ResultBody::RunCompleted { silent: false });
        stream::iter(keys.iter().map(update)).chain(stream::once(found)).chain(stream::iter([done])).boxed()
    }
}

fn state_plugin(keys: &'static [&'static str]) -> impl Plugin {
    ClosurePlugin::new("state", move |hooks: &mut HookRegistrar| {
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(StateKeysRunner(keys)) as Arc<dyn Runner>])));
    })
}

/// Conversation with [`StateKeysRunner`] under a binding that allows `max_keys` keys.
async fn conversation_with_key_limit(keys: &'static [&'static str], max_keys: u64) -> TestHost {
    let limits = StateLimits { keys: max_keys, ..StateLimits::default() };
    let state_policy = StatePolicy { enabled: true, limits, ..StatePolicy::default() };
    let binding = Binding { state_policy, ..default_binding() };
    TestHost::builder().agent_plugin(state_plugin(keys)).binding(binding).start().await
}

async fn stored_keys(conversation: &TestHost) -> Vec<String> {
    let store = conversation.tapes().store();
    let Some(namespace) = store.namespaces("state:").collect().await.unwrap().pop() else { return Vec::new() };
    let records = store.key_value_page(&namespace.space, None, 100).await.unwrap();
    records.into_iter().map(|record| record.key).collect()
}

#[tokio::test]
async fn g06_a_run_reads_its_own_state_updates_at_once() {
    let conversation = conversation_with_key_limit(&["a", "b"], 10).await;
    assert_eq!(conversation.send_message("go").await.output, "Some(Number(1))");
    assert_eq!(stored_keys(&conversation).await, ["a", "b"]);
}

#[tokio::test]
async fn g06_earlier_updates_of_a_run_count_towards_its_limits() {
    let conversation = conversation_with_key_limit(&["a", "b", "c", "a"], 2).await;
    conversation.send_message("go").await;
    assert_eq!(stored_keys(&conversation).await, ["a", "b"], "a third key exceeds the limit, an existing key does not");
    let tapes = conversation.tapes().list().await.unwrap();
    let session = tapes.iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:local")).unwrap();
    let entries = conversation.tapes().read(&session.name, &capstan_tape::TapeSlice::all()).await.unwrap();
    let names: Vec<&str> = entries.iter().filter_map(capstan_tape::Entry::name).collect();
    let count = |name: &str| names.iter().filter(|known| **known == name).count();
    assert_eq!((count("state.changed"), count("result.dropped")), (3, 1));
}

#[tokio::test]
async fn g06_namespace_limits_apply_to_all_runs_together() {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let (recorded, barrier) = (Arc::clone(&refused), Arc::new(Barrier::new(8)));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (recorded, barrier) = (Arc::clone(&recorded), Arc::clone(&barrier));
        async move {
            let key = context.input.plain_text();
            barrier.wait().await;
            let (state, storage) = tokio::join!(
                api.state.set(StateScope::Runner, key, json!(1)),
                api.storage.put(StorageArea::Workspace, key, vec![0; 1024]),
            );
            storage.unwrap();
            recorded.lock().unwrap().extend(state.err());
        }
    });
    let conversation = TestEnvironment::on_disk().host().agent_plugin(plugin).start().await;
    let host = &conversation;
    let limits = StateLimits { keys: 3, ..StateLimits::default() };
    let binding =
        Binding { state_policy: StatePolicy { limits, ..permissive_binding().state_policy }, ..permissive_binding() };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("s{number}")).collect();
    let served = join_all(names.iter().map(|name| host.serve(Event::message("cli", name.as_str(), name)))).await;
    assert!(served.into_iter().all(|served| served.unwrap().outcome == Some(Outcome::Silent)));
    assert_eq!(stored_keys(&conversation).await.len(), 3);
    let storage = host.tapes().store().namespaces("storage:").collect().await.unwrap();
    assert_eq!((storage.len(), storage[0].rows), (1, 8), "conflicting writes are retried");
    let refused = refused.lock().unwrap();
    assert!(
        refused.len() == 5 && refused.iter().all(|error| error.code == ApiErrorCode::PayloadTooLarge),
        "{refused:?}"
    );
}

/// Runner that yields one state key and completes once all parties of the barrier have done so.
struct StateUpdateRunner(Arc<Barrier>);

impl Runner for StateUpdateRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "yields") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let state = JsonObject::from_iter([(context.input.plain_text().to_owned(), json!(1))]);
        let update = RunResult::from(ResultBody::StateUpdated { scope: StateScope::Runner, state });
        let barrier = Arc::clone(&self.0);
        let end = async move {
            barrier.wait().await;
            RunResult::from(ResultBody::RunCompleted { silent: true })
        };
        stream::iter([update]).chain(stream::once(end)).boxed()
    }
}

#[tokio::test]
async fn g06_updates_of_open_runs_count_towards_the_namespace_limits() {
    let barrier = Arc::new(Barrier::new(4));
    let plugin = ClosurePlugin::new("yields", move |hooks: &mut HookRegistrar| {
        let barrier = Arc::clone(&barrier);
        hooks.on_sync(ProvideRunners, move || {
            Ok(Some(vec![Arc::new(StateUpdateRunner(barrier.clone())) as Arc<dyn Runner>]))
        });
    });
    let conversation = TestHost::builder().agent_plugin(plugin).start().await;
    let host = &conversation;
    let limits = StateLimits { keys: 1, ..StateLimits::default() };
    let binding =
        Binding { state_policy: StatePolicy { limits, ..permissive_binding().state_policy }, ..permissive_binding() };
    host.bindings().save(&binding, &host.runners()).await.unwrap();
    let names: Vec<String> = (0..4).map(|number| format!("s{number}")).collect();
    let served = join_all(names.iter().map(|name| host.serve(Event::message("cli", name.as_str(), name)))).await;
    assert!(served.into_iter().all(|served| served.unwrap().outcome == Some(Outcome::Silent)), "no turn fails");
    assert_eq!(stored_keys(&conversation).await.len(), 1);
    let mut event_names = Vec::new();
    for tape in host.tapes().list().await.unwrap() {
        let entries = host.tapes().read(&tape.name, &capstan_tape::TapeSlice::all()).await.unwrap();
        event_names.extend(entries.iter().filter_map(capstan_tape::Entry::name).map(str::to_owned));
    }
    let count = |name: &str| event_names.iter().filter(|known| *known == name).count();
    assert_eq!((count("state.changed"), count("result.dropped")), (1, 3), "each dropped update is recorded");
}

#[tokio::test]
async fn g06_a_child_run_shares_the_state_of_its_session() {
    let child_value = Arc::new(Mutex::new(None));
    let runner_value = Arc::clone(&child_value);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let child_value = Arc::clone(&runner_value);
        async move {
            let scope = StateScope::Conversation;
            if context.adapter.prompt.is_some_and(|prompt| prompt.text() == "child") {
                *child_value.lock().unwrap() = api.state.get(scope, "of the parent").await.unwrap();
                return api.state.set(scope, "of the child", json!(2)).await.unwrap();
            }
            api.state.set(scope, "of the parent", json!(1)).await.unwrap();
            api.runs.child(ChildRunCall::new("child")).await.unwrap();
            assert_eq!(api.state.get(scope, "of the child").await.unwrap(), Some(json!(2)));
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.outcome, Some(Outcome::Silent), "{:?}", served.error);
    assert_eq!(child_value.lock().unwrap().take(), Some(json!(1)));
    assert_eq!(conversation.tapes().store().namespaces("state:").collect().await.unwrap().len(), 1);
}

/// State administration of the operator.
fn state_admin(conversation: &TestHost) -> StateAdmin {
    let system = TapeAddress { workspace: "w".into(), session: "system".into() };
    StateAdmin::new(conversation.tapes().clone(), Clock::system(), system)
}

#[tokio::test]
async fn g06_a_namespace_changed_after_it_was_listed_is_not_cleared() {
    let conversation = conversation_with_key_limit(&["a"], 10).await;
    conversation.send_message("go").await;
    let admin = state_admin(&conversation);
    let old = admin.list().await.unwrap().remove(0);
    admin.set(&old.namespace, "b", json!(2), StateLimits::default()).await.unwrap();
    assert!(!admin.clear_if_unchanged(&old, "nothing changed for 30 days").await.unwrap());
    assert_eq!(stored_keys(&conversation).await, ["a", "b"]);
    let unchanged = admin.list().await.unwrap().remove(0);
    assert!(admin.clear_if_unchanged(&unchanged, "nothing changed for 30 days").await.unwrap());
    assert_eq!(stored_keys(&conversation).await, [""; 0]);
}

#[tokio::test]
async fn g06_a_too_deeply_nested_value_is_rejected_by_state_administration() {
    let conversation = conversation_with_key_limit(&["a"], 10).await;
    conversation.send_message("go").await;
    let (admin, nested) = (state_admin(&conversation), (0..101).fold(json!(1), |inner, _| json!([inner])));
    let namespace = admin.list().await.unwrap().remove(0).namespace;
    let refused = admin.set(&namespace, "deep", nested, StateLimits::default()).await.unwrap_err();
    assert!(matches!(refused, StateAdminError::Invalid { .. }), "{refused}");
}

/// Blob hashes of the stored contents, in the order of their names.
async fn storage_blobs(conversation: &TestHost) -> Vec<BlobHash> {
    let store = conversation.tapes().store();
    let Some(namespace) = store.namespaces("storage:").collect().await.unwrap().pop() else { return Vec::new() };
    let records = store.key_value_page(&namespace.space, None, 100).await.unwrap();
    records.iter().map(|record| BlobHash::new(record.value["own"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn g06_deleting_a_name_removes_its_content_and_keeps_equal_contents() {
    let plugin = action_runner_plugin(PermissionSet::all(), |context, api| async move {
        let area = StorageArea::Plugin;
        let content = || b"the same".to_vec();
        match context.input.plain_text() {
            "put" => {
                let new = NewArtifact { name: "a".to_owned(), media_type: "text/plain".to_owned(), content: content() };
                let artifact = api.artifacts.create(new).await.unwrap();
                let [one, two] = [api.storage.put(area, "one", content()), api.storage.put(area, "two", content())];
                assert_eq!((one.await.unwrap().hash, two.await.unwrap().hash), (artifact.hash.clone(), artifact.hash));
            }
            "put again" => drop(api.storage.put(area, "one", b"another".to_vec()).await.unwrap()),
            _ => assert!(api.storage.delete(area, "one").await.unwrap()),
        }
        assert_eq!(api.storage.get(area, "two").await.unwrap().content, content());
    });
    let conversation = permissive_conversation(plugin).await;
    let store = conversation.tapes().store();
    let blobs_exist = async |blobs: &[BlobHash]| {
        let mut exist = Vec::new();
        for blob in blobs {
            exist.push(store.blob(blob).await.unwrap().is_some());
        }
        exist
    };
    conversation.send_message("put").await;
    let first = storage_blobs(&conversation).await;
    assert_eq!(blobs_exist(&first).await, [true, true]);
    conversation.send_message("put again").await;
    assert_eq!(blobs_exist(&first).await, [false, true], "the replaced content is removed");
    let second = storage_blobs(&conversation).await;
    let served = conversation.send_message("delete").await;
    assert_eq!(served.outcome, Some(Outcome::Silent), "{:?}", served.error);
    assert_eq!(blobs_exist(&second).await, [false, true]);
    let artifact = serde_json::from_value(conversation.event_data("artifact.created").await.remove(0)).unwrap();
    let content = conversation.tapes().artifact_content(&artifact).await.unwrap();
    assert_eq!(content.as_deref(), Some(&b"the same"[..]), "the artifact with equal content remains");
    let admin = state_admin(&conversation);
    let summary = admin.list().await.unwrap().remove(0);
    assert_eq!(admin.clear(&summary.namespace, "asked for").await.unwrap(), 1);
    assert_eq!(blobs_exist(&second).await, [false, false], "clearing removes contents");
}
