//! Run API as a runner sees it: state, storage, history, events, models and tools.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ModelCall, PageRequest, RunApi};
use capstan_host::testing::TestHost;
use capstan_protocol::{
    ApiErrorCode, Binding, ChatMessage, Event, EventId, MessageRole, Outcome, PermissionSet, ReadScope, ResourceAccess,
    ResourcePolicy, StateScope, StorageArea, ToolCall, ToolOutput,
};
use capstan_tape::{EntryKind, EntryOrder};
use serde_json::json;

use super::api_runner::{action_runner_plugin, permissive_binding, permissive_conversation};
use super::support::{test_tool, tools_plugin};

/// Runs `act` with the API of a run that has all permissions.
async fn run_with_api<F>(act: impl Fn(RunApi) -> F + Send + Sync + 'static) -> TestHost
where
    F: Future<Output = ()> + Send + 'static,
{
    let completed = Arc::new(Mutex::new(false));
    let runner_completed = Arc::clone(&completed);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let (work, completed) = (act(api), Arc::clone(&runner_completed));
        async move {
            work.await;
            *completed.lock().unwrap() = true;
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert!(*completed.lock().unwrap(), "the runner completed");
    conversation
}

#[tokio::test]
async fn g06_state_is_set_read_listed_and_deleted() {
    let conversation = run_with_api(|api| async move {
        let scope = StateScope::Conversation;
        for key in ["a", "b", "c"] {
            api.state.set(scope, key, json!({ "of": key })).await.unwrap();
        }
        assert_eq!(api.state.get(scope, "b").await.unwrap(), Some(json!({"of": "b"})));
        assert_eq!(api.state.get(StateScope::Workspace, "b").await.unwrap(), None, "scopes are separate");
        let first = api.state.list(scope, "", None, 2).await.unwrap();
        let keys = |items: &[capstan_hooks::contracts::StateEntry]| -> Vec<String> {
            items.iter().map(|item| item.key.clone()).collect()
        };
        assert_eq!(keys(&first.items), ["a", "b"]);
        let rest = api.state.list(scope, "", first.next.as_deref(), 2).await.unwrap();
        assert_eq!((keys(&rest.items), rest.next), (vec!["c".to_owned()], None));
        assert!(api.state.delete(scope, "b").await.unwrap());
        assert!(!api.state.delete(scope, "b").await.unwrap());
        assert_eq!(api.state.get(scope, "b").await.unwrap(), None);
        let foreign = api.state.list(StateScope::Workspace, "", first.next.as_deref(), 2).await.unwrap_err();
        assert_eq!(foreign.code, ApiErrorCode::InvalidArgument, "a cursor is valid for its own list only");
        let large = api.state.set(scope, "large", json!("x".repeat(70_000))).await.unwrap_err();
        assert_eq!(large.code, ApiErrorCode::PayloadTooLarge);
    })
    .await;
    assert!(conversation.event_names().await.iter().any(|name| name == "state.changed"));
}

#[tokio::test]
async fn g06_keys_of_the_state_are_listed_by_their_prefix() {
    run_with_api(|api| async move {
        let scope = StateScope::Conversation;
        for key in ["a", "rule.1", "rule.2", "rule.3", "rules", "z"] {
            api.state.set(scope, key, json!(key)).await.unwrap();
        }
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = api.state.list(scope, "rule.", cursor.as_deref(), 2).await.unwrap();
            keys.push(page.items.into_iter().map(|entry| entry.key).collect::<Vec<_>>());
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(keys, [vec!["rule.1".to_owned(), "rule.2".to_owned()], vec!["rule.3".to_owned()]]);
        let none = api.state.list(scope, "b", None, 2).await.unwrap();
        assert_eq!((none.items.len(), none.next), (0, None));
    })
    .await;
}

#[tokio::test]
async fn g06_storage_names_cannot_leave_their_area() {
    let conversation = run_with_api(|api| async move {
        let area = StorageArea::Plugin;
        let stored = api.storage.put(area, "notes.txt", b"hello".to_vec()).await.unwrap();
        assert_eq!((stored.name.as_str(), stored.bytes), ("notes.txt", 5));
        api.storage.put(area, "notes.txt", b"other".to_vec()).await.unwrap();
        assert_eq!(api.storage.get(area, "notes.txt").await.unwrap().content, b"other");
        let elsewhere = api.storage.get(StorageArea::Workspace, "notes.txt").await.unwrap_err();
        assert_eq!(elsewhere.code, ApiErrorCode::NotFound, "areas are separate");
        for name in ["../notes.txt", "a/b", "a\\b", "", ".hidden", "a\0b", &"x".repeat(256)] {
            let refused = api.storage.put(area, name, Vec::new()).await.unwrap_err();
            assert_eq!(refused.code, ApiErrorCode::InvalidArgument, "{name:?}");
        }
        let too_large = api.storage.put(area, "large", vec![0; 16 * 1024 * 1024 + 1]).await.unwrap_err();
        assert_eq!(too_large.code, ApiErrorCode::PayloadTooLarge);
        let listed = api.storage.list(area, None, 10).await.unwrap();
        assert_eq!(listed.items.len(), 1, "refused contents are not stored");
        assert!(api.storage.delete(area, "notes.txt").await.unwrap());
        assert!(!api.storage.delete(area, "notes.txt").await.unwrap());
    })
    .await;
    assert!(conversation.event_names().await.iter().any(|name| name == "storage.changed"));
}

#[tokio::test]
async fn g07_history_is_paged_from_either_end() {
    run_with_api(|api| async move {
        for text in ["one", "two", "three", "four"] {
            api.tape.say(text.into()).await.unwrap();
        }
        let call = |order, cursor| PageRequest { order, cursor, limit: 3, ..PageRequest::default() };
        let mut texts = Vec::new();
        let mut cursor = None;
        loop {
            let page = api.history.page(call(EntryOrder::NewestFirst, cursor)).await.unwrap();
            texts.extend(page.items.iter().map(|message| message.text.clone()));
            assert!(
                page.items
                    .iter()
                    .all(|message| message.role == MessageRole::User && message.run_id.as_ref() == Some(&api.run_id))
            );
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(texts, ["four", "three", "two", "one"]);
        let oldest = api.history.page(call(EntryOrder::OldestFirst, None)).await.unwrap();
        assert_eq!(oldest.items[0].text, "one");
        let other_order = api.history.page(call(EntryOrder::NewestFirst, oldest.next.clone())).await.unwrap_err();
        assert_eq!(other_order.code, ApiErrorCode::InvalidArgument);
        let other_method = api.events.page(call(EntryOrder::OldestFirst, oldest.next)).await.unwrap_err();
        assert_eq!(other_method.code, ApiErrorCode::InvalidArgument);
        let found = api.history.search(None, "three", 5).await.unwrap();
        assert_eq!(found[0].text, "three");
    })
    .await;
}

#[tokio::test]
async fn k05_reading_another_conversation_needs_workspace_reach() {
    for reach in [ReadScope::Conversation, ReadScope::Workspace] {
        let results = Arc::new(Mutex::new(None));
        let runner_results = Arc::clone(&results);
        let plugin = action_runner_plugin(PermissionSet { reach, ..PermissionSet::all() }, move |context, api| {
            let results = Arc::clone(&runner_results);
            async move {
                if context.input.plain_text() == "first" {
                    api.tape.say("a secret".into()).await.unwrap();
                    return;
                }
                let session = Some("cli:one".into());
                let call = PageRequest { session: session.clone(), limit: 5, ..PageRequest::default() };
                let page = api.history.page(call.clone()).await.map(|page| page.items[0].text.clone());
                let codes = (api.history.search(session, "secret", 5).await.err(), api.events.page(call).await.err());
                let event = api.events.get(&EventId::new("first")).await.err();
                *results.lock().unwrap() = Some((page, codes, event));
            }
        });
        let conversation = permissive_conversation(plugin).await;
        let first = Event { event_id: "first".into(), ..Event::message("cli", "one", "first") };
        conversation.serve(first).await.unwrap();
        conversation.serve(Event::message("cli", "two", "second")).await.unwrap();
        let (page, (search, events), event) = results.lock().unwrap().take().unwrap();
        match reach {
            ReadScope::Conversation => {
                for error in [page.err(), search, events] {
                    assert_eq!(error.unwrap().code, ApiErrorCode::Unauthorized);
                }
                assert_eq!(event.unwrap().code, ApiErrorCode::NotFound, "the existence of the event is not revealed");
            }
            ReadScope::Workspace => {
                assert_eq!(page.unwrap(), "a secret");
                assert_eq!((search, events, event), (None, None, None));
            }
        }
    }
}

#[tokio::test]
async fn g07_an_event_is_found_by_its_id_and_the_event_log_is_paged() {
    let plugin = action_runner_plugin(PermissionSet::all(), |context, api| async move {
        let record = api.events.get(&context.event.event_id).await.unwrap();
        assert_eq!((record.event.input.plain_text(), record.outcome), ("go", None), "the event is in flight");
        let mut facts = Vec::new();
        let mut cursor = None;
        loop {
            let call = PageRequest { cursor, limit: 1, ..PageRequest::default() };
            let page = api.events.page(call).await.unwrap();
            facts.extend(page.items.iter().map(|fact| fact.name().to_owned()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let whole = api.events.page(PageRequest { limit: 100, ..PageRequest::default() }).await.unwrap();
        let mut whole: Vec<String> = whole.items.iter().map(|fact| fact.name().to_owned()).collect();
        assert_eq!(facts, whole);
        let newest = PageRequest { limit: 100, order: EntryOrder::NewestFirst, ..PageRequest::default() };
        let newest = api.events.page(newest).await.unwrap();
        whole.reverse();
        assert_eq!(newest.items.iter().map(|fact| fact.name().to_owned()).collect::<Vec<_>>(), whole);
        assert!(whole.contains(&"inbound".to_owned()), "{whole:?}");
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
}

#[tokio::test]
async fn k04_a_model_is_invoked_without_streaming_and_tokens_are_counted() {
    run_with_api(|api| async move {
        let call = ModelCall { messages: vec![ChatMessage::user("hello there")], ..ModelCall::default() };
        let counted = api.models.count_tokens(call.clone()).await.unwrap();
        assert_eq!((counted.tokens, counted.estimated), (3, true));
        let output = api.models.invoke(call).await.unwrap();
        assert!(!output.text.is_empty());
        let refused = api.models.rerank(Default::default()).await.unwrap_err();
        assert_eq!(refused.code, ApiErrorCode::NotFound, "no provider supports reranking");
    })
    .await;
}

#[tokio::test]
async fn k04_steps_of_one_runner_are_serialized() {
    let plugin = action_runner_plugin(PermissionSet::all(), |_, api| async move {
        let call = |id: &str| api.tools.call(vec![ToolCall::new(id, "count", "{}")]);
        let (one, two) = tokio::join!(call("one"), call("two"));
        assert_eq!((one.unwrap()[0].text(), two.unwrap()[0].text()), ("counted".to_owned(), "counted".to_owned()));
        // An abandoned step does not block the next one.
        let abandoned = futures::FutureExt::now_or_never(api.tools.call(vec![ToolCall::new("three", "stuck", "{}")]));
        assert!(abandoned.is_none());
        call("four").await.unwrap();
    });
    let counting = tools_plugin(|| {
        vec![
            test_tool("count", |_, _| async {
                tokio::task::yield_now().await;
                Ok(ToolOutput::ok("counted"))
            }),
            test_tool("stuck", |_, _| std::future::pending()),
        ]
    });
    let conversation = TestHost::builder().agent_plugin(plugin).plugin(counting).start().await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    let entries = conversation.entries().await;
    let steps = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::ToolCall | EntryKind::ToolResult));
    let kinds: Vec<&str> = steps.map(|entry| entry.kind.as_str()).collect();
    let step = ["tool_call", "tool_result"];
    assert_eq!(kinds, [&step[..], &step[..], &step[..1], &step[..]].concat(), "steps do not interleave");
}

#[tokio::test]
async fn x02_a_runner_cannot_write_reserved_events() {
    let conversation = run_with_api(|api| async move {
        for name in ["command", "command.start", "artifact.created", "event.accepted", "api.refused", "model.call"] {
            let refused = api.tape.note(name, json!({})).await.unwrap_err();
            assert_eq!(refused.code, ApiErrorCode::InvalidArgument, "{name}");
        }
        api.tape.note("mine", json!({})).await.unwrap();
    })
    .await;
    let events = conversation.event_names().await;
    assert!(events.contains(&"mine".to_owned()) && !events.contains(&"artifact.created".to_owned()));
}

#[tokio::test]
async fn a01_the_built_in_agent_works_without_tools_and_steering() {
    let conversation = TestHost::builder().plugin(tools_plugin(Vec::new)).start().await;
    let host = &conversation;
    let resource_policy =
        ResourcePolicy { tools: Some(ResourceAccess::none()), steering: Some(false), ..ResourcePolicy::default() };
    host.bindings().save(&Binding { resource_policy, ..permissive_binding() }, &host.runners()).await.unwrap();
    let served = conversation.send_message("[[tool:bash cmd=\"echo one\"]] go").await;
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    let view = conversation.view().await;
    assert_eq!(view[2..4], ["calls call_1", "tool call_1: the tool bash is not allowed here"]);
}
