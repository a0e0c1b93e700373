//! `OpenAI` Responses.
//!
//! Responses are not stored at the provider: every request contains the whole conversation, and encrypted reasoning is
//! sent back before the items it led to. A call and its output are separate items, paired by the call id.

mod response;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{
    ChatMessage, Content, ContentPart, JsonObject, KnownPart, MessageRole, ModelRequest, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use super::SamplingKeys;
use super::message_parts::{self, MessagePart};
use super::openai_chat::is_reasoning_model;
use super::provider_data::{self, ModelOrigin};
use super::reasoning_effort::effort_level;
pub(super) use response::OpenAiResponsesReader;

/// Keys in the provider data.
const REASONING_ITEMS_KEY: &str = "reasoning";
const ITEM_ID_KEY: &str = "id";

pub(super) fn body(target: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = JsonObject::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("stream".to_owned(), json!(true));
    rest.insert("store".to_owned(), json!(false));
    if !request.system.is_empty() {
        rest.insert("instructions".to_owned(), json!(request.system));
    }
    if let Some(limit) = request.options.max_tokens {
        rest.insert("max_output_tokens".to_owned(), json!(limit));
    }
    super::insert_sampling(&mut rest, &request.options, &SamplingKeys { stop: None, ..SamplingKeys::SNAKE_CASE });
    let effort = request.options.reasoning.and_then(|reasoning| effort_level(model, reasoning));
    if let Some(effort) = effort {
        rest.insert("reasoning".to_owned(), json!({"effort": effort, "summary": "auto"}));
    }
    // Models without reasoning reject a request for it.
    if is_reasoning_model(model) || effort.is_some() {
        rest.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    RequestBody {
        rest,
        tools,
        messages_key: "input".to_owned(),
        messages: provider_data::group_assistant_messages(&request.messages)
            .flat_map(|group| input_items(target, group))
            .collect(),
    }
}

fn input_items(target: &ModelOrigin, group: &[ChatMessage]) -> Vec<Value> {
    match group[0].role {
        MessageRole::Assistant => {
            provider_data::restore_items(target, REASONING_ITEMS_KEY, group, |message| assistant_items(target, message))
        }
        MessageRole::User => {
            group.iter().map(|message| json!({"role": "user", "content": user_content(&message.content)})).collect()
        }
        MessageRole::System => group
            .iter()
            .map(|message| json!({"role": "developer", "content": message_parts::content_to_text(&message.content)}))
            .collect(),
        MessageRole::Tool => group.iter().map(function_output_item).collect(),
    }
}

fn assistant_items(target: &ModelOrigin, message: &ChatMessage) -> Vec<Value> {
    let text = message_parts::content_to_text(&message.content);
    let item = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let item = (!text.is_empty()).then_some(item);
    item.into_iter().chain(message.tool_calls.iter().map(|call| function_call_item(target, call))).collect()
}

fn function_call_item(target: &ModelOrigin, call: &ToolCall) -> Value {
    let mut item = json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.function.name,
        "arguments": call.function.arguments,
    });
    if let Some(id) = target.call_data(call, ITEM_ID_KEY) {
        item["id"] = id.clone();
    }
    item
}

fn function_output_item(message: &ChatMessage) -> Value {
    let output = match &message.content {
        Content::Text(text) => json!(text),
        Content::Parts(_) => user_content(&message.content),
    };
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

fn user_content(content: &Content) -> Value {
    let Content::Parts(parts) = content else { return json!([{"type": "input_text", "text": content.text()}]) };
    let read = message_parts::read_parts(content);
    parts.iter().zip(&read).map(|(part, read)| encode_part(part, read)).collect()
}

fn encode_part(part: &ContentPart, read: &MessagePart<'_>) -> Value {
    match (part, read) {
        (ContentPart::Known(KnownPart::ImageUrl { image_url }), _) => {
            let detail = image_url.detail.as_deref().unwrap_or("auto");
            json!({"type": "input_image", "image_url": image_url.url, "detail": detail})
        }
        (_, read) => json!({"type": "input_text", "text": read.to_text()}),
    }
}

pub(super) fn encode_tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": tool.name.model_name(),
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": false,
    })
}

#[cfg(test)]
mod tests;
