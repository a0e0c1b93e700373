//! Views: the messages that a model reads, derived from a tape.

use capstan_protocol::{ChatMessage, Content, MessageRole, ToolCall};
use serde_json::Value;

use crate::conversation::{ConversationBuilder, ResultTarget};
use crate::{ContextWindow, Entry, EntryKind, meta_keys};

/// Default view: the newest anchor, the messages that it carries over, and the entries after it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultView;

impl DefaultView {
    /// Kinds of entries that the view shows. Other entries are not read, which saves much, because most entries of a tape
    /// are events about calls.
    pub const KINDS: &[EntryKind] =
        &[EntryKind::Anchor, EntryKind::Message, EntryKind::ToolCall, EntryKind::ToolResult];

    /// Messages of this window. The host makes them [valid](crate::conversation::normalize_request) before it sends them.
    pub fn messages(self, window: &ContextWindow) -> Vec<ChatMessage> {
        let mut conversation = ConversationBuilder::new();
        for entry in window.entries().filter(|entry| !entry.is_hidden()) {
            push_entry(&mut conversation, entry);
        }
        conversation.finish()
    }
}

fn push_entry(conversation: &mut ConversationBuilder, entry: &Entry) {
    match &entry.kind {
        EntryKind::Anchor => {
            let name = entry.name().unwrap_or_default();
            let state = entry.payload.get("state").unwrap_or(&Value::Null);
            conversation.push(ChatMessage::assistant(format!("[Anchor created: {name}]: {state}")));
        }
        EntryKind::Message => {
            if let Some(mut message) = read_message(&entry.payload) {
                let provider_data = entry.meta.get(meta_keys::PROVIDER).cloned();
                message.extra.extend(provider_data.map(|data| (meta_keys::PROVIDER.to_owned(), data)));
                conversation.push(message);
            }
        }
        EntryKind::ToolCall => conversation.push(ChatMessage::from_tool_calls(read_calls(entry))),
        EntryKind::ToolResult => {
            let results = entry.payload.get("results").and_then(Value::as_array);
            let ids = entry.payload.get("call_ids").and_then(Value::as_array);
            for (position, result) in results.into_iter().flatten().enumerate() {
                let id = ids.and_then(|ids| ids.get(position)).and_then(Value::as_str);
                conversation
                    .push_result(id.map_or(ResultTarget::NextOpenCall, ResultTarget::CallId), read_content(result));
            }
        }
        EntryKind::System | EntryKind::Event | EntryKind::Error | EntryKind::Other(_) => {}
    }
}

/// Reads a message leniently, because the tape may come from another system.
fn read_message(payload: &Value) -> Option<ChatMessage> {
    if let Ok(message) = serde_json::from_value::<ChatMessage>(payload.clone()) {
        return Some(message);
    }
    let content = read_content(payload.get("content")?);
    match payload.get("role")?.as_str()? {
        "user" => Some(ChatMessage::user(content)),
        "assistant" => Some(ChatMessage::assistant(content)),
        "system" | "developer" => Some(ChatMessage { role: MessageRole::System, ..ChatMessage::user(content) }),
        _ => None,
    }
}

fn read_calls(entry: &Entry) -> Vec<ToolCall> {
    let calls = entry.payload.get("calls").and_then(Value::as_array);
    calls.into_iter().flatten().filter_map(read_call).collect()
}

fn read_call(call: &Value) -> Option<ToolCall> {
    if let Ok(call) = serde_json::from_value::<ToolCall>(call.clone()) {
        return Some(call);
    }
    let function = call.get("function")?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(object) => object.to_string(),
        None => "{}".to_owned(),
    };
    let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
    Some(ToolCall::new(id, function.get("name")?.as_str()?, arguments))
}

/// Reads text and parts; converts any other value to JSON text.
fn read_content(value: &Value) -> Content {
    match value {
        Value::Null => Content::default(),
        Value::String(text) => Content::Text(text.clone()),
        Value::Array(items) if items.iter().all(|item| item.get("type").is_some()) => {
            serde_json::from_value(value.clone()).unwrap_or_else(|_| Content::Text(value.to_string()))
        }
        other => Content::Text(other.to_string()),
    }
}
