//! Anthropic Messages.
//!
//! # Rules
//!
//! - Roles alternate and the user begins.
//! - Every call is answered in the user turn that follows it, results first.
//! - Thoughts are returned verbatim, signatures included.
//! - No text is empty.
//!
//! The stable prefix of a request (tools, system prompt and the conversation so far) is marked for the prompt cache.

mod response;
mod thinking;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ModelRequest, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::SamplingKeys;
use super::alternating_turns::{USER_ROLE, alternate_turns};
use super::message_parts::{self, MessagePart};
use super::provider_data::{self, ModelOrigin};
pub(super) use response::AnthropicReader;

/// Header for beta features; may list several names.
pub(crate) const BETA_HEADER: &str = "anthropic-beta";
/// Key of thoughts in the provider data.
const THINKING_KEY: &str = "thinking";

pub(super) fn body(target: &ModelOrigin, request: &ModelRequest, mut tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let limit = request.options.max_tokens.unwrap_or_else(|| default_max_tokens(model));
    let mut messages = build_turns(target, &request.messages);
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("max_tokens".to_owned(), json!(limit));
    rest.insert("stream".to_owned(), json!(true));
    let keys = SamplingKeys { stop: Some("stop_sequences"), ..SamplingKeys::SNAKE_CASE };
    super::insert_sampling(&mut rest, &request.options, &keys);
    if let Some(reasoning) = request.options.reasoning {
        rest.extend(thinking::thinking_options(model, reasoning, limit, &messages));
    }
    if thinking::binds_thinking_blocks(model) && has_thinking_blocks(&messages) {
        thinking::drop_unbound_blocks(&mut rest);
    }
    if request.system.trim().is_empty() {
        let mut marked = tools.to_vec();
        marked.last_mut().into_iter().for_each(mark_cacheable);
        tools = marked.into_iter().collect();
    } else {
        let mut system = json!({"type": "text", "text": request.system});
        mark_cacheable(&mut system);
        rest.insert("system".to_owned(), json!([system]));
    }
    mark_conversation_cacheable(&mut messages);
    RequestBody { rest, tools, messages_key: "messages".to_owned(), messages }
}

/// Default of the mandatory token limit: the maximum output of the model, or a large part of it.
fn default_max_tokens(model: &str) -> u32 {
    let known = [("claude-3-5", 8192), ("claude-3-7", 32_000), ("claude-3-", 4096)];
    known.iter().find(|(prefix, _)| model.starts_with(prefix)).map_or(32_000, |(_, limit)| *limit)
}

/// Header that a request needs to control how thoughts with a changed prefix are handled.
pub(super) fn beta_header(model: &str) -> Option<(&'static str, &'static str)> {
    thinking::binds_thinking_blocks(model).then_some((BETA_HEADER, "thinking-binding-controls-2026-08-01"))
}

fn has_thinking_blocks(messages: &[Value]) -> bool {
    let is_thinking = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    messages.iter().filter_map(|message| message["content"].as_array()).flatten().any(is_thinking)
}

/// Marks the end of a prefix to cache.
fn mark_cacheable(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Marks the end of the conversation and its previous end: the cache lookup reaches back only a limited number of blocks.
fn mark_conversation_cacheable(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(2) {
        let blocks = message["content"].as_array_mut();
        blocks.and_then(|blocks| blocks.last_mut()).into_iter().for_each(mark_cacheable);
    }
}

/// Conversation as alternating turns.
fn build_turns(target: &ModelOrigin, messages: &[ChatMessage]) -> Vec<Value> {
    let parts = provider_data::group_assistant_messages(messages).map(|group| match group[0].role {
        MessageRole::Assistant => {
            ("assistant", provider_data::restore_items(target, THINKING_KEY, group, assistant_blocks))
        }
        MessageRole::Tool => (USER_ROLE, group.iter().map(tool_result_block).collect()),
        // The protocol has no system messages within the conversation.
        MessageRole::User | MessageRole::System => (USER_ROLE, group.iter().flat_map(user_blocks).collect()),
    });
    let turns = alternate_turns(parts, text_block);
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Text block; `None` for blank text, which the provider rejects.
fn non_blank_text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| text_block(text))
}

fn assistant_blocks(message: &ChatMessage) -> Vec<Value> {
    let text = non_blank_text_block(&message_parts::content_to_text(&message.content));
    text.into_iter().chain(message.tool_calls.iter().map(tool_use_block)).collect()
}

fn tool_use_block(call: &ToolCall) -> Value {
    let input = message_parts::arguments_object(&call.function.arguments);
    json!({"type": "tool_use", "id": call.id, "name": call.function.name, "input": input})
}

fn tool_result_block(message: &ChatMessage) -> Value {
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let content = user_blocks(message);
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn user_blocks(message: &ChatMessage) -> Vec<Value> {
    let block = |part: &MessagePart<'_>| match part {
        MessagePart::Text(text) => non_blank_text_block(text),
        MessagePart::InlineImage { media_type, data } => {
            Some(json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}))
        }
        MessagePart::LinkedImage(url) => Some(json!({"type": "image", "source": {"type": "url", "url": url}})),
        MessagePart::Other(kind) => Some(text_block(&message_parts::omission_note(kind))),
    };
    message_parts::read_parts(&message.content).iter().filter_map(block).collect()
}

pub(super) fn encode_tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name.model_name(), "description": tool.description, "input_schema": tool.parameters})
}

#[cfg(test)]
mod tests;
