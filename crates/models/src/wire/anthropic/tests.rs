use capstan_hooks::contracts::RequestBody;
use capstan_protocol::{
    ChatMessage, Content, ContentPart, MessageRole, ModelOptions, ModelRequest, Reasoning, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use crate::WireProtocol;

fn body(provider: &str, request: &ModelRequest) -> RequestBody {
    WireProtocol::Anthropic.body(provider, request)
}

const CLAUDE_MODEL: &str = "claude-sonnet-4-5";

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = format!("anthropic:{CLAUDE_MODEL}").parse().unwrap();
    let tools = vec![ToolSpec {
        name: "fs.read".into(),
        description: "Reads.".to_owned(),
        parameters: json!({"type": "object"}).into(),
    }];
    ModelRequest {
        model,
        system: "Be brief.".to_owned(),
        messages,
        tools: tools.into(),
        options: ModelOptions::default(),
    }
}

/// Turns without their cache marks.
fn turns_without_cache_marks(messages: Vec<ChatMessage>) -> Vec<Value> {
    let mut turns = body("anthropic", &request(messages)).messages;
    for block in turns.iter_mut().flat_map(|turn| turn["content"].as_array_mut().unwrap()) {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    turns
}

fn thinking_block(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": "sig"})
}

/// Call with the provider data of a response that started with a thought.
fn call_with_thinking(id: &str, after_text: bool) -> ToolCall {
    let mut call = ToolCall::new(id, "fs_read", r#"{"path":"a"}"#);
    let thinking = json!([{"at": 0, "item": thinking_block("hm")}]);
    call.extra.insert(
        "provider".to_owned(),
        json!({"anthropic": {"thinking": thinking, "after_text": after_text, "model": CLAUDE_MODEL}}),
    );
    call
}

#[test]
fn p13_roles_alternate_the_user_begins_and_results_come_first_in_one_turn() {
    let turns = turns_without_cache_marks(vec![
        ChatMessage::assistant("[Anchor created: session/start]: {}"),
        ChatMessage::user("go"),
        ChatMessage::user("on"),
        ChatMessage::assistant("Let me look."),
        ChatMessage::from_tool_calls(vec![
            ToolCall::new("a", "fs_read", r#"{"path":"a"}"#),
            ToolCall::new("b_1", "fs_read", ""),
        ]),
        ChatMessage::tool_result("a", "fs.read", "A"),
        ChatMessage::tool_result("b_1", "fs.read", ""),
        ChatMessage::user("quick!"),
    ]);
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        turns,
        [
            json!({"role": "user", "content": [text("[The conversation continues from here.]")]}),
            json!({"role": "assistant", "content": [text("[Anchor created: session/start]: {}")]}),
            json!({"role": "user", "content": [text("go"), text("on")]}),
            json!({"role": "assistant", "content": [
                text("Let me look."),
                {"type": "tool_use", "id": "a", "name": "fs_read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "b_1", "name": "fs_read", "input": {}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [text("A")]},
                {"type": "tool_result", "tool_use_id": "b_1", "content": []},
                text("quick!"),
            ]}),
        ]
    );
}

#[test]
fn a08_thoughts_are_restored_in_place_and_only_for_their_own_model() {
    let messages = |after_text: bool| {
        let mut messages = vec![ChatMessage::user("go")];
        messages.extend(after_text.then(|| ChatMessage::assistant("Let me look.")));
        messages.extend([
            ChatMessage::from_tool_calls(vec![
                call_with_thinking("a", after_text),
                ToolCall::new("b", "fs_read", "{}"),
            ]),
            ChatMessage::tool_result("a", "fs.read", "A"),
            ChatMessage::tool_result("b", "fs.read", "B"),
        ]);
        messages
    };
    let kinds = |turn: &Value| -> Vec<String> {
        turn["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&turns_without_cache_marks(messages(true))[1]), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(turns_without_cache_marks(messages(false))[1]["content"][0], thinking_block("hm"));
    let other = body("elsewhere", &request(messages(true)));
    assert_eq!(kinds(&other.messages[1]), ["text", "tool_use", "tool_use"]);
    let first_block = |model: &str| {
        let model = format!("anthropic:{model}").parse().unwrap();
        body("anthropic", &ModelRequest { model, ..request(messages(true)) }).messages[1]["content"][0]["type"].clone()
    };
    assert_eq!(first_block("claude-opus-4-5"), "text", "a signature is valid for one model");
    assert_eq!(first_block("claude-sonnet-4-5-20250929"), "thinking", "a release of the same model");
}

#[test]
fn a08_model_that_binds_thoughts_is_asked_to_drop_those_with_a_changed_prefix() {
    let thinking = |model: &str, reasoning: Option<Reasoning>, call: ToolCall| {
        let mut call = call;
        if let Some(data) = call.extra.get_mut("provider") {
            data["anthropic"]["model"] = json!(model);
        }
        let messages = vec![
            ChatMessage::user("go"),
            ChatMessage::from_tool_calls(vec![call]),
            ChatMessage::tool_result("a", "fs.read", "A"),
        ];
        let model = format!("anthropic:{model}").parse().unwrap();
        let options = ModelOptions { reasoning, ..ModelOptions::default() };
        body("anthropic", &ModelRequest { model, options, ..request(messages) }).rest.remove("thinking")
    };
    let expected = json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    assert_eq!(thinking("claude-opus-5-5", None, call_with_thinking("a", false)).as_ref(), Some(&expected));
    assert_eq!(thinking("claude-opus-5-5", Some(Reasoning::Low), call_with_thinking("a", false)), Some(expected));
    assert_eq!(thinking("claude-opus-5-5", None, ToolCall::new("a", "fs_read", "{}")), None, "no thought to drop");
    assert_eq!(thinking("claude-opus-5", None, call_with_thinking("a", false)), None, "option unknown to this model");
}

#[test]
fn a08_thinking_is_not_requested_within_a_step_that_started_without() {
    let requests_thinking = |call: ToolCall| {
        let messages = vec![
            ChatMessage::user("go"),
            ChatMessage::from_tool_calls(vec![call]),
            ChatMessage::tool_result("a", "fs.read", "A"),
        ];
        let options = ModelOptions { reasoning: Some(Reasoning::Low), ..ModelOptions::default() };
        body("anthropic", &ModelRequest { options, ..request(messages) }).rest.contains_key("thinking")
    };
    assert!(requests_thinking(call_with_thinking("a", false)));
    assert!(!requests_thinking(ToolCall::new("a", "fs_read", "{}")), "another model started the step");
}

#[test]
fn a08_stable_prefix_is_marked_for_the_cache() {
    let messages = vec![ChatMessage::user("one"), ChatMessage::assistant("1"), ChatMessage::user("two")];
    let body = body("anthropic", &request(messages.clone()));
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body.rest["system"], json!([{"type": "text", "text": "Be brief.", "cache_control": mark}]));
    assert_eq!(body.messages[0]["content"][0]["cache_control"], mark);
    assert_eq!(body.messages[2]["content"][0]["cache_control"], mark);
    let without_system = ModelRequest { system: String::new(), ..request(messages) };
    assert_eq!(self::body("anthropic", &without_system).tools[0]["cache_control"], mark);
}

#[test]
fn images_are_sent_in_user_turns_and_tool_results() {
    let content = Content::Parts(vec![
        ContentPart::from_text("look"),
        ContentPart::from_image_url("data:image/png;base64,AA=="),
        ContentPart::from_image_url("https://example.com/a.png"),
    ]);
    let blocks = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ]);
    let turns = turns_without_cache_marks(vec![
        ChatMessage::user(content.clone()),
        ChatMessage::from_tool_calls(vec![ToolCall::new("a", "fs_read", "{}")]),
        ChatMessage::tool_result("a", "fs.read", content),
    ]);
    assert_eq!(turns[0]["content"], blocks);
    assert_eq!(turns[2]["content"][0]["content"], blocks);
}

#[test]
fn content_that_the_provider_rejects_is_not_sent() {
    let mut note = ChatMessage::user("a note");
    note.role = MessageRole::System;
    let turns = turns_without_cache_marks(vec![
        ChatMessage::user(" \n"),
        ChatMessage::user("go"),
        note,
        ChatMessage::from_tool_calls(vec![ToolCall::new("a", "fs_read", "{not json")]),
        ChatMessage::tool_result("a", "fs.read", "bad arguments"),
    ]);
    assert_eq!(
        turns[0]["content"].as_array().unwrap().len(),
        2,
        "blank text is omitted and the note becomes a user text"
    );
    assert_eq!(turns[1]["content"][0]["input"], json!({"invalid_arguments": "{not json"}));
}
