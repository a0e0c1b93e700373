use capstan_hooks::contracts::{ModelEvent, ModelProvider as _};
use capstan_protocol::{ChatMessage, ModelOptions, ModelOutput, ModelRequest, ToolCall, ToolSpec, Usage};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::DemoProvider;

const SESSION_START_MESSAGE: &str = r#"[Anchor created: session/start]: {"owner":"human"}"#;
const CONTEXT_HEADER: &str = "sender_id=human|channel=$cli|chat_id=local\n---Date: 2026-11-15T20:57:42+00:00---\n";
const NEXT_STEP_PROMPT: &str = "Continue the task until all targets are completed. [context: channel=$cli]";

fn sample_tools() -> Vec<ToolSpec> {
    let tool = |name: &str, properties: serde_json::Value| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": properties}).into(),
    };
    vec![
        tool("bash", json!({"cmd": {"type": "string"}, "timeout_seconds": {"type": "integer"}})),
        tool("fs.read", json!({"path": {"type": "string"}})),
    ]
}

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "demo:".parse().unwrap();
    ModelRequest {
        model,
        system: String::new(),
        messages,
        tools: sample_tools().into(),
        options: ModelOptions::default(),
    }
}

async fn stream_events(messages: Vec<ChatMessage>) -> Vec<ModelEvent> {
    DemoProvider.stream(&request(messages)).await.unwrap().try_collect().await.unwrap()
}

async fn collect_reply(messages: Vec<ChatMessage>) -> ModelOutput {
    let stream = DemoProvider.stream(&request(messages)).await.unwrap();
    capstan_hooks::contracts::collect_output(stream.boxed()).await.unwrap()
}

/// Conversation in which the demo model has introduced itself.
fn introduced_conversation(user: impl Into<String>) -> Vec<ChatMessage> {
    vec![
        ChatMessage::user("hi"),
        ChatMessage::assistant("I am the demo model. You said: hi"),
        ChatMessage::user(user.into()),
    ]
}

/// Plays an agent: answers each call with `result of <id>` until the reply is text.
async fn run_agent_loop(mut messages: Vec<ChatMessage>, between_steps: Option<&str>) -> (Vec<ToolCall>, String) {
    let mut calls = Vec::new();
    loop {
        let output = collect_reply(messages.clone()).await;
        let [call] = output.tool_calls.as_slice() else {
            return (calls, output.text);
        };
        messages.push(ChatMessage::from_tool_calls(vec![call.clone()]));
        messages.push(ChatMessage::tool_result(&call.id, &call.function.name, format!("result of {}", call.id)));
        messages.extend(between_steps.map(ChatMessage::user));
        calls.push(call.clone());
    }
}

#[tokio::test]
async fn a12_first_reply_introduces_the_demo_model_and_how_to_replace_it() {
    let text = collect_reply(vec![
        ChatMessage::assistant(SESSION_START_MESSAGE),
        ChatMessage::user(format!("{CONTEXT_HEADER}hello")),
    ])
    .await
    .text;
    for part in ["demo model", "offline", "CAPSTAN_MODEL=openai:NAME", "CAPSTAN_API_KEY"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("You said: hello"), "{text}");
}

#[tokio::test]
async fn a12_later_replies_contain_no_introduction() {
    assert_eq!(collect_reply(introduced_conversation("hello")).await.text, "You said: hello");
}

#[tokio::test]
async fn a12_reply_streams_word_by_word_with_usage_and_a_stop() {
    let events = stream_events(introduced_conversation("one two 你好")).await;
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["You ", "said: ", "one ", "two ", "你好"]);
    let usage =
        Usage { prompt_tokens: Some(12), completion_tokens: Some(5), total_tokens: Some(17), ..Usage::default() };
    assert_eq!(events[texts.len()..], [ModelEvent::Usage(usage), ModelEvent::Stop]);
}

#[tokio::test]
async fn a12_equal_requests_get_equal_replies() {
    let messages = || vec![ChatMessage::user("[[tool:bash cmd=ls]]")];
    assert_eq!(stream_events(messages()).await, stream_events(messages()).await);
}

#[tokio::test]
async fn context_header_is_not_repeated() {
    assert_eq!(
        collect_reply(introduced_conversation(format!("{CONTEXT_HEADER}line one\nline two"))).await.text,
        "You said: line one\nline two"
    );
    assert_eq!(collect_reply(introduced_conversation("a --- b\n---\nc")).await.text, "You said: a --- b\n---\nc");
    assert_eq!(collect_reply(introduced_conversation(CONTEXT_HEADER)).await.text, "You said nothing.");
}

