//! Anthropic Messages.
//!
//! Its rules: the roles alternate and the user begins; every call is answered in the one user turn that follows it,
//! results first; thoughts go back as they came, signatures included; no text is empty. The prefix that stays the same
//! from call to call (tools and system prompt, and the conversation so far) is marked for its prompt cache.

mod response;
mod thinking;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ModelRequest, ToolCall, ToolSpec};
use capstan_tape::conversation::CONTINUED_NOTICE;
use serde_json::{Value, json};

use super::message_parts::{self, EMPTY_MESSAGE_NOTE, MessagePart};
use super::provider_data::{self, ModelOrigin};
pub(super) use response::AnthropicReader;

/// The header that asks for what is not there for everybody yet. It may hold several names.
pub(crate) const BETA_HEADER: &str = "anthropic-beta";
/// The name thoughts are kept under.
const THINKING_KEY: &str = "thinking";

pub(super) fn body(to: &ModelOrigin, request: &ModelRequest, mut tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let limit = request.options.max_tokens.unwrap_or_else(|| default_max_tokens(model));
    let mut messages = build_turns(to, &request.messages);
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("max_tokens".to_owned(), json!(limit));
    rest.insert("stream".to_owned(), json!(true));
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

/// The limit is not optional here: what each model can write at most, or a good part of it.
fn default_max_tokens(model: &str) -> u32 {
    let known = [("claude-3-5", 8192), ("claude-3-7", 32_000), ("claude-3-", 4096)];
    known.iter().find(|(prefix, _)| model.starts_with(prefix)).map_or(32_000, |(_, limit)| *limit)
}

/// The header without which a request may not say what is to become of thoughts whose beginning has changed.
pub(super) fn beta_header(model: &str) -> Option<(&'static str, &'static str)> {
    thinking::binds_thinking_blocks(model).then_some((BETA_HEADER, "thinking-binding-controls-2026-08-01"))
}

fn has_thinking_blocks(messages: &[Value]) -> bool {
    let is_thought = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    messages.iter().filter_map(|message| message["content"].as_array()).flatten().any(is_thought)
}

/// Marks the end of a prefix that is to be kept in the cache.
fn mark_cacheable(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Marks the end of the conversation, and where it ended the last time: the cache looks back only so far.
fn mark_conversation_cacheable(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(2) {
        let blocks = message["content"].as_array_mut();
        blocks.and_then(|blocks| blocks.last_mut()).into_iter().for_each(mark_cacheable);
    }
}

/// The conversation as turns that alternate.
fn build_turns(to: &ModelOrigin, messages: &[ChatMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for run in provider_data::group_assistant_messages(messages) {
        let (role, blocks) = match run[0].role {
            MessageRole::Assistant => {
                ("assistant", provider_data::restore_items(to, THINKING_KEY, run, assistant_blocks))
            }
            MessageRole::Tool => ("user", run.iter().map(tool_result_block).collect()),
            // There is no place for words of the system within the conversation.
            MessageRole::User | MessageRole::System => ("user", run.iter().flat_map(user_blocks).collect()),
        };
        if blocks.is_empty() {
            continue;
        }
        if turns.is_empty() && role == "assistant" {
            turns.push(("user", vec![text_block(CONTINUED_NOTICE)]));
        }
        match turns.last_mut() {
            Some((last, there)) if *last == role => there.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    if turns.last().is_none_or(|(role, _)| *role == "assistant") {
        turns.push(("user", vec![text_block(EMPTY_MESSAGE_NOTE)]));
    }
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// An empty text is refused, and one of spaces too.
fn non_blank_text_block(words: &str) -> Option<Value> {
    (!words.trim().is_empty()).then(|| text_block(words))
}

fn assistant_blocks(message: &ChatMessage) -> Vec<Value> {
    let words = non_blank_text_block(&message_parts::content_to_text(&message.content));
    words.into_iter().chain(message.tool_calls.iter().map(tool_use_block)).collect()
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
        MessagePart::Text(words) => non_blank_text_block(words),
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
