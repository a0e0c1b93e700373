//! Ollama's own protocol: one JSON object per line.
//!
//! It takes images in base64 only, and arguments of calls as objects.

mod answer;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, Map, ModelRequest, Reasoning, Role, ToolCall};
use serde_json::{Value, json};

use super::opaque::Speaker;
use super::parts::{self, Part};
pub(super) use answer::Answer;

/// The name under which thoughts that led to calls are kept.
const THINKING: &str = "thinking";

pub(super) fn body(to: &Speaker, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let mut rest = Map::new();
    rest.insert("model".to_owned(), json!(request.model.name()));
    rest.insert("stream".to_owned(), json!(true));
    if let Some(reasoning) = request.options.reasoning {
        rest.insert("think".to_owned(), think(request.model.name(), reasoning));
    }
    if let Some(limit) = request.options.max_tokens {
        rest.insert("options".to_owned(), json!({"num_predict": limit}));
    }
    let system = (!request.system.is_empty()).then(|| json!({"role": "system", "content": request.system}));
    let messages = request.messages.iter().map(|said| message(to, said));
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// Most models think or do not; one family takes a level.
fn think(model: &str, reasoning: Reasoning) -> Value {
    if model.starts_with("gpt-oss") && reasoning != Reasoning::None {
        json!(reasoning.as_str())
    } else {
        json!(reasoning != Reasoning::None)
    }
}

fn message(to: &Speaker, message: &ChatMessage) -> Value {
    match message.role {
        Role::System => json!({"role": "system", "content": parts::text_only(&message.content)}),
        Role::User => with_images("user", message),
        Role::Assistant => {
            let mut said = json!({"role": "assistant", "content": parts::text_only(&message.content)});
            if !message.tool_calls.is_empty() {
                said["tool_calls"] = message.tool_calls.iter().map(call).collect();
                if let Some(thinking) = to.words_in_message(message, THINKING) {
                    said["thinking"] = thinking.clone();
                }
            }
            said
        }
        Role::Tool => {
            let mut answer = with_images("tool", message);
            answer["tool_name"] = json!(message.name.as_deref().unwrap_or_default().replace('.', "_"));
            answer["tool_call_id"] = json!(message.tool_call_id.as_deref().unwrap_or_default());
            answer
        }
    }
}

fn call(call: &ToolCall) -> Value {
    let arguments = parts::arguments(&call.function.arguments);
    json!({"id": call.id, "function": {"name": call.function.name, "arguments": arguments}})
}

/// A message with its images apart, as they are sent here.
fn with_images(role: &str, message: &ChatMessage) -> Value {
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for part in parts::parts(&message.content) {
        match part {
            Part::Inline { data, .. } => images.push(data),
            Part::Text(_) | Part::Linked(_) | Part::Other(_) => texts.push(part.as_text()),
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

    use crate::Wire;

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        let model = "ollama:qwen3:8b".parse().unwrap();
        ModelRequest { model, system: String::new(), messages, tools: [].into(), options: ModelOptions::default() }
    }

    #[test]
    fn p13_arguments_are_objects_and_results_name_their_tool() {
        let mut call = ToolCall::new("a", "fs_read", r#"{"path":"a"}"#);
        call.extra.insert("provider".to_owned(), json!({"ollama": {"thinking": "hm"}}));
        let sent = Wire::Ollama.body(
            "ollama",
            &request(vec![
                ChatMessage::user("go"),
                ChatMessage::calls(vec![call]),
                ChatMessage::tool("a", "fs.read", "A"),
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
        let sent = Wire::Ollama.body("ollama", &request(vec![ChatMessage::user(content)]));
        let expected = json!({"role": "user", "content": "look\n[image_url left out]", "images": ["AA=="]});
        assert_eq!(sent.messages, [expected]);
    }

    #[test]
    fn a8_limits_and_thinking_have_their_places() {
        let options = ModelOptions { max_tokens: Some(9), reasoning: Some(Reasoning::Low) };
        let asked = ModelRequest { options, ..request(vec![ChatMessage::user("hi")]) };
        let rest = Wire::Ollama.body("ollama", &asked).rest;
        assert_eq!((&rest["options"], &rest["think"]), (&json!({"num_predict": 9}), &json!(true)));
        let with_levels = ModelRequest { model: "ollama:gpt-oss:20b".parse().unwrap(), ..asked };
        assert_eq!(Wire::Ollama.body("ollama", &with_levels).rest["think"], "low");
    }
}
