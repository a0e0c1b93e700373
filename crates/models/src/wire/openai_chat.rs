//! `OpenAI` chat.
//!
//! Keys of a message that it has no place for (`name`, and what is in `extra`) are left out.

mod call_assembler;
mod response;
mod tool_images;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{
    ChatMessage, Content, ContentPart, JsonObject, MessageRole, ModelRequest, Reasoning, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use super::message_parts::{self, MessagePart, content_to_text};
use super::provider_data::ModelOrigin;
use super::reasoning_effort::{always_reasons, effort_level};
pub(super) use response::OpenAiChatReader;

/// Reasoning that a server wants back with the calls it led to, by the names servers give it: words, and what is signed or
/// encrypted for the model that made it.
const REASONING_TEXT_KEYS: [&str; 2] = ["reasoning_content", "reasoning"];
const REASONING_DETAILS_KEY: &str = "reasoning_details";

/// Who speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatDialect {
    /// `OpenAI`, and whoever is compatible.
    OpenAi,
    /// `OpenRouter`.
    OpenRouter,
}

pub(super) fn body(flavour: ChatDialect, to: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("stream".to_owned(), json!(true));
    rest.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if let Some(limit) = request.options.max_tokens {
        rest.insert(token_limit_key(flavour, model).to_owned(), json!(limit));
    }
    if let Some(reasoning) = request.options.reasoning {
        let asked = match (flavour, reasoning) {
            (ChatDialect::OpenAi, reasoning) => {
                effort_level(model, reasoning).map(|effort| ("reasoning_effort", json!(effort)))
            }
            // It finds the least that a model takes itself, and refuses to turn off what cannot be.
            (ChatDialect::OpenRouter, Reasoning::None) if always_reasons(model) => {
                Some(("reasoning", json!({"effort": "minimal"})))
            }
            (ChatDialect::OpenRouter, Reasoning::None) => Some(("reasoning", json!({"enabled": false}))),
            (ChatDialect::OpenRouter, reasoning) => Some(("reasoning", json!({"effort": reasoning.as_str()}))),
        };
        rest.extend(asked.map(|(key, value)| (key.to_owned(), value)));
    }
    let system = (!request.system.is_empty()).then(|| system_message(flavour, model, &request.system));
    let sees = tool_images::supports_vision(model);
    let runs =
        request.messages.chunk_by(|before, next| before.role == MessageRole::Tool && next.role == MessageRole::Tool);
    let messages = runs.flat_map(|run| {
        let shown = if sees { tool_images::tool_images_message(run) } else { None };
        run.iter().map(|said| encode_message(to, said)).chain(shown)
    });
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// Models of Anthropic want to be told where the prefix ends that is to be kept in their cache; others find it themselves.
fn system_message(flavour: ChatDialect, model: &str, text: &str) -> Value {
    if flavour == ChatDialect::OpenRouter && model.starts_with("anthropic/") {
        let marked = json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
        json!({"role": "system", "content": [marked]})
    } else {
        json!({"role": "system", "content": text})
    }
}

/// `OpenAI`'s newer models know the limit by another name; other servers mostly know only the old one.
fn token_limit_key(flavour: ChatDialect, model: &str) -> &'static str {
    if flavour == ChatDialect::OpenAi && is_reasoning_model(model) { "max_completion_tokens" } else { "max_tokens" }
}

/// Whether it is one of `OpenAI`'s models that think before they answer.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"].iter().any(|prefix| model.starts_with(prefix))
}

fn encode_message(to: &ModelOrigin, message: &ChatMessage) -> Value {
    match message.role {
        MessageRole::System => json!({"role": "system", "content": content_to_text(&message.content)}),
        MessageRole::User => json!({"role": "user", "content": user_content(&message.content)}),
        MessageRole::Assistant if message.tool_calls.is_empty() => {
            json!({"role": "assistant", "content": content_to_text(&message.content)})
        }
        MessageRole::Assistant => {
            let calls: Vec<Value> = message.tool_calls.iter().map(encode_call).collect();
            let mut said =
                json!({"role": "assistant", "content": content_to_text(&message.content), "tool_calls": calls});
            let words = REASONING_TEXT_KEYS.map(|name| (name, to.unsigned_message_data(message, name)));
            for (name, reasoning) in
                words.into_iter().chain([(REASONING_DETAILS_KEY, to.message_data(message, REASONING_DETAILS_KEY))])
            {
                if let Some(reasoning) = reasoning {
                    said[name] = reasoning.clone();
                }
            }
            said
        }
        MessageRole::Tool => json!({
            "role": "tool",
            "content": content_to_text(&message.content),
            "tool_call_id": message.tool_call_id.as_deref().unwrap_or_default(),
        }),
    }
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!(text),
        Content::Parts(parts) => parts.iter().map(encode_part).collect(),
    }
}

/// A part as it is where this protocol knows it; a request with any other is refused.
fn encode_part(written: &ContentPart) -> Value {
    let ContentPart::Other(fields) = written else { return json!(written) };
    match message_parts::read_part(written) {
        MessagePart::InlineImage { .. } | MessagePart::LinkedImage(_) => {
            let url = fields.get("image_url").and_then(|image| image.get("url"));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        MessagePart::Other(kind @ ("input_audio" | "file")) if fields.get(kind).is_some_and(Value::is_object) => {
            json!(written)
        }
        read @ (MessagePart::Text(_) | MessagePart::Other(_)) => json!({"type": "text", "text": read.to_text()}),
    }
}

fn encode_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    })
}

pub(super) fn encode_tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name.model_name(),
            "description": tool.description,
            "parameters": tool.parameters,
        },
    })
}

#[cfg(test)]
mod tests;
