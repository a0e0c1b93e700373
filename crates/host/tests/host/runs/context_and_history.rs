//! Context of a run, and the events behind the messages of the history.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{NewArtifact, PageRequest};
use capstan_hooks::points::LoadState;
use capstan_host::testing::TestHost;
use capstan_policy::default_binding;
use capstan_protocol::{
    ActorRef, ApiErrorCode, ArtifactId, Binding, ConversationKind, Event, EventKey, EventOrigin, JsonObject,
    MessageRole, PermissionSet, StateScope,
};
use serde_json::{Value, json};

use crate::runs::api_runner::{
    action_runner_plugin, permissive_binding, permissive_conversation, replying_runner_plugin,
};

#[tokio::test]
async fn g06_the_context_has_the_stored_state_of_the_runner_by_scope() {
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&contexts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        recorded.lock().unwrap().push((Value::Object(context.state), context.turn_state));
        async move { api.state.set(StateScope::Conversation, "thread", json!("t-1")).await.unwrap() }
    });
    let host = TestHost::builder().agent_plugin(plugin).binding(permissive_binding()).register("mood", |hooks| {
        hooks.on(LoadState, || async { Ok(Some(JsonObject::from_iter([("mood".to_owned(), json!("calm"))]))) });
    });
    let conversation = host.start().await;
    conversation.send_message("one").await;
    conversation.send_message("two").await;
    let contexts = contexts.lock().unwrap();
    let (state, turn_state) = &contexts[1];
    assert_eq!(state["conversation"], json!({"thread": "t-1"}));
    assert_eq!((&state["runner"], &state["subject"]), (&json!({}), &Value::Null), "the event has no subject");
    assert_eq!(turn_state["mood"], "calm");
    assert!(!turn_state.contains_key("_runtime_workspace"), "{turn_state:?}");
}

#[tokio::test]
async fn k01_the_context_and_the_filters_have_the_kind_of_the_conversation() {
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&kinds);
    let plugin = action_runner_plugin(PermissionSet::none(), move |context, _| {
        recorded.lock().unwrap().push(context.conversation.kind);
        async {}
    });
    let filter = json!([{"field": "conversation_kind", "one_of": ["private"]}]);
    let binding = Binding { filters: serde_json::from_value(filter).unwrap(), ..default_binding() };
    let host = TestHost::builder().agent_plugin(plugin).binding(binding).start().await;
    for kind in [Some(ConversationKind::Private), Some(ConversationKind::Group), None] {
        let event = Event { conversation_kind: kind, ..Event::message("cli", "local", "hi") };
        host.serve(event).await.unwrap();
    }
    assert_eq!(*kinds.lock().unwrap(), [Some(ConversationKind::Private)], "no binding fits the others");
}

#[tokio::test]
async fn k01_the_context_has_origin_and_time_of_its_event() {
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&contexts);
    let plugin = action_runner_plugin(PermissionSet::none(), move |context, _| {
        recorded.lock().unwrap().push((context.trigger, context.runtime));
        async {}
    });
    let conversation = permissive_conversation(plugin).await;
    let remote = Event::message("cli", "local", "one");
    let keys = [EventKey::from(&remote)];
    conversation.serve(remote).await.unwrap();
    conversation.send_message("two").await;
    let record = conversation.tapes().store().inbox_record(&keys[0]).await.unwrap().unwrap();
    let contexts = contexts.lock().unwrap();
    let origins: Vec<_> = contexts.iter().map(|(trigger, _)| trigger.origin).collect();
    assert_eq!(origins, [Some(EventOrigin::Remote), Some(EventOrigin::Trusted)]);
    let accepted_at = contexts[0].0.accepted_at.unwrap();
    assert!(accepted_at <= record.accepted_at && accepted_at <= contexts[0].1.started_at, "{accepted_at}");
    assert!(contexts[0].1.version.as_ref().is_some_and(|version| version.contains('.')));
}

