//! Runner that passes oversized and too deeply nested arguments: each call is refused, and the run continues.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ChildRunCall, ModelCall};
use capstan_host::testing::TestHost;
use capstan_protocol::{
    ApiError, ApiErrorCode, ChatMessage, Content, ContentPart, JsonObject, Outcome, PermissionSet, StateScope,
    ToolCall, ToolOutput,
};
use serde_json::Value;

use super::api_runner::{action_runner_plugin, permissive_binding, permissive_conversation};
use super::support::{test_tool, tools_plugin};

#[track_caller]
fn assert_all_refused(attempts: &[Result<(), ApiError>], count: usize, code: ApiErrorCode) {
    assert_eq!(attempts.len(), count);
    for (number, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt.as_ref().unwrap_err().code, code, "attempt {number}");
    }
}

#[tokio::test]
async fn k04_every_field_of_a_call_counts_towards_its_size() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&attempts);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let larger = || "x".repeat(64 * 1024 * 1024);
            let call = ToolCall::new("call", "help", "{}");
            let extra = || JsonObject::from_iter([("x".to_owned(), larger().into())]);
            let mut steps = vec![
                vec![ToolCall { id: larger(), ..call.clone() }],
                vec![ToolCall { kind: larger(), ..call.clone() }],
                vec![ToolCall { extra: extra(), ..call.clone() }],
            ];
            let model_call = |message: ChatMessage| ModelCall {
                model: Some("demo:x".parse().unwrap()),
                messages: vec![message],
                ..ModelCall::default()
            };
            for message in [
                ChatMessage { extra: extra(), ..ChatMessage::user("hi") },
                ChatMessage { name: Some(larger()), ..ChatMessage::user("hi") },
                ChatMessage { tool_call_id: Some(larger()), ..ChatMessage::user("hi") },
                ChatMessage { tool_calls: steps[0].clone(), ..ChatMessage::user("hi") },
            ] {
                let result = api.models.invoke(model_call(message)).await.map(drop);
                recorded.lock().unwrap().push(result);
            }
            steps.push(vec![ToolCall::new("", "", ""); 1001]);
            for calls in steps {
                let result = api.tools.call(calls).await.map(drop);
                recorded.lock().unwrap().push(result);
            }
            let outputs = api.tools.call(vec![ToolCall::new("", "none", ""); 1000]).await.unwrap();
            assert_eq!(outputs.len(), 1000);
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    assert_all_refused(&attempts.lock().unwrap(), 8, ApiErrorCode::PayloadTooLarge);
}

#[tokio::test]
async fn k04_too_deeply_nested_arguments_are_refused_and_the_run_continues() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&attempts);
    let nested = || (0..122).fold(Value::from(1), |inner, _| Value::from(vec![inner]));
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let map = || JsonObject::from_iter([("a".to_owned(), nested())]);
            let content = || Content::Parts(vec![ContentPart::Other(map())]);
            let call = ToolCall { extra: map(), ..ToolCall::new("call", "help", "{}") };
            let results = [
                api.tape.handoff("deep", map()).await,
                api.tape.note("deep", nested()).await,
                api.tape.say(content()).await,
                api.tools.call(vec![call]).await.map(drop),
                api.state.set(StateScope::Runner, "deep", nested()).await,
                api.runs.child(ChildRunCall { prompt: content(), ..ChildRunCall::new("") }).await.map(drop),
            ];
            recorded.lock().unwrap().extend(results);
            let outputs = api.tools.call(vec![ToolCall::new("call", "deep", "{}")]).await.unwrap();
            assert!(outputs[0].is_error && outputs[0].text().contains("nested deeper"), "{outputs:?}");
            api.tape.note("shallow", Value::from(1)).await.unwrap();
        }
    });
    let deep = tools_plugin(move || {
        let part = JsonObject::from_iter([("a".to_owned(), nested())]);
        let output = ToolOutput::ok(Content::Parts(vec![ContentPart::Other(part)]));
        vec![test_tool("deep", move |_, _| std::future::ready(Ok(output.clone())))]
    });
    let conversation = TestHost::builder().agent_plugin(plugin).plugin(deep).start().await;
    conversation.bindings().save(&permissive_binding(), &conversation.runners()).await.unwrap();
    let served = conversation.send_message("go").await;
    assert_eq!(served.outcome, Some(Outcome::Silent), "{:?}", served.error);
    assert!(conversation.event_names().await.iter().any(|name| name == "shallow"));
    assert_all_refused(&attempts.lock().unwrap(), 6, ApiErrorCode::InvalidArgument);
}
