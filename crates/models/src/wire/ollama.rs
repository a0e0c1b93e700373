//! Ollama's own protocol: one JSON object per line.
//!
//! It takes images in base64 only, and arguments of calls as objects.

mod response;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ModelRequest, Reasoning, ToolCall};
use serde_json::{Value, json};

use super::message_parts::{self, MessagePart};
use super::provider_data::ModelOrigin;
pub(super) use response::OllamaReader;

/// The name under which thoughts that led to calls are kept.
const THINKING_KEY: &str = "thinking";

pub(super) fn body(to: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(request.model.name()));
    rest.insert("stream".to_owned(), json!(true));
    if let Some(reasoning) = request.options.reasoning {
        rest.insert("think".to_owned(), think_option(request.model.name(), reasoning));
    }
    if let Some(limit) = request.options.max_tokens {
        rest.insert("options".to_owned(), json!({"num_predict": limit}));
    }
    let system = (!request.system.is_empty()).then(|| json!({"role": "system", "content": request.system}));
    let messages = request.messages.iter().map(|said| encode_message(to, said));
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// Most models think or do not; one family takes a level.
fn think_option(model: &str, reasoning: Reasoning) -> Value {
    if model.starts_with("gpt-oss") && reasoning != Reasoning::None {
        json!(reasoning.as_str())
    } else {
        json!(reasoning != Reasoning::None)
    }
}

fn encode_message(to: &ModelOrigin, message: &ChatMessage) -> Value {
    match message.role {
        MessageRole::System => json!({"role": "system", "content": message_parts::content_to_text(&message.content)}),
        MessageRole::User => message_with_images("user", message),
        MessageRole::Assistant => {
            let mut said = json!({"role": "assistant", "content": message_parts::content_to_text(&message.content)});
            if !message.tool_calls.is_empty() {
                said["tool_calls"] = message.tool_calls.iter().map(encode_call).collect();
                if let Some(thinking) = to.unsigned_message_data(message, THINKING_KEY) {
                    said["thinking"] = thinking.clone();
                }
            }
            said
        }
        MessageRole::Tool => {
            let mut answer = message_with_images("tool", message);
            answer["tool_name"] = json!(message.name.as_deref().unwrap_or_default().replace('.', "_"));
            answer["tool_call_id"] = json!(message.tool_call_id.as_deref().unwrap_or_default());
            answer
        }
    }
}

fn encode_call(call: &ToolCall) -> Value {
    let arguments = message_parts::arguments_object(&call.function.arguments);
    json!({"id": call.id, "function": {"name": call.function.name, "arguments": arguments}})
}

/// A message with its images apart, as they are sent here.
fn message_with_images(role: &str, message: &ChatMessage) -> Value {
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for part in message_parts::read_parts(&message.content) {
        match part {
            MessagePart::InlineImage { data, .. } => images.push(data),
            MessagePart::Text(_) | MessagePart::LinkedImage(_) | MessagePart::Other(_) => texts.push(part.to_text()),
        }
    }
    let mut said = json!({"role": role, "content": texts.join("\n")});
    if !images.is_empty() {
        said["images"] = json!(images);
    }
    said
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, Reasoning, ToolCall};
    use serde_json::json;

    use crate::WireProtocol;

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        let model = "ollama:qwen3:8b".parse().unwrap();
        ModelRequest { model, system: String::new(), messages, tools: [].into(), options: ModelOptions::default() }
    }

    #[test]
    fn p13_arguments_are_objects_and_results_name_their_tool() {
        let mut call = ToolCall::new("a", "fs_read", r#"{"path":"a"}"#);
        call.extra.insert("provider".to_owned(), json!({"ollama": {"thinking": "hm"}}));
        let sent = WireProtocol::Ollama.body(
            "ollama",
            &request(vec![
                ChatMessage::user("go"),
                ChatMessage::from_tool_calls(vec![call]),
                ChatMessage::tool_result("a", "fs.read", "A"),
            ]),
        );
        assert_eq!(sent.rest["model"], "qwen3:8b");
        assert_eq!(
            sent.messages[1..],
            [
                json!({"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                    {"id": "a", "function": {"name": "fs_read", "arguments": {"path": "a"}}}
                ]}),
                json!({"role": "tool", "content": "A", "tool_name": "fs_read", "tool_call_id": "a"}),
            ]
        );
    }

    #[test]
    fn images_are_apart_and_those_by_address_are_left_out() {
        let content = Content::Parts(vec![
            ContentPart::text("look"),
            ContentPart::image("data:image/png;base64,AA=="),
            ContentPart::image("https://example.com/a.png"),
        ]);
        let sent = WireProtocol::Ollama.body("ollama", &request(vec![ChatMessage::user(content)]));
        let expected = json!({"role": "user", "content": "look\n[image_url left out]", "images": ["AA=="]});
        assert_eq!(sent.messages, [expected]);
    }

    #[test]
    fn a8_limits_and_thinking_have_their_places() {
        let options = ModelOptions { max_tokens: Some(9), reasoning: Some(Reasoning::Low) };
        let asked = ModelRequest { options, ..request(vec![ChatMessage::user("hi")]) };
        let rest = WireProtocol::Ollama.body("ollama", &asked).rest;
        assert_eq!((&rest["options"], &rest["think"]), (&json!({"num_predict": 9}), &json!(true)));
        let with_levels = ModelRequest { model: "ollama:gpt-oss:20b".parse().unwrap(), ..asked };
        assert_eq!(WireProtocol::Ollama.body("ollama", &with_levels).rest["think"], "low");
    }
}
