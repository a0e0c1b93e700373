//! Google Gemini.
//!
//! # Rules
//!
//! - Turns of user and model alternate and the user begins.
//! - The responses to all calls of a turn are in the turn that follows it.
//! - The signature of a thought is returned on the part it came with.

mod response;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ModelRequest, Reasoning, ToolCall, ToolSpec};
use serde_json::{Value, json};

use super::alternating_turns::{USER_ROLE, alternate_turns};
use super::message_parts::{self, MessagePart};
use super::provider_data::ModelOrigin;
use super::sanitize::supports_image_type;
use super::{SamplingKeys, WireProtocol};
pub(super) use response::GeminiReader;

/// Keys in the provider data.
const SIGNATURE_KEY: &str = "thought_signature";
const CALL_ID_KEY: &str = "id";
/// Value that Google documents as a replacement for the signature of a call made by another model.
const SKIP_SIGNATURE_MARKER: &str = "skip_thought_signature_validator";

pub(super) fn body(target: &ModelOrigin, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = JsonObject::new();
    if !request.system.is_empty() {
        rest.insert("systemInstruction".to_owned(), json!({"parts": [{"text": request.system}]}));
    }
    let mut config = JsonObject::new();
    if let Some(limit) = request.options.max_tokens {
        config.insert("maxOutputTokens".to_owned(), json!(limit));
    }
    let keys = SamplingKeys { temperature: "temperature", top_p: "topP", stop: Some("stopSequences") };
    super::insert_sampling(&mut config, &request.options, &keys);
    let thinking = request.options.reasoning.and_then(|reasoning| thinking_config(model, reasoning));
    config.extend(thinking.map(|thinking| ("thinkingConfig".to_owned(), thinking)));
    if !config.is_empty() {
        rest.insert("generationConfig".to_owned(), Value::Object(config));
    }
    let messages = build_turns(target, model, &request.messages);
    RequestBody { rest, tools, messages_key: "contents".to_owned(), messages }
}

pub(super) fn encode_tools(tools: &[ToolSpec]) -> ToolList {
    let declarations: Vec<Value> = tools.iter().map(function_declaration).collect();
    (!declarations.is_empty()).then(|| json!({"functionDeclarations": declarations})).into_iter().collect()
}

/// Thinking options: a budget for older models, a level for newer ones, `None` for models that do not think. Some models
/// reject a request to turn thinking off: they get the minimum.
fn thinking_config(model: &str, reasoning: Reasoning) -> Option<Value> {
    let budget = match reasoning {
        Reasoning::None => return min_thinking_config(model),
        Reasoning::Low => 2048,
        Reasoning::Medium => 8192,
        Reasoning::High => 16_384,
    };
    Some(if is_legacy_model(model) {
        json!({"includeThoughts": true, "thinkingBudget": budget})
    } else if reasoning == Reasoning::Medium && has_name_prefix(model, &["gemini-3-pro"]) {
        // Only `low` and `high` are known to this model.
        json!({"includeThoughts": true, "thinkingLevel": "high"})
    } else {
        json!({"includeThoughts": true, "thinkingLevel": reasoning.as_str()})
    })
}

/// Minimum thinking that a model accepts.
fn min_thinking_config(model: &str) -> Option<Value> {
    let minimal_models = ["gemini-3-flash", "gemini-3.1-flash", "gemini-3.5-flash", "gemini-3.6-flash"];
    match model {
        _ if has_name_prefix(model, &["gemini-2.5-pro"]) => Some(json!({"thinkingBudget": 128})),
        _ if has_name_prefix(model, &["gemini-2.5"]) => Some(json!({"thinkingBudget": 0})),
        _ if is_legacy_model(model) => None,
        _ if has_name_prefix(model, &minimal_models) => Some(json!({"thinkingLevel": "minimal"})),
        // Every model with levels accepts this one.
        _ => Some(json!({"thinkingLevel": "low"})),
    }
}

fn is_legacy_model(model: &str) -> bool {
    has_name_prefix(model, &["gemini-1", "gemini-2", "gemma"])
}

