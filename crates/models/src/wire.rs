//! What an `OpenAI` chat server receives.
//!
//! [`OpenAi`](crate::OpenAi) sends exactly these values, so what is recorded from them before a call is what the model
//! got. Keys of a message that `OpenAI` chat has no place for (`name`, and what is in `extra`) are left out.

use capstan_protocol::{ChatMessage, Content, ContentPart, KnownPart, ModelRequest, Role, ToolCall, ToolSpec};
use serde::Serialize;
use serde_json::{Value, json};

/// The parts of a request body that say what the model gets to read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WireBody {
    /// The model's name at the provider.
    pub model: String,
    /// The conversation, the system prompt first.
    pub messages: Vec<Value>,
    /// The tools; the key is not sent when there are none.
    pub tools: Vec<Value>,
}

/// The body of a request, as an `OpenAI` chat server receives it.
///
/// ```
/// use capstan_models::wire::openai_body;
/// use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};
/// use serde_json::json;
///
/// let body = openai_body(&ModelRequest {
///     model: "openai:gpt-5".parse().unwrap(),
///     system: "Be brief.".to_owned(),
///     messages: vec![ChatMessage::user("hi")],
///     tools: vec![],
///     options: ModelOptions::default(),
/// });
/// assert_eq!(body.model, "gpt-5");
/// assert_eq!(
///     body.messages,
///     [json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "hi"})]
/// );
/// ```
pub fn openai_body(request: &ModelRequest) -> WireBody {
    let system = (!request.system.is_empty()).then(|| json!({"role": "system", "content": request.system}));
    WireBody {
        model: request.model.name().to_owned(),
        messages: system.into_iter().chain(request.messages.iter().map(message)).collect(),
        tools: request.tools.iter().map(tool).collect(),
    }
}

fn message(message: &ChatMessage) -> Value {
    match message.role {
        Role::System => json!({"role": "system", "content": text_only(&message.content)}),
        Role::User => json!({"role": "user", "content": message.content}),
        Role::Assistant if message.tool_calls.is_empty() => {
            json!({"role": "assistant", "content": text_only(&message.content)})
        }
        Role::Assistant => {
            let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
            json!({"role": "assistant", "content": text_only(&message.content), "tool_calls": calls})
        }
        Role::Tool => json!({
            "role": "tool",
            "content": text_only(&message.content),
            "tool_call_id": message.tool_call_id.as_deref().unwrap_or_default(),
        }),
    }
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    })
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name.model_name(),
            "description": tool.description,
            "parameters": tool.parameters,
        },
    })
}

/// The content as text. Providers take other parts from a user only, and refuse the whole request over one elsewhere:
/// a note stands in its place, so that the model knows that something was there.
fn text_only(content: &Content) -> String {
    let parts = match content {
        Content::Text(text) => return text.clone(),
        Content::Parts(parts) => parts,
    };
    let lines: Vec<String> = parts
        .iter()
        .map(|part| part.as_text().map_or_else(|| format!("[{} left out]", kind(part)), str::to_owned))
        .collect();
    lines.join("\n")
}

fn kind(part: &ContentPart) -> &str {
    match part {
        ContentPart::Known(KnownPart::Text { .. }) => "text",
        ContentPart::Known(KnownPart::ImageUrl { .. }) => "image_url",
        ContentPart::Other(part) => part.get("type").and_then(Value::as_str).unwrap_or("part"),
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Content, ContentPart, Map, ModelOptions, ModelRequest, ToolCall, ToolSpec};
    use serde_json::{Value, json};

    use super::openai_body;

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        let model = "openai:m".parse().unwrap();
        ModelRequest { model, system: String::new(), messages, tools: Vec::new(), options: ModelOptions::default() }
    }

    fn messages(messages: Vec<ChatMessage>) -> Vec<Value> {
        openai_body(&request(messages)).messages
    }

    #[test]
    fn calls_and_results_have_the_form_of_openai_chat() {
        let sent = messages(vec![
            ChatMessage::user("go"),
            ChatMessage::calls(vec![ToolCall::new("c1", "fs_read", "{not json")]),
            ChatMessage::tool("c1", "fs.read", "# Demo"),
        ]);
        assert_eq!(
            sent,
            [
                json!({"role": "user", "content": "go"}),
                json!({"role": "assistant", "content": "", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": "{not json"}}
                ]}),
                json!({"role": "tool", "content": "# Demo", "tool_call_id": "c1"}),
            ]
        );
    }

    #[test]
    fn parts_of_a_user_are_sent_as_they_are() {
        let parts = json!([
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        ]);
        let content: Content = serde_json::from_value(parts.clone()).unwrap();
        assert_eq!(messages(vec![ChatMessage::user(content)]), [json!({"role": "user", "content": parts})]);
    }

    #[test]
    fn an_image_in_a_tool_result_becomes_a_note() {
        let parts = Content::Parts(vec![ContentPart::text("a screenshot:"), ContentPart::image("data:x")]);
        let sent = messages(vec![ChatMessage::tool("c1", "screen", parts)]);
        assert_eq!(sent[0]["content"], "a screenshot:\n[image_url left out]");
    }

    #[test]
    fn keys_openai_chat_has_no_place_for_are_left_out() {
        let mut message = ChatMessage::user("hi");
        message.name = Some("ada".to_owned());
        message.extra = Map::from_iter([("date".to_owned(), json!("today"))]);
        assert_eq!(messages(vec![message]), [json!({"role": "user", "content": "hi"})]);
    }

    #[test]
    fn tools_go_by_the_name_models_see() {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let spec =
            ToolSpec { name: "fs.read".into(), description: "Reads.".to_owned(), parameters: parameters.clone() };
        let body = openai_body(&ModelRequest { tools: vec![spec], ..request(vec![ChatMessage::user("hi")]) });
        assert_eq!(
            body.tools,
            [json!({"type": "function", "function": {
                "name": "fs_read", "description": "Reads.", "parameters": parameters
            }})]
        );
    }
}
