//! `OpenAI` Responses.
//!
//! Nothing is stored at the provider: every request holds the whole conversation, and reasoning comes encrypted and goes
//! back before what it led to. A call and its output are items of their own, paired by the id of the call.

mod answer;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, Content, ContentPart, KnownPart, Map, ModelRequest, Role, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::chat::is_reasoner;
use super::effort::effort;
use super::opaque::{self, Speaker};
use super::parts::{self, Part};
pub(super) use answer::Answer;

/// The names under which what only this provider understands is kept.
const REASONING: &str = "reasoning";
const ID: &str = "id";

pub(super) fn body(to: &Speaker, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = Map::new();
    rest.insert("model".to_owned(), json!(model));
    rest.insert("stream".to_owned(), json!(true));
    rest.insert("store".to_owned(), json!(false));
    if !request.system.is_empty() {
        rest.insert("instructions".to_owned(), json!(request.system));
    }
    if let Some(limit) = request.options.max_tokens {
        rest.insert("max_output_tokens".to_owned(), json!(limit));
    }
    let asked = request.options.reasoning.and_then(|reasoning| effort(model, reasoning));
    if let Some(effort) = asked {
        rest.insert("reasoning".to_owned(), json!({"effort": effort, "summary": "auto"}));
    }
    // A model that does not reason refuses a request for its reasoning.
    if is_reasoner(model) || asked.is_some() {
        rest.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    RequestBody {
        rest,
        tools,
        messages_key: "input".to_owned(),
        messages: opaque::runs(&request.messages).flat_map(|run| items(to, run)).collect(),
    }
}

fn items(to: &Speaker, run: &[ChatMessage]) -> Vec<Value> {
    match run[0].role {
        Role::Assistant => opaque::restore(to, REASONING, run, |message| said(to, message)),
        Role::User => run.iter().map(|message| json!({"role": "user", "content": asked(&message.content)})).collect(),
        Role::System => {
            run.iter().map(|note| json!({"role": "developer", "content": parts::text_only(&note.content)})).collect()
        }
        Role::Tool => run.iter().map(output).collect(),
    }
}

fn said(to: &Speaker, message: &ChatMessage) -> Vec<Value> {
    let text = parts::text_only(&message.content);
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let said = (!text.is_empty()).then_some(said);
    said.into_iter().chain(message.tool_calls.iter().map(|made| call(to, made))).collect()
}

fn call(to: &Speaker, call: &ToolCall) -> Value {
    let mut item = json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.function.name,
        "arguments": call.function.arguments,
    });
    if let Some(id) = to.in_call(call, ID) {
        item["id"] = id.clone();
    }
    item
}

fn output(message: &ChatMessage) -> Value {
    let output = match &message.content {
        Content::Text(text) => json!(text),
        Content::Parts(_) => asked(&message.content),
    };
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

fn asked(content: &Content) -> Value {
    let Content::Parts(written) = content else { return json!([{"type": "input_text", "text": content.text()}]) };
    let read = parts::parts(content);
    written.iter().zip(&read).map(|(written, read)| part(written, read)).collect()
}

fn part(written: &ContentPart, read: &Part<'_>) -> Value {
    match (written, read) {
        (ContentPart::Known(KnownPart::ImageUrl { image_url }), _) => {
            let detail = image_url.detail.as_deref().unwrap_or("auto");
            json!({"type": "input_image", "image_url": image_url.url, "detail": detail})
        }
        (_, read) => json!({"type": "input_text", "text": read.as_text()}),
    }
}

pub(super) fn tool(tool: &ToolSpec) -> Value {
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
