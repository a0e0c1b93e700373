use capstan_protocol::{ChatMessage, Role, ToolCall};

use super::{CONTINUE, CONTINUED, Conversation, INTERRUPTED, request};

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "bash", "{}")
}

fn finish(messages: Vec<ChatMessage>) -> Vec<String> {
    let finished = messages.into_iter().collect::<Conversation>().finish();
    finished.iter().map(line).collect()
}

fn line(message: &ChatMessage) -> String {
    let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    match message.role {
        Role::Tool => format!("tool {}: {}", message.tool_call_id.as_deref().unwrap(), message.content.text()),
        Role::Assistant if !calls.is_empty() => format!("calls {}", calls.join(" ")),
        Role::Assistant => format!("assistant: {}", message.content.text()),
        Role::User => format!("user: {}", message.content.text()),
        Role::System => format!("system: {}", message.content.text()),
    }
}

#[test]
fn p13_a_call_without_a_result_is_shown_with_one_that_says_so() {
    let shown = finish(vec![
        ChatMessage::user("go"),
        ChatMessage::calls(vec![call("a"), call("b")]),
        ChatMessage::tool("b", "bash", "two"),
    ]);
    assert_eq!(shown, ["user: go", "calls a b", &format!("tool a: {INTERRUPTED}"), "tool b: two"]);
}

#[test]
fn p13_a_message_in_the_middle_of_a_step_follows_its_results() {
    let shown = finish(vec![
        ChatMessage::user("go"),
        ChatMessage::calls(vec![call("a")]),
        ChatMessage::user("also this"),
        ChatMessage::tool("a", "bash", "one"),
        ChatMessage::assistant("done"),
    ]);
    assert_eq!(shown, ["user: go", "calls a", "tool a: one", "user: also this", "assistant: done"]);
}

#[test]
fn p13_a_result_without_its_call_is_left_out_and_so_is_a_second_one() {
    let shown = finish(vec![
        ChatMessage::user("go"),
        ChatMessage::tool("gone", "bash", "orphan"),
        ChatMessage::calls(vec![call("a")]),
        ChatMessage::tool("a", "bash", "one"),
        ChatMessage::tool("a", "bash", "again"),
    ]);
    assert_eq!(shown, ["user: go", "calls a", "tool a: one"]);
}

#[test]
fn p13_an_id_a_server_uses_again_becomes_unique_and_keeps_its_own_result() {
    let shown = finish(vec![
        ChatMessage::user("go"),
        ChatMessage::calls(vec![call("a"), call("a")]),
        ChatMessage::tool("a", "bash", "one"),
        ChatMessage::tool("a", "bash", "two"),
        ChatMessage::calls(vec![call("a")]),
        ChatMessage::tool("a", "bash", "three"),
    ]);
    assert_eq!(shown, ["user: go", "calls a a_2", "tool a: one", "tool a_2: two", "calls a_3", "tool a_3: three"]);
}

#[test]
fn p13_a_user_message_comes_before_the_first_call() {
    let shown = finish(vec![ChatMessage::assistant("[Anchor created: x]: {}"), ChatMessage::calls(vec![call("a")])]);
    assert_eq!(shown[1], format!("user: {CONTINUED}"));
}

#[test]
fn p13_a_request_ends_on_a_user_or_tool_message() {
    assert_eq!(request(vec![]).last().map(line), Some(format!("user: {CONTINUE}")));
    let ends_on_assistant = request(vec![ChatMessage::user("hi"), ChatMessage::assistant("hello")]);
    assert_eq!(ends_on_assistant.last().map(line), Some(format!("user: {CONTINUE}")));
    assert_eq!(request(vec![ChatMessage::user("hi")]).len(), 1);
}

#[test]
fn p13_only_the_assistant_calls_tools() {
    let odd = ChatMessage { tool_calls: vec![call("a")], ..ChatMessage::user("go") };
    assert_eq!(request(vec![odd]), [ChatMessage::user("go")]);
}
