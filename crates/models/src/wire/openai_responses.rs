//! `OpenAI` Responses.
//!
//! Nothing is stored at the provider: every request holds the whole conversation, and reasoning comes encrypted and goes
//! back before what it led to. A call and its output are items of their own, paired by the id of the call.

mod response;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{
    ChatMessage, Content, ContentPart, JsonObject, KnownPart, MessageRole, ModelRequest, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use super::message_parts::{self, MessagePart};
use super::openai_chat::is_reasoning_model;
use super::provider_data::{self, ModelOrigin};
use super::reasoning_effort::effort_level;
pub(super) use response::OpenAiResponsesReader;

/// The names under which what only this provider understands is kept.
const REASONING_ITEMS_KEY: &str = "reasoning";
const ITEM_ID_KEY: &str = "id";

pub(super) fn body(to: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
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
    let asked = request.options.reasoning.and_then(|reasoning| effort_level(model, reasoning));
    if let Some(effort) = asked {
        rest.insert("reasoning".to_owned(), json!({"effort": effort, "summary": "auto"}));
    }
    // A model that does not reason refuses a request for its reasoning.
    if is_reasoning_model(model) || asked.is_some() {
        rest.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    RequestBody {
        rest,
        tools,
        messages_key: "input".to_owned(),
        messages: provider_data::group_assistant_messages(&request.messages)
            .flat_map(|run| input_items(to, run))
            .collect(),
    }
}

fn input_items(to: &ModelOrigin, run: &[ChatMessage]) -> Vec<Value> {
    match run[0].role {
        MessageRole::Assistant => {
            provider_data::restore_items(to, REASONING_ITEMS_KEY, run, |message| assistant_items(to, message))
        }
        MessageRole::User => {
            run.iter().map(|message| json!({"role": "user", "content": user_content(&message.content)})).collect()
        }
        MessageRole::System => run
            .iter()
            .map(|note| json!({"role": "developer", "content": message_parts::content_to_text(&note.content)}))
            .collect(),
        MessageRole::Tool => run.iter().map(function_output_item).collect(),
    }
}

fn assistant_items(to: &ModelOrigin, message: &ChatMessage) -> Vec<Value> {
    let text = message_parts::content_to_text(&message.content);
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let said = (!text.is_empty()).then_some(said);
    said.into_iter().chain(message.tool_calls.iter().map(|made| function_call_item(to, made))).collect()
}

fn function_call_item(to: &ModelOrigin, call: &ToolCall) -> Value {
    let mut item = json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.function.name,
        "arguments": call.function.arguments,
    });
    if let Some(id) = to.call_data(call, ITEM_ID_KEY) {
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
    let Content::Parts(written) = content else { return json!([{"type": "input_text", "text": content.text()}]) };
    let read = message_parts::read_parts(content);
    written.iter().zip(&read).map(|(written, read)| encode_part(written, read)).collect()
}

fn encode_part(written: &ContentPart, read: &MessagePart<'_>) -> Value {
    match (written, read) {
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
