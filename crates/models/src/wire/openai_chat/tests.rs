use capstan_protocol::{
    ChatMessage, Content, ContentPart, JsonObject, ModelOptions, ModelRequest, Reasoning, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use crate::WireProtocol;
use crate::wire::openai_body;

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "openai:m".parse().unwrap();
    ModelRequest { model, system: String::new(), messages, tools: [].into(), options: ModelOptions::default() }
}

fn encoded_messages(messages: Vec<ChatMessage>) -> Vec<Value> {
    openai_body(&request(messages)).messages
}

#[test]
fn calls_and_results_are_encoded_in_openai_chat_format() {
    let sent = encoded_messages(vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![ToolCall::new("c1", "fs_read", "{\"path\" : 1}")]),
        ChatMessage::tool_result("c1", "fs.read", "# Demo"),
    ]);
    assert_eq!(
        sent,
        [
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": "{\"path\" : 1}"}}
            ]}),
            json!({"role": "tool", "content": "# Demo", "tool_call_id": "c1"}),
        ]
    );
}

#[test]
fn known_parts_of_a_user_message_are_sent_unchanged() {
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]);
    let content: Content = serde_json::from_value(parts.clone()).unwrap();
    assert_eq!(encoded_messages(vec![ChatMessage::user(content)]), [json!({"role": "user", "content": parts})]);
}

#[test]
fn p13_unknown_parts_of_a_user_message_become_notes() {
    let parts = json!([
        {"type": "input_audio"},
        {"type": "video", "url": "https://example.com/a.mp4"},
        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "size": 7}},
    ]);
    let content: Content = serde_json::from_value(parts).unwrap();
    let sent = json!([
        {"type": "text", "text": "[input_audio left out]"},
        {"type": "text", "text": "[video left out]"},
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]);
    assert_eq!(encoded_messages(vec![ChatMessage::user(content)]), [json!({"role": "user", "content": sent})]);
}

#[test]
fn image_in_a_tool_result_becomes_a_note() {
    let parts = Content::Parts(vec![ContentPart::from_text("a screenshot:"), ContentPart::from_image_url("data:x")]);
    let sent = encoded_messages(vec![ChatMessage::tool_result("c1", "screen", parts)]);
    assert_eq!(sent[0]["content"], "a screenshot:\n[image_url left out]");
}

#[test]
fn images_of_tool_results_are_sent_in_a_user_message_to_models_with_vision() {
    let image = |name: &str| ContentPart::from_image_url(format!("https://example.com/{name}.png"));
    let parts = |name: &str| Content::Parts(vec![ContentPart::from_text(name), image(name)]);
    let calls =
        vec![ToolCall::new("a", "look", "{}"), ToolCall::new("b", "look", "{}"), ToolCall::new("c", "bash", "{}")];
    let conversation = vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(calls),
        ChatMessage::tool_result("a", "look", parts("one")),
        ChatMessage::tool_result("b", "look", parts("two")),
        ChatMessage::tool_result("c", "bash", "plain"),
        ChatMessage::user("well?"),
    ];
    let sent = |model: &str| {
        let model = format!("openai:{model}").parse().unwrap();
        openai_body(&ModelRequest { model, ..request(conversation.clone()) }).messages
    };
    let with_vision = sent("gpt-5");
    let roles: Vec<&str> = with_vision.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "tool", "user", "user"]);
    assert_eq!(with_vision[5]["content"].as_array().unwrap()[1..], [json!(image("one")), json!(image("two"))]);
    assert_eq!(with_vision[2]["content"], "one\n[image_url left out]", "a tool message contains text only");
    assert_eq!(sent("some-model").len(), 6, "a model without vision gets no images");
}

#[test]
fn keys_unknown_to_openai_chat_are_omitted() {
    let mut message = ChatMessage::user("hi");
    message.name = Some("ada".to_owned());
    message.extra = JsonObject::from_iter([("date".to_owned(), json!("today"))]);
    assert_eq!(encoded_messages(vec![message]), [json!({"role": "user", "content": "hi"})]);
}

#[test]
fn tools_are_sent_with_their_model_names() {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let spec =
        ToolSpec { name: "fs.read".into(), description: "Reads.".to_owned(), parameters: parameters.clone().into() };
    let body = openai_body(&ModelRequest { tools: [spec].into(), ..request(vec![ChatMessage::user("hi")]) });
    assert_eq!(
        *body.tools,
        [json!({"type": "function", "function": {
            "name": "fs_read", "description": "Reads.", "parameters": parameters
        }})]
    );
}

#[test]
fn a08_reasoning_text_is_returned_with_its_calls_to_its_provider_only() {
    let mut call = ToolCall::new("c1", "bash", "{}");
    call.extra
        .insert("provider".to_owned(), json!({"openai": {"reasoning_content": "hm"}, "other": {"reasoning": "x"}}));
    let sent = encoded_messages(vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![call]),
        ChatMessage::tool_result("c1", "bash", ""),
    ]);
    assert_eq!(sent[1]["reasoning_content"], "hm");
    assert_eq!(sent[1].get("reasoning"), None);
}

#[test]
fn a08_signed_reasoning_is_returned_to_its_model_only() {
    let details = json!([{"type": "reasoning.encrypted", "data": "xyz"}]);
    let mut call = ToolCall::new("c1", "bash", "{}");
    let data = json!({"reasoning_details": details, "reasoning": "hm", "model": "a/one"});
    call.extra.insert("provider".to_owned(), json!({ "openrouter": data }));
    let messages = vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![call]),
        ChatMessage::tool_result("c1", "bash", ""),
    ];
    let sent = |model: &str| {
        let model = format!("openrouter:{model}").parse().unwrap();
        WireProtocol::OpenRouter
            .body("openrouter", &ModelRequest { model, ..request(messages.clone()) })
            .messages
            .remove(1)
    };
    assert_eq!(sent("a/one")["reasoning_details"], details);
    assert_eq!(sent("b/two").get("reasoning_details"), None);
    assert_eq!(sent("b/two")["reasoning"], "hm", "plain text is not bound to a model");
}

#[test]
fn a08_reasoning_effort_uses_the_option_of_each_dialect() {
    let options = ModelOptions { reasoning: Some(Reasoning::Low), ..ModelOptions::default() };
    let request = ModelRequest { options, ..request(vec![ChatMessage::user("hi")]) };
    assert_eq!(openai_body(&request).rest["reasoning_effort"], "low");
    let other = WireProtocol::OpenRouter.body("openrouter", &request);
    assert_eq!(other.rest["reasoning"], json!({"effort": "low"}));
}

#[test]
fn a08_system_prompt_is_marked_for_the_cache_of_anthropic_models() {
    let content = |wire: WireProtocol, model: &str| {
        let model = format!("{}:{model}", wire.name()).parse().unwrap();
        let request = ModelRequest { model, system: "Be brief.".to_owned(), ..request(vec![ChatMessage::user("hi")]) };
        wire.body(wire.name(), &request).messages[0]["content"].clone()
    };
    let marked = json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
    assert_eq!(content(WireProtocol::OpenRouter, "anthropic/claude-sonnet-4.5"), marked);
    assert_eq!(content(WireProtocol::OpenRouter, "some/model"), "Be brief.");
    assert_eq!(content(WireProtocol::OpenAi, "anthropic/claude"), "Be brief.");
}
