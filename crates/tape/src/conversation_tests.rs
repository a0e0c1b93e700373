use capstan_protocol::{ChatMessage, MessageRole, ToolCall};

use super::{CONTINUE_PROMPT, CONTINUED_NOTICE, ConversationBuilder, INTERRUPTED_RESULT, normalize_request};

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "bash", "{}")
}

fn build_lines(messages: Vec<ChatMessage>) -> Vec<String> {
    let finished = messages.into_iter().collect::<ConversationBuilder>().finish();
    finished.iter().map(describe_message).collect()
}

fn describe_message(message: &ChatMessage) -> String {
    let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    match message.role {
        MessageRole::Tool => format!("tool {}: {}", message.tool_call_id.as_deref().unwrap(), message.content.text()),
        MessageRole::Assistant if !calls.is_empty() => format!("calls {}", calls.join(" ")),
        MessageRole::Assistant => format!("assistant: {}", message.content.text()),
        MessageRole::User => format!("user: {}", message.content.text()),
        MessageRole::System => format!("system: {}", message.content.text()),
    }
}

#[test]
fn p13_call_without_a_result_gets_an_interrupted_result() {
    let shown = build_lines(vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![call("a"), call("b")]),
        ChatMessage::tool_result("b", "bash", "two"),
    ]);
    assert_eq!(shown, ["user: go", "calls a b", &format!("tool a: {INTERRUPTED_RESULT}"), "tool b: two"]);
}

#[test]
fn p13_message_in_the_middle_of_a_step_follows_its_results() {
    let shown = build_lines(vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![call("a")]),
        ChatMessage::user("also this"),
        ChatMessage::tool_result("a", "bash", "one"),
        ChatMessage::assistant("done"),
    ]);
    assert_eq!(shown, ["user: go", "calls a", "tool a: one", "user: also this", "assistant: done"]);
}

#[test]
fn p13_result_without_a_call_and_repeated_result_are_omitted() {
    let shown = build_lines(vec![
        ChatMessage::user("go"),
        ChatMessage::tool_result("gone", "bash", "orphan"),
        ChatMessage::from_tool_calls(vec![call("a")]),
        ChatMessage::tool_result("a", "bash", "one"),
        ChatMessage::tool_result("a", "bash", "again"),
    ]);
    assert_eq!(shown, ["user: go", "calls a", "tool a: one"]);
}

#[test]
fn p13_repeated_call_id_becomes_unique_and_keeps_its_result() {
    let shown = build_lines(vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![call("a"), call("a")]),
        ChatMessage::tool_result("a", "bash", "one"),
        ChatMessage::tool_result("a", "bash", "two"),
        ChatMessage::from_tool_calls(vec![call("a")]),
        ChatMessage::tool_result("a", "bash", "three"),
    ]);
    assert_eq!(shown, ["user: go", "calls a a_2", "tool a: one", "tool a_2: two", "calls a_3", "tool a_3: three"]);
}

#[test]
fn p13_user_message_precedes_the_first_call() {
    let shown = build_lines(vec![
        ChatMessage::assistant("[Anchor created: x]: {}"),
        ChatMessage::from_tool_calls(vec![call("a")]),
    ]);
    assert_eq!(shown[1], format!("user: {CONTINUED_NOTICE}"));
}

#[test]
fn p13_request_ends_with_a_user_or_tool_message() {
    assert_eq!(normalize_request(vec![]).last().map(describe_message), Some(format!("user: {CONTINUE_PROMPT}")));
    let ends_on_assistant = normalize_request(vec![ChatMessage::user("hi"), ChatMessage::assistant("hello")]);
    assert_eq!(ends_on_assistant.last().map(describe_message), Some(format!("user: {CONTINUE_PROMPT}")));
    assert_eq!(normalize_request(vec![ChatMessage::user("hi")]).len(), 1);
}

#[test]
fn p13_only_the_assistant_calls_tools() {
    let user_with_calls = ChatMessage { tool_calls: vec![call("a")], ..ChatMessage::user("go") };
    assert_eq!(normalize_request(vec![user_with_calls]), [ChatMessage::user("go")]);
}