/// True if the model name starts with one of the prefixes.
fn has_name_prefix(model: &str, prefixes: &[&str]) -> bool {
    let name = model.strip_prefix("models/").unwrap_or(model);
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn build_turns(target: &ModelOrigin, model: &str, messages: &[ChatMessage]) -> Vec<Value> {
    let parts = messages.iter().map(|message| match message.role {
        MessageRole::Assistant => ("model", model_parts(target, model, message)),
        MessageRole::Tool => (USER_ROLE, function_response_parts(target, message, messages)),
        MessageRole::User | MessageRole::System => (USER_ROLE, user_parts(message)),
    });
    let turns = alternate_turns(parts, |text| json!({"text": text}));
    turns.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn model_parts(target: &ModelOrigin, model: &str, message: &ChatMessage) -> Vec<Value> {
    let text = message_parts::content_to_text(&message.content);
    let mut parts = Vec::new();
    if !text.is_empty() {
        let mut part = json!({"text": text});
        // In a message with calls, the signature is on the first call.
        if let Some(signature) = target.message_data(message, SIGNATURE_KEY).filter(|_| message.tool_calls.is_empty()) {
            part["thoughtSignature"] = signature.clone();
        }
        parts.push(part);
    }
    let calls = message.tool_calls.iter().enumerate();
    parts.extend(calls.map(|(position, call)| function_call_part(target, model, position, call)));
    parts
}

fn function_call_part(target: &ModelOrigin, model: &str, position: usize, call: &ToolCall) -> Value {
    let mut encoded =
        json!({"name": call.function.name, "args": message_parts::arguments_object(&call.function.arguments)});
    if target.call_data(call, CALL_ID_KEY).is_some() {
        encoded["id"] = json!(call.id);
    }
    let mut part = json!({ "functionCall": encoded });
    match target.call_data(call, SIGNATURE_KEY) {
        Some(signature) => part["thoughtSignature"] = signature.clone(),
        // Only the first of parallel calls has a signature.
        None if position == 0 && !is_legacy_model(model) => part["thoughtSignature"] = json!(SKIP_SIGNATURE_MARKER),
        None => {}
    }
    part
}

/// Response to a call, followed by its images.
fn function_response_parts(target: &ModelOrigin, message: &ChatMessage, messages: &[ChatMessage]) -> Vec<Value> {
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let call = messages.iter().flat_map(|message| &message.tool_calls).find(|call| call.id == id);
    // The model name of the tool; a result may carry its own name instead.
    let name = call.map_or_else(|| message.name.clone().unwrap_or_default(), |call| call.function.name.clone());
    let mut response = json!({"name": name, "response": {"result": message_parts::content_to_text(&message.content)}});
    if call.is_some_and(|call| target.call_data(call, CALL_ID_KEY).is_some()) {
        response["id"] = json!(id);
    }
    let parts = message_parts::read_parts(&message.content);
    let images =
        parts.iter().filter(|part| matches!(part, MessagePart::InlineImage { .. } | MessagePart::LinkedImage(_)));
    std::iter::once(json!({ "functionResponse": response })).chain(images.map(encode_part)).collect()
}

fn user_parts(message: &ChatMessage) -> Vec<Value> {
    let parts = message_parts::read_parts(&message.content);
    parts.iter().filter(|part| **part != MessagePart::Text("")).map(encode_part).collect()
}

fn encode_part(part: &MessagePart<'_>) -> Value {
    match part {
        MessagePart::Text(text) => json!({ "text": text }),
        MessagePart::InlineImage { media_type, data } => json!({"inlineData": {"mimeType": media_type, "data": data}}),
        MessagePart::LinkedImage(url) => match guess_media_type(url) {
            media_type if supports_image_type(WireProtocol::Gemini, media_type) => {
                json!({"fileData": {"mimeType": media_type, "fileUri": url}})
            }
            media_type => json!({"text": message_parts::omission_note(media_type)}),
        },
        MessagePart::Other(kind) => json!({"text": message_parts::omission_note(kind)}),
    }
}

/// Image type, guessed from the end of the URL.
fn guess_media_type(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_lowercase();
    let known = [(".png", "image/png"), (".webp", "image/webp"), (".gif", "image/gif"), (".heic", "image/heic")];
    known.iter().find(|(suffix, _)| path.ends_with(suffix)).map_or("image/jpeg", |(_, media_type)| media_type)
}

fn function_declaration(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name.model_name(),
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    })
}

#[cfg(test)]
mod tests;
