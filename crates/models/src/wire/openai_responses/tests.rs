use capstan_hooks::contracts::RequestBody;
use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, Reasoning, ToolCall, ToolSpec};
use serde_json::{Value, json};

use crate::WireProtocol;

fn body(provider: &str, request: &ModelRequest) -> RequestBody {
    WireProtocol::OpenAiResponses.body(provider, request)
}

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "openai-responses:gpt-5".parse().unwrap();
    let system = "Be brief.".to_owned();
    ModelRequest { model, system, messages, tools: [].into(), options: ModelOptions::default() }
}

fn encoded_items(messages: Vec<ChatMessage>) -> Vec<Value> {
    body("openai-responses", &request(messages)).messages
}

fn call_with_reasoning(id: &str) -> ToolCall {
    let mut call = ToolCall::new(id, "fs_read", "{not json");
    let reasoning = json!([{"at": 0, "item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"}}]);
    let data = json!({"reasoning": reasoning, "id": "fc_1", "after_text": true, "model": "gpt-5"});
    call.extra.insert("provider".to_owned(), json!({ "openai-responses": data }));
    call
}

fn sample_conversation() -> Vec<ChatMessage> {
    vec![
        ChatMessage::user("go"),
        ChatMessage::assistant("Let me look."),
        ChatMessage::from_tool_calls(vec![call_with_reasoning("c1"), ToolCall::new("c2", "bash", "{}")]),
        ChatMessage::tool_result("c1", "fs.read", "A"),
        ChatMessage::tool_result("c2", "bash", "B"),
    ]
}

#[test]
fn p13_calls_and_outputs_are_items_with_the_reasoning_before_them() {
    assert_eq!(
        encoded_items(sample_conversation()),
        [
            json!({"role": "user", "content": [{"type": "input_text", "text": "go"}]}),
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]}),
            json!({"type": "function_call", "call_id": "c1", "name": "fs_read", "arguments": "{not json", "id": "fc_1"}),
            json!({"type": "function_call", "call_id": "c2", "name": "bash", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "c1", "output": "A"}),
            json!({"type": "function_call_output", "call_id": "c2", "output": "B"}),
        ]
    );
}

#[test]
fn a08_reasoning_is_returned_to_its_own_model_only() {
    let elsewhere = body("other", &request(sample_conversation())).messages;
    assert!(elsewhere.iter().all(|item| item["type"] != "reasoning" && item.get("id").is_none()), "{elsewhere:?}");
    let model = "openai-responses:gpt-5-mini".parse().unwrap();
    let other_model = body("openai-responses", &ModelRequest { model, ..request(sample_conversation()) }).messages;
    assert_eq!(other_model, elsewhere, "an item sent without its reasoning has no id");
}

#[test]
fn a08_responses_are_not_stored_and_reasoning_is_requested_where_supported() {
    let sent = body("openai-responses", &request(vec![ChatMessage::user("hi")])).rest;
    assert_eq!(sent["store"], false);
    assert_eq!(sent["instructions"], "Be brief.");
    assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
    let plain =
        ModelRequest { model: "openai-responses:gpt-4.1".parse().unwrap(), ..request(vec![ChatMessage::user("hi")]) };
    assert_eq!(body("openai-responses", &plain).rest.get("include"), None);
    let options = ModelOptions { max_tokens: Some(9), reasoning: Some(Reasoning::High), ..ModelOptions::default() };
    let rest = body("openai-responses", &ModelRequest { options, ..plain }).rest;
    assert_eq!(rest["max_output_tokens"], 9);
    assert_eq!(rest["reasoning"], json!({"effort": "high", "summary": "auto"}));
}

#[test]
fn images_and_tools_are_encoded_in_responses_format() {
    let content =
        Content::Parts(vec![ContentPart::from_text("look"), ContentPart::from_image_url("data:image/png;base64,AA==")]);
    let sent = encoded_items(vec![ChatMessage::user(content)]);
    assert_eq!(
        sent[0]["content"],
        json!([
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        ])
    );
    let parameters = json!({"type": "object"});
    let tool =
        ToolSpec { name: "fs.read".into(), description: "Reads.".to_owned(), parameters: parameters.clone().into() };
    let sent = body("x", &ModelRequest { tools: [tool].into(), ..request(vec![ChatMessage::user("hi")]) });
    let expected = json!({"type": "function", "name": "fs_read", "description": "Reads.", "parameters": parameters, "strict": false});
    assert_eq!(*sent.tools, [expected]);
}