#[tokio::test]
async fn a12_one_call_is_made_per_step_in_order_and_the_results_are_quoted() {
    let prompt = "[[tool:bash cmd=\"echo one\"]] [[tool:fs.read path=README.md]] go";
    let (calls, text) = run_agent_loop(introduced_conversation(format!("{CONTEXT_HEADER}{prompt}")), None).await;

    let summary: Vec<(&str, &str, &str)> =
        calls.iter().map(|c| (c.id.as_str(), c.function.name.as_str(), c.function.arguments.as_str())).collect();
    assert_eq!(
        summary,
        [("call_1", "bash", r#"{"cmd":"echo one"}"#), ("call_2", "fs_read", r#"{"path":"README.md"}"#)]
    );
    assert_eq!(text, "bash answered:\nresult of call_1\n\nfs_read answered:\nresult of call_2\n\nYou said: go");
}

#[tokio::test]
async fn messages_an_agent_adds_between_steps_do_not_end_the_task() {
    let prompt = format!("{CONTEXT_HEADER}[[tool:bash cmd=a]] [[tool:bash cmd=b]]");
    let (calls, text) = run_agent_loop(introduced_conversation(prompt), Some(NEXT_STEP_PROMPT)).await;
    assert_eq!(calls.len(), 2);
    assert_eq!(text, "bash answered:\nresult of call_1\n\nbash answered:\nresult of call_2");
}

#[tokio::test]
async fn user_message_that_arrives_between_steps_starts_a_new_task() {
    let mut messages = introduced_conversation(format!("{CONTEXT_HEADER}[[tool:bash cmd=a]] [[tool:bash cmd=b]]"));
    messages.push(ChatMessage::from_tool_calls(vec![ToolCall::new("call_1", "bash", "{}")]));
    messages.push(ChatMessage::tool_result("call_1", "bash", "x"));
    messages.push(ChatMessage::user(format!("{CONTEXT_HEADER}stop that")));
    let output = collect_reply(messages).await;
    assert_eq!((output.text.as_str(), output.tool_calls.len()), ("You said: stop that", 0));
}

#[tokio::test]
async fn only_the_last_user_message_requests_calls() {
    let mut messages = vec![ChatMessage::user("[[tool:bash cmd=a]]"), ChatMessage::assistant("no")];
    messages.push(ChatMessage::user("thanks"));
    assert_eq!(collect_reply(messages).await.text, "You said: thanks");
}

#[tokio::test]
async fn call_ids_continue_within_the_conversation() {
    let mut messages = vec![ChatMessage::user("earlier")];
    messages.push(ChatMessage::from_tool_calls(vec![ToolCall::new("call_7", "bash", "{}")]));
    messages.push(ChatMessage::tool_result("call_7", "bash", "x"));
    messages.push(ChatMessage::assistant("done"));
    messages.push(ChatMessage::user("[[tool:bash cmd=a]]"));
    assert_eq!(collect_reply(messages).await.tool_calls[0].id, "call_8");
}

#[tokio::test]
async fn tool_is_found_by_both_names_and_its_arguments_follow_the_schema() {
    let prompt = "[[tool:fs_read path=1]] [[tool:bash cmd=true timeout_seconds=30]]";
    let (calls, _) = run_agent_loop(introduced_conversation(prompt), None).await;
    assert_eq!((calls[0].function.name.as_str(), calls[0].function.arguments.as_str()), ("fs_read", r#"{"path":"1"}"#));
    assert_eq!(calls[1].function.arguments, r#"{"cmd":"true","timeout_seconds":30}"#);
}

#[tokio::test]
async fn unknown_tool_is_called_as_well() {
    let (calls, _) = run_agent_loop(introduced_conversation("[[tool:no.such n=1]]"), None).await;
    assert_eq!((calls[0].function.name.as_str(), calls[0].function.arguments.as_str()), ("no_such", r#"{"n":"1"}"#));
}

#[tokio::test]
async fn introduction_comes_with_the_first_text_not_with_a_call() {
    let (calls, text) = run_agent_loop(vec![ChatMessage::user("[[tool:bash cmd=a]]")], None).await;
    assert_eq!(calls.len(), 1);
    assert!(text.starts_with("I am the demo model") && text.ends_with("result of call_1"), "{text}");
}
