//! `OpenAI` chat completions.
//!
//! Keys of a message that the protocol does not define (`name`, and everything in `extra`) are omitted.

mod call_assembler;
mod response;
mod tool_images;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{
    ChatMessage, Content, ContentPart, JsonObject, MessageRole, ModelRequest, Reasoning, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use super::SamplingKeys;
use super::message_parts::{self, MessagePart, content_to_text};
use super::provider_data::ModelOrigin;
use super::reasoning_effort::{always_reasons, effort_level};
pub(super) use response::OpenAiChatReader;

/// Keys of reasoning that servers expect back with the calls it led to: plain text under either of two names, and data
/// signed or encrypted for the model that produced it.
const REASONING_TEXT_KEYS: [&str; 2] = ["reasoning_content", "reasoning"];
const REASONING_DETAILS_KEY: &str = "reasoning_details";

/// Variant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatDialect {
    /// `OpenAI` and compatible servers.
    OpenAi,
    /// `OpenRouter`.
    OpenRouter,
}

pub(super) fn body(dialect: ChatDialect, target: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("stream".to_owned(), json!(true));
    rest.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if let Some(limit) = request.options.max_tokens {
        rest.insert(token_limit_key(dialect, model).to_owned(), json!(limit));
    }
    super::insert_sampling(&mut rest, &request.options, &SamplingKeys::SNAKE_CASE);
    if let Some(reasoning) = request.options.reasoning {
        let option = match (dialect, reasoning) {
            (ChatDialect::OpenAi, reasoning) => {
                effort_level(model, reasoning).map(|effort| ("reasoning_effort", json!(effort)))
            }
            // OpenRouter selects the lowest level of a model itself, and rejects turning off what cannot be turned off.
            (ChatDialect::OpenRouter, Reasoning::None) if always_reasons(model) => {
                Some(("reasoning", json!({"effort": "minimal"})))
            }
            (ChatDialect::OpenRouter, Reasoning::None) => Some(("reasoning", json!({"enabled": false}))),
            (ChatDialect::OpenRouter, reasoning) => Some(("reasoning", json!({"effort": reasoning.as_str()}))),
        };
        rest.extend(option.map(|(key, value)| (key.to_owned(), value)));
    }
    let system = (!request.system.is_empty()).then(|| system_message(dialect, model, &request.system));
    let supports_vision = tool_images::supports_vision(model);
    let groups =
        request.messages.chunk_by(|before, next| before.role == MessageRole::Tool && next.role == MessageRole::Tool);
    let messages = groups.flat_map(|group| {
        let images = if supports_vision { tool_images::tool_images_message(group) } else { None };
        group.iter().map(|message| encode_message(target, message)).chain(images)
    });
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// System message. Anthropic models need a mark at the end of the prefix to cache; others find it themselves.
fn system_message(dialect: ChatDialect, model: &str, text: &str) -> Value {
    if dialect == ChatDialect::OpenRouter && model.starts_with("anthropic/") {
        let marked = json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
        json!({"role": "system", "content": [marked]})
    } else {
        json!({"role": "system", "content": text})
    }
}

/// Key of the token limit. Newer `OpenAI` models use another name; most other servers know only the old one.
fn token_limit_key(dialect: ChatDialect, model: &str) -> &'static str {
    if dialect == ChatDialect::OpenAi && is_reasoning_model(model) { "max_completion_tokens" } else { "max_tokens" }
}

/// True for `OpenAI` models that reason before they answer.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"].iter().any(|prefix| model.starts_with(prefix))
}

fn encode_message(target: &ModelOrigin, message: &ChatMessage) -> Value {
    match message.role {
        MessageRole::System => json!({"role": "system", "content": content_to_text(&message.content)}),
        MessageRole::User => json!({"role": "user", "content": user_content(&message.content)}),
        MessageRole::Assistant if message.tool_calls.is_empty() => {
            json!({"role": "assistant", "content": content_to_text(&message.content)})
        }
        MessageRole::Assistant => {
            let calls: Vec<Value> = message.tool_calls.iter().map(encode_call).collect();
            let mut encoded =
                json!({"role": "assistant", "content": content_to_text(&message.content), "tool_calls": calls});
            let texts = REASONING_TEXT_KEYS.map(|name| (name, target.unsigned_message_data(message, name)));
            let details = (REASONING_DETAILS_KEY, target.message_data(message, REASONING_DETAILS_KEY));
            for (name, reasoning) in texts.into_iter().chain([details]) {
                if let Some(reasoning) = reasoning {
                    encoded[name] = reasoning.clone();
                }
            }
            encoded
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

/// Encodes a part of a user message. Unknown parts become text, since a request with one is rejected.
fn encode_part(part: &ContentPart) -> Value {
    let ContentPart::Other(fields) = part else { return json!(part) };
    match message_parts::read_part(part) {
        MessagePart::InlineImage { .. } | MessagePart::LinkedImage(_) => {
            let url = fields.get("image_url").and_then(|image| image.get("url"));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        MessagePart::Other(kind @ ("input_audio" | "file")) if fields.get(kind).is_some_and(Value::is_object) => {
            json!(part)
        }
        other @ (MessagePart::Text(_) | MessagePart::Other(_)) => json!({"type": "text", "text": other.to_text()}),
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
