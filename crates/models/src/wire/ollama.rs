//! Ollama's own protocol: one JSON object per line.
//!
//! Images are accepted in base64 only, and arguments of calls are objects.

mod response;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ModelRequest, Reasoning, ToolCall};
use serde_json::{Value, json};

use super::SamplingKeys;
use super::message_parts::{self, MessagePart};
use super::provider_data::ModelOrigin;
pub(super) use response::OllamaReader;

/// Key of thoughts in the provider data of a call.
const THINKING_KEY: &str = "thinking";

pub(super) fn body(target: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(request.model.name()));
    rest.insert("stream".to_owned(), json!(true));
    if let Some(reasoning) = request.options.reasoning {
        rest.insert("think".to_owned(), think_option(request.model.name(), reasoning));
    }
    let mut options = JsonObject::new();
    if let Some(limit) = request.options.max_tokens {
        options.insert("num_predict".to_owned(), json!(limit));
    }
    super::insert_sampling(&mut options, &request.options, &SamplingKeys::SNAKE_CASE);
    if !options.is_empty() {
        rest.insert("options".to_owned(), Value::Object(options));
    }
    let system = (!request.system.is_empty()).then(|| json!({"role": "system", "content": request.system}));
    let messages = request.messages.iter().map(|message| encode_message(target, message));
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// Value of `think`: a boolean for most models, a level for the `gpt-oss` family.
fn think_option(model: &str, reasoning: Reasoning) -> Value {
    if model.starts_with("gpt-oss") && reasoning != Reasoning::None {
        json!(reasoning.as_str())
    } else {
        json!(reasoning != Reasoning::None)
    }
}

fn encode_message(target: &ModelOrigin, message: &ChatMessage) -> Value {
    match message.role {
        MessageRole::System => json!({"role": "system", "content": message_parts::content_to_text(&message.content)}),
        MessageRole::User => message_with_images("user", message),
        MessageRole::Assistant => {
            let mut encoded = json!({"role": "assistant", "content": message_parts::content_to_text(&message.content)});
            if !message.tool_calls.is_empty() {
                encoded["tool_calls"] = message.tool_calls.iter().map(encode_call).collect();
                if let Some(thinking) = target.unsigned_message_data(message, THINKING_KEY) {
                    encoded["thinking"] = thinking.clone();
                }
            }
            encoded
        }
        MessageRole::Tool => {
            let mut encoded = message_with_images("tool", message);
            encoded["tool_name"] = json!(message.name.as_deref().unwrap_or_default().replace('.', "_"));
            encoded["tool_call_id"] = json!(message.tool_call_id.as_deref().unwrap_or_default());
            encoded
        }
    }
}

fn encode_call(call: &ToolCall) -> Value {
    let arguments = message_parts::arguments_object(&call.function.arguments);
    json!({"id": call.id, "function": {"name": call.function.name, "arguments": arguments}})
}

/// Encodes a message with its images in a separate key.
fn message_with_images(role: &str, message: &ChatMessage) -> Value {
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for part in message_parts::read_parts(&message.content) {
        match part {
            MessagePart::InlineImage { data, .. } => images.push(data),
            MessagePart::Text(_) | MessagePart::LinkedImage(_) | MessagePart::Other(_) => texts.push(part.to_text()),
        }
    }
    let mut encoded = json!({"role": role, "content": texts.join("\n")});
    if !images.is_empty() {
        encoded["images"] = json!(images);
    }
    encoded
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
    fn images_are_sent_separately_and_linked_images_are_omitted() {
        let content = Content::Parts(vec![
            ContentPart::from_text("look"),
            ContentPart::from_image_url("data:image/png;base64,AA=="),
            ContentPart::from_image_url("https://example.com/a.png"),
        ]);
        let sent = WireProtocol::Ollama.body("ollama", &request(vec![ChatMessage::user(content)]));
        let expected = json!({"role": "user", "content": "look\n[image_url left out]", "images": ["AA=="]});
        assert_eq!(sent.messages, [expected]);
    }

    #[test]
    fn a08_token_limit_and_thinking_are_encoded() {
        let options = ModelOptions { max_tokens: Some(9), reasoning: Some(Reasoning::Low), ..ModelOptions::default() };
        let with_options = ModelRequest { options, ..request(vec![ChatMessage::user("hi")]) };
        let rest = WireProtocol::Ollama.body("ollama", &with_options).rest;
        assert_eq!((&rest["options"], &rest["think"]), (&json!({"num_predict": 9}), &json!(true)));
        let with_levels = ModelRequest { model: "ollama:gpt-oss:20b".parse().unwrap(), ..with_options };
        assert_eq!(WireProtocol::Ollama.body("ollama", &with_levels).rest["think"], "low");
    }
}
