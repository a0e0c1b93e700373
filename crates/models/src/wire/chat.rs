//! `OpenAI` chat.
//!
//! Keys of a message that it has no place for (`name`, and what is in `extra`) are left out.

mod answer;
mod calls;
mod images;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, Content, ContentPart, Map, ModelRequest, Reasoning, Role, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::effort::{always_thinks, effort};
use super::opaque::Speaker;
use super::parts::{self, Part, text_only};
pub(super) use answer::Answer;

/// Reasoning that a server wants back with the calls it led to, by the names servers give it: words, and what is signed or
/// encrypted for the model that made it.
const WORDS: [&str; 2] = ["reasoning_content", "reasoning"];
const DETAILS: &str = "reasoning_details";

/// Who speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// `OpenAI`, and whoever is compatible.
    Plain,
    /// `OpenRouter`.
    OpenRouter,
}

pub(super) fn body(flavour: Flavour, to: &Speaker, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = Map::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("stream".to_owned(), json!(true));
    rest.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if let Some(limit) = request.options.max_tokens {
        rest.insert(limit_field(flavour, model).to_owned(), json!(limit));
    }
    if let Some(reasoning) = request.options.reasoning {
        let asked = match (flavour, reasoning) {
            (Flavour::Plain, reasoning) => effort(model, reasoning).map(|effort| ("reasoning_effort", json!(effort))),
            // It finds the least that a model takes itself, and refuses to turn off what cannot be.
            (Flavour::OpenRouter, Reasoning::None) if always_thinks(model) => {
                Some(("reasoning", json!({"effort": "minimal"})))
            }
            (Flavour::OpenRouter, Reasoning::None) => Some(("reasoning", json!({"enabled": false}))),
            (Flavour::OpenRouter, reasoning) => Some(("reasoning", json!({"effort": reasoning.as_str()}))),
        };
        rest.extend(asked.map(|(key, value)| (key.to_owned(), value)));
    }
    let system = (!request.system.is_empty()).then(|| system(flavour, model, &request.system));
    let sees = images::sees(model);
    let runs = request.messages.chunk_by(|before, next| before.role == Role::Tool && next.role == Role::Tool);
    let messages = runs.flat_map(|run| {
        let shown = if sees { images::of_results(run) } else { None };
        run.iter().map(|said| message(to, said)).chain(shown)
    });
    RequestBody {
        rest,
        tools,
        messages_key: "messages".to_owned(),
        messages: system.into_iter().chain(messages).collect(),
    }
}

/// Models of Anthropic want to be told where the prefix ends that is to be kept in their cache; others find it themselves.
fn system(flavour: Flavour, model: &str, text: &str) -> Value {
    if flavour == Flavour::OpenRouter && model.starts_with("anthropic/") {
        let marked = json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
        json!({"role": "system", "content": [marked]})
    } else {
        json!({"role": "system", "content": text})
    }
}

/// `OpenAI`'s newer models know the limit by another name; other servers mostly know only the old one.
fn limit_field(flavour: Flavour, model: &str) -> &'static str {
    if flavour == Flavour::Plain && is_reasoner(model) { "max_completion_tokens" } else { "max_tokens" }
}

/// Whether it is one of `OpenAI`'s models that think before they answer.
pub(super) fn is_reasoner(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"].iter().any(|prefix| model.starts_with(prefix))
}

fn message(to: &Speaker, message: &ChatMessage) -> Value {
    match message.role {
        Role::System => json!({"role": "system", "content": text_only(&message.content)}),
        Role::User => json!({"role": "user", "content": asked(&message.content)}),
        Role::Assistant if message.tool_calls.is_empty() => {
            json!({"role": "assistant", "content": text_only(&message.content)})
        }
        Role::Assistant => {
            let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
            let mut said = json!({"role": "assistant", "content": text_only(&message.content), "tool_calls": calls});
            let words = WORDS.map(|name| (name, to.words_in_message(message, name)));
            for (name, reasoning) in words.into_iter().chain([(DETAILS, to.in_message(message, DETAILS))]) {
                if let Some(reasoning) = reasoning {
                    said[name] = reasoning.clone();
                }
            }
            said
        }
        Role::Tool => json!({
            "role": "tool",
            "content": text_only(&message.content),
            "tool_call_id": message.tool_call_id.as_deref().unwrap_or_default(),
        }),
    }
}

fn asked(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!(text),
        Content::Parts(parts) => parts.iter().map(part).collect(),
    }
}

/// A part as it is where this protocol knows it; a request with any other is refused.
fn part(written: &ContentPart) -> Value {
    let ContentPart::Other(fields) = written else { return json!(written) };
    match parts::part(written) {
        Part::Inline { .. } | Part::Linked(_) => {
            let url = fields.get("image_url").and_then(|image| image.get("url"));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        Part::Other(kind @ ("input_audio" | "file")) if fields.get(kind).is_some_and(Value::is_object) => {
            json!(written)
        }
        read @ (Part::Text(_) | Part::Other(_)) => json!({"type": "text", "text": read.as_text()}),
    }
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    })
}

pub(super) fn tool(tool: &ToolSpec) -> Value {
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
