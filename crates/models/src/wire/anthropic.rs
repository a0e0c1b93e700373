//! Anthropic Messages.
//!
//! Its rules: the roles alternate and the user begins; every call is answered in the one user turn that follows it,
//! results first; thoughts go back as they came, signatures included; no text is empty. The prefix that stays the same
//! from call to call (tools and system prompt, and the conversation so far) is marked for its prompt cache.

mod answer;
mod thinking;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, Map, ModelRequest, Role, ToolCall, ToolSpec};
use capstan_tape::conversation::CONTINUED;
use serde_json::{Value, json};

use super::opaque::{self, Speaker};
use super::parts::{self, NOTHING, Part};
pub(super) use answer::Answer;

/// The header that asks for what is not there for everybody yet. It may hold several names.
pub(crate) const BETA: &str = "anthropic-beta";
/// The name thoughts are kept under.
const THINKING: &str = "thinking";

pub(super) fn body(to: &Speaker, request: &ModelRequest, mut tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let limit = request.options.max_tokens.unwrap_or_else(|| longest_answer(model));
    let mut messages = turns(to, &request.messages);
    let mut rest = Map::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("max_tokens".to_owned(), json!(limit));
    rest.insert("stream".to_owned(), json!(true));
    if let Some(reasoning) = request.options.reasoning {
        rest.extend(thinking::settings(model, reasoning, limit, &messages));
    }
    if thinking::binds_thoughts(model) && has_thoughts(&messages) {
        thinking::leave_out_unbound(&mut rest);
    }
    if request.system.trim().is_empty() {
        let mut marked = tools.to_vec();
        marked.last_mut().into_iter().for_each(mark);
        tools = marked.into_iter().collect();
    } else {
        let mut system = json!({"type": "text", "text": request.system});
        mark(&mut system);
        rest.insert("system".to_owned(), json!([system]));
    }
    mark_conversation(&mut messages);
    RequestBody { rest, tools, messages_key: "messages".to_owned(), messages }
}

/// The limit is not optional here: what each model can write at most, or a good part of it.
fn longest_answer(model: &str) -> u32 {
    let known = [("claude-3-5", 8192), ("claude-3-7", 32_000), ("claude-3-", 4096)];
    known.iter().find(|(prefix, _)| model.starts_with(prefix)).map_or(32_000, |(_, limit)| *limit)
}

/// The header without which a request may not say what is to become of thoughts whose beginning has changed.
pub(super) fn beta(model: &str) -> Option<(&'static str, &'static str)> {
    thinking::binds_thoughts(model).then_some((BETA, "thinking-binding-controls-2026-08-01"))
}

fn has_thoughts(messages: &[Value]) -> bool {
    let is_thought = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    messages.iter().filter_map(|message| message["content"].as_array()).flatten().any(is_thought)
}

/// Marks the end of a prefix that is to be kept in the cache.
fn mark(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Marks the end of the conversation, and where it ended the last time: the cache looks back only so far.
fn mark_conversation(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(2) {
        let blocks = message["content"].as_array_mut();
        blocks.and_then(|blocks| blocks.last_mut()).into_iter().for_each(mark);
    }
}

/// The conversation as turns that alternate.
fn turns(to: &Speaker, messages: &[ChatMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for run in opaque::runs(messages) {
        let (role, blocks) = match run[0].role {
            Role::Assistant => ("assistant", opaque::restore(to, THINKING, run, said)),
            Role::Tool => ("user", run.iter().map(result).collect()),
            // There is no place for words of the system within the conversation.
            Role::User | Role::System => ("user", run.iter().flat_map(asked).collect()),
        };
        if blocks.is_empty() {
            continue;
        }
        if turns.is_empty() && role == "assistant" {
            turns.push(("user", vec![text(CONTINUED)]));
        }
        match turns.last_mut() {
            Some((last, there)) if *last == role => there.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    if turns.last().is_none_or(|(role, _)| *role == "assistant") {
        turns.push(("user", vec![text(NOTHING)]));
    }
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// An empty text is refused, and one of spaces too.
fn some_text(words: &str) -> Option<Value> {
    (!words.trim().is_empty()).then(|| text(words))
}

fn said(message: &ChatMessage) -> Vec<Value> {
    let words = some_text(&parts::text_only(&message.content));
    words.into_iter().chain(message.tool_calls.iter().map(call)).collect()
}

fn call(call: &ToolCall) -> Value {
    let input = parts::arguments(&call.function.arguments);
    json!({"type": "tool_use", "id": call.id, "name": call.function.name, "input": input})
}

fn result(message: &ChatMessage) -> Value {
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let content = asked(message);
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn asked(message: &ChatMessage) -> Vec<Value> {
    let block = |part: &Part<'_>| match part {
        Part::Text(words) => some_text(words),
        Part::Inline { media_type, data } => {
            Some(json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}))
        }
        Part::Linked(url) => Some(json!({"type": "image", "source": {"type": "url", "url": url}})),
        Part::Other(kind) => Some(text(&parts::note(kind))),
    };
    parts::parts(&message.content).iter().filter_map(block).collect()
}

pub(super) fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name.model_name(), "description": tool.description, "input_schema": tool.parameters})
}

#[cfg(test)]
mod tests;
