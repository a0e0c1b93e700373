use capstan_hooks::contracts::RequestBody;
use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, Reasoning, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::SKIP_SIGNATURE_MARKER;
use crate::WireProtocol;

fn body(provider: &str, request: &ModelRequest) -> RequestBody {
    WireProtocol::Gemini.body(provider, request)
}

fn request(model: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    let model = format!("gemini:{model}").parse().unwrap();
    ModelRequest { model, system: String::new(), messages, tools: [].into(), options: ModelOptions::default() }
}

fn encoded_turns(messages: Vec<ChatMessage>) -> Vec<Value> {
    body("gemini", &request("gemini-3-pro", messages)).messages
}

fn signed_call(id: &str, signature: &str) -> ToolCall {
    let mut call = ToolCall::new(id, "fs_read", r#"{"path":"a"}"#);
    call.extra.insert(
        "provider".to_owned(),
        json!({"gemini": {"thought_signature": signature, "id": true, "model": "gemini-3-pro"}}),
    );
    call
}

#[test]
fn p13_roles_alternate_the_user_begins_and_responses_are_grouped() {
    let turns = encoded_turns(vec![
        ChatMessage::assistant("[Anchor created: session/start]: {}"),
        ChatMessage::user("go"),
        ChatMessage::assistant("Let me look."),
        ChatMessage::from_tool_calls(vec![signed_call("a", "sig"), ToolCall::new("b", "bash", "{}")]),
        ChatMessage::tool_result("a", "fs.read", "A"),
        ChatMessage::tool_result("b", "bash", "B"),
        ChatMessage::user("quick!"),
    ]);
    assert_eq!(
        turns,
        [
            json!({"role": "user", "parts": [{"text": "[The conversation continues from here.]"}]}),
            json!({"role": "model", "parts": [{"text": "[Anchor created: session/start]: {}"}]}),
            json!({"role": "user", "parts": [{"text": "go"}]}),
            json!({"role": "model", "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "fs_read", "args": {"path": "a"}, "id": "a"}, "thoughtSignature": "sig"},
                {"functionCall": {"name": "bash", "args": {}}},
            ]}),
            json!({"role": "user", "parts": [
                {"functionResponse": {"name": "fs_read", "response": {"result": "A"}, "id": "a"}},
                {"functionResponse": {"name": "bash", "response": {"result": "B"}}},
                {"text": "quick!"},
            ]}),
        ]
    );
}

#[test]
fn a08_call_of_another_model_gets_the_documented_signature_replacement() {
    let messages = || {
        let call = vec![ToolCall::new("a", "bash", "{}"), ToolCall::new("b", "bash", "{}")];
        vec![
            ChatMessage::user("go"),
            ChatMessage::from_tool_calls(call),
            ChatMessage::tool_result("a", "bash", ""),
            ChatMessage::tool_result("b", "bash", ""),
        ]
    };
    let parts = encoded_turns(messages())[1]["parts"].clone();
    assert_eq!(parts[0]["thoughtSignature"], SKIP_SIGNATURE_MARKER);
    assert_eq!(parts[1].get("thoughtSignature"), None);
    let legacy = body("gemini", &request("gemini-2.5-pro", messages()));
    assert_eq!(legacy.messages[1]["parts"][0].get("thoughtSignature"), None);
    let elsewhere = vec![ChatMessage::user("go"), ChatMessage::from_tool_calls(vec![signed_call("a", "sig")])];
    let elsewhere = body("other", &request("gemini-3-pro", elsewhere));
    assert_eq!(elsewhere.messages[1]["parts"][0]["thoughtSignature"], SKIP_SIGNATURE_MARKER);
    let flash = vec![
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(vec![signed_call("a", "sig")]),
        ChatMessage::tool_result("a", "fs.read", "A"),
    ];
    let flash = body("gemini", &request("gemini-3-flash", flash)).messages;
    assert_eq!(flash[1]["parts"][0]["thoughtSignature"], SKIP_SIGNATURE_MARKER, "signed by another model");
    assert_eq!(
        (flash[1]["parts"][0]["functionCall"].get("id"), flash[2]["parts"][0]["functionResponse"].get("id")),
        (None, None)
    );
}

#[test]
fn images_are_sent_in_user_turns_and_after_a_tool_response() {
    let content = Content::Parts(vec![
        ContentPart::from_text("look"),
        ContentPart::from_image_url("data:image/png;base64,AA=="),
        ContentPart::from_image_url("https://example.com/a.webp?x=1"),
    ]);
    let images = [
        json!({"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
        json!({"fileData": {"mimeType": "image/webp", "fileUri": "https://example.com/a.webp?x=1"}}),
    ];
    let turns = encoded_turns(vec![
        ChatMessage::user(content.clone()),
        ChatMessage::from_tool_calls(vec![signed_call("a", "s")]),
        ChatMessage::tool_result("a", "fs.read", content),
    ]);
    assert_eq!(turns[0]["parts"].as_array().unwrap()[1..], images);
    assert_eq!(turns[2]["parts"].as_array().unwrap()[1..], images);
}

#[test]
fn a08_tools_limit_and_thinking_are_encoded() {
    let parameters = json!({"type": "object", "additionalProperties": false});
    let tools = vec![ToolSpec {
        name: "fs.read".into(),
        description: "Reads.".to_owned(),
        parameters: parameters.clone().into(),
    }];
    let options = ModelOptions { max_tokens: Some(9), reasoning: Some(Reasoning::High), ..ModelOptions::default() };
    let request =
        ModelRequest { tools: tools.into(), options, ..request("gemini-3-pro", vec![ChatMessage::user("hi")]) };
    let sent = body("gemini", &request);
    let declaration = json!({"name": "fs_read", "description": "Reads.", "parametersJsonSchema": parameters});
    assert_eq!(*sent.tools, [json!({"functionDeclarations": [declaration]})]);
    assert_eq!(
        sent.rest["generationConfig"],
        json!({"maxOutputTokens": 9, "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "high"}})
    );
    let legacy = ModelRequest { model: "gemini:gemini-2.5-flash".parse().unwrap(), ..request };
    assert_eq!(body("gemini", &legacy).rest["generationConfig"]["thinkingConfig"]["thinkingBudget"], 16_384);
}

#[test]
fn a08_model_that_always_thinks_gets_its_minimum() {
    let minimum = |model: &str| {
        let options = ModelOptions { reasoning: Some(Reasoning::None), ..ModelOptions::default() };
        let body = body("gemini", &ModelRequest { options, ..request(model, vec![ChatMessage::user("hi")]) });
        body.rest.get("generationConfig").map(|config| config["thinkingConfig"].clone())
    };
    assert_eq!(minimum("gemini-3-pro-preview"), Some(json!({"thinkingLevel": "low"})));
    assert_eq!(minimum("models/gemini-3-flash-preview"), Some(json!({"thinkingLevel": "minimal"})));
    assert_eq!(minimum("gemini-2.5-pro"), Some(json!({"thinkingBudget": 128})));
    assert_eq!(minimum("gemini-2.5-flash"), Some(json!({"thinkingBudget": 0})));
    assert_eq!(minimum("gemini-2.0-flash"), None, "it does not think");
}