#[tokio::test]
async fn g06_the_context_has_no_state_without_a_grant() {
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&contexts);
    let plugin = action_runner_plugin(PermissionSet::none(), move |context, _| {
        recorded.lock().unwrap().push((context.state, context.turn_state));
        async {}
    });
    permissive_conversation(plugin).await.send_message("one").await;
    assert_eq!(*contexts.lock().unwrap(), [(JsonObject::new(), JsonObject::new())]);
}

#[tokio::test]
async fn k04_a_runner_lists_models_runs_and_artifacts_of_its_session() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&seen);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let new = NewArtifact { name: "a.txt".to_owned(), media_type: "text/plain".to_owned(), content: vec![1] };
            let created = api.artifacts.create(new).await.unwrap();
            let first = api.artifacts.list(None, 1).await.unwrap();
            let rest = api.artifacts.list(first.next.as_deref(), 5).await.unwrap().items;
            let artifacts: Vec<ArtifactId> = first.items.into_iter().chain(rest).map(|artifact| artifact.id).collect();
            assert!(artifacts.contains(&created.id), "{artifacts:?}");
            let own = api.runs.get(&context.run_id).await.unwrap();
            let listed = api.runs.list(None, 5).await.unwrap().items;
            assert_eq!(api.models.list().await.unwrap().default, Some(api.models.default_model()));
            let statuses: Vec<String> = listed.into_iter().map(|run| run.status).collect();
            recorded.lock().unwrap().push((own.event.event_id, artifacts.len(), statuses));
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let other = Event::message("cli", "other", "elsewhere");
    conversation.serve(other).await.unwrap();
    conversation.send_message("one").await;
    let event = Event::message("cli", "local", "two");
    conversation.serve(event.clone()).await.unwrap();
    let seen = seen.lock().unwrap();
    let statuses = |statuses: &[&str]| statuses.iter().map(|&status| status.to_owned()).collect::<Vec<_>>();
    assert_eq!(seen[2], (event.event_id, 2, statuses(&["running", "completed"])), "of this session only");
}

#[tokio::test]
async fn k04_a_run_of_another_session_is_not_found() {
    let (ids, errors) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (known, recorded) = (Arc::clone(&ids), Arc::clone(&errors));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (known, recorded) = (Arc::clone(&known), Arc::clone(&recorded));
        async move {
            let earlier = known.lock().unwrap().first().cloned();
            known.lock().unwrap().push(context.run_id);
            if let Some(earlier) = earlier {
                let refused = api.runs.get(&earlier).await.unwrap_err();
                recorded.lock().unwrap().push(refused.code);
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.serve(Event::message("cli", "other", "one")).await.unwrap();
    conversation.send_message("two").await;
    assert_eq!(*errors.lock().unwrap(), [ApiErrorCode::NotFound]);
}

#[tokio::test]
async fn g08_history_says_who_said_what() {
    let pages = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&pages);
    let plugin = replying_runner_plugin("fine", move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let call = PageRequest { limit: 5, ..PageRequest::default() };
            *recorded.lock().unwrap() = api.history.page(call).await.unwrap().items;
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let actor = Some(ActorRef { id: "7".to_owned(), name: Some("ann".to_owned()), kind: None });
    let event =
        Event { actor: actor.clone(), thread_id: Some("t".to_owned()), ..Event::message("cli", "local", "hello") };
    conversation.serve(event.clone()).await.unwrap();
    conversation.send_message("two").await;
    let pages = pages.lock().unwrap();
    let said = pages.iter().rfind(|message| message.role == MessageRole::User).unwrap();
    assert_eq!((&said.events[0].event_id, &said.events[0].actor), (&event.event_id, &actor));
    assert_eq!((said.events[0].text.as_str(), said.events[0].thread_id.as_deref()), ("hello", Some("t")));
    assert!(said.text.ends_with("hello") && said.content.text() == said.text);
    let reply = pages.iter().find(|message| message.role == MessageRole::Assistant).unwrap();
    assert!(reply.events.is_empty());
}
