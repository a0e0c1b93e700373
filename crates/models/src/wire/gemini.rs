//! Google Gemini.
//!
//! Its rules: the turns of user and model alternate and the user begins; the responses to all calls of a turn stand in the
//! turn that follows it; the signature of a thought goes back on the part it came with.

mod answer;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{ChatMessage, Map, ModelRequest, Reasoning, Role, ToolCall, ToolSpec};
use capstan_tape::conversation::CONTINUED;
use serde_json::{Value, json};

use super::Wire;
use super::fit::takes;
use super::opaque::Speaker;
use super::parts::{self, NOTHING, Part};
pub(super) use answer::Answer;

/// The names under which what only Gemini understands is kept.
const SIGNATURE: &str = "thought_signature";
const ID: &str = "id";
/// What Google's documentation says to send in place of the signature of a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(to: &Speaker, request: &ModelRequest, tools: ToolList) -> RequestBody {
    let model = request.model.name();
    let mut rest = Map::new();
    if !request.system.is_empty() {
        rest.insert("systemInstruction".to_owned(), json!({"parts": [{"text": request.system}]}));
    }
    let mut config = Map::new();
    if let Some(limit) = request.options.max_tokens {
        config.insert("maxOutputTokens".to_owned(), json!(limit));
    }
    let thinking = request.options.reasoning.and_then(|reasoning| thinking(model, reasoning));
    config.extend(thinking.map(|thinking| ("thinkingConfig".to_owned(), thinking)));
    if !config.is_empty() {
        rest.insert("generationConfig".to_owned(), Value::Object(config));
    }
    let messages = turns(to, model, &request.messages);
    RequestBody { rest, tools, messages_key: "contents".to_owned(), messages }
}

pub(super) fn tools(tools: &[ToolSpec]) -> ToolList {
    let declarations: Vec<Value> = tools.iter().map(declaration).collect();
    (!declarations.is_empty()).then(|| json!({"functionDeclarations": declarations})).into_iter().collect()
}

/// Older models take a budget, newer ones a level; nothing where a model takes neither and does not think. Not every model
/// can be told not to: it gets the least it takes, as it would refuse the request otherwise.
fn thinking(model: &str, reasoning: Reasoning) -> Option<Value> {
    let budget = match reasoning {
        Reasoning::None => return least(model),
        Reasoning::Low => 2048,
        Reasoning::Medium => 8192,
        Reasoning::High => 16_384,
    };
    Some(if is_older(model) {
        json!({"includeThoughts": true, "thinkingBudget": budget})
    } else if reasoning == Reasoning::Medium && is_named(model, &["gemini-3-pro"]) {
        // It knows only little and much.
        json!({"includeThoughts": true, "thinkingLevel": "high"})
    } else {
        json!({"includeThoughts": true, "thinkingLevel": reasoning.as_str()})
    })
}

/// The least thinking that a model takes.
fn least(model: &str) -> Option<Value> {
    let takes_minimal = ["gemini-3-flash", "gemini-3.1-flash", "gemini-3.5-flash", "gemini-3.6-flash"];
    match model {
        _ if is_named(model, &["gemini-2.5-pro"]) => Some(json!({"thinkingBudget": 128})),
        _ if is_named(model, &["gemini-2.5"]) => Some(json!({"thinkingBudget": 0})),
        _ if is_older(model) => None,
        _ if is_named(model, &takes_minimal) => Some(json!({"thinkingLevel": "minimal"})),
        // Every one that has levels has this one.
        _ => Some(json!({"thinkingLevel": "low"})),
    }
}

fn is_older(model: &str) -> bool {
    is_named(model, &["gemini-1", "gemini-2", "gemma"])
}

/// Whether a model's name begins with one of these.
fn is_named(model: &str, prefixes: &[&str]) -> bool {
    let name = model.strip_prefix("models/").unwrap_or(model);
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn turns(to: &Speaker, model: &str, messages: &[ChatMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, parts) = match message.role {
            Role::Assistant => ("model", said(to, model, message)),
            Role::Tool => ("user", response(to, message, messages)),
            Role::User | Role::System => ("user", asked(message)),
        };
        if parts.is_empty() {
            continue;
        }
        if turns.is_empty() && role == "model" {
            turns.push(("user", vec![json!({"text": CONTINUED})]));
        }
        match turns.last_mut() {
            Some((last, there)) if *last == role => there.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    if turns.last().is_none_or(|(role, _)| *role == "model") {
        turns.push(("user", vec![json!({"text": NOTHING})]));
    }
    turns.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn said(to: &Speaker, model: &str, message: &ChatMessage) -> Vec<Value> {
    let text = parts::text_only(&message.content);
    let mut said = Vec::new();
    if !text.is_empty() {
        let mut part = json!({"text": text});
        // With calls, the signature is on the first of them.
        if let Some(signature) = to.in_message(message, SIGNATURE).filter(|_| message.tool_calls.is_empty()) {
            part["thoughtSignature"] = signature.clone();
        }
        said.push(part);
    }
    let calls = message.tool_calls.iter().enumerate();
    said.extend(calls.map(|(position, made)| call(to, model, position, made)));
    said
}

fn call(to: &Speaker, model: &str, position: usize, call: &ToolCall) -> Value {
    let mut made = json!({"name": call.function.name, "args": parts::arguments(&call.function.arguments)});
    if to.in_call(call, ID).is_some() {
        made["id"] = json!(call.id);
    }
    let mut part = json!({ "functionCall": made });
    match to.in_call(call, SIGNATURE) {
        Some(signature) => part["thoughtSignature"] = signature.clone(),
        // Of calls made together only the first has one.
        None if position == 0 && !is_older(model) => part["thoughtSignature"] = json!(NO_SIGNATURE),
        None => {}
    }
    part
}

/// The response to a call, and what of it is no text after it.
fn response(to: &Speaker, message: &ChatMessage, messages: &[ChatMessage]) -> Vec<Value> {
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let call = messages.iter().flat_map(|message| &message.tool_calls).find(|call| call.id == id);
    // The name of the tool as the model was given it; a result may have it as people write it.
    let name = call.map_or_else(|| message.name.clone().unwrap_or_default(), |call| call.function.name.clone());
    let mut response = json!({"name": name, "response": {"result": parts::text_only(&message.content)}});
    if call.is_some_and(|call| to.in_call(call, ID).is_some()) {
        response["id"] = json!(id);
    }
    let others = parts::parts(&message.content);
    let images = others.iter().filter(|part| matches!(part, Part::Inline { .. } | Part::Linked(_)));
    std::iter::once(json!({ "functionResponse": response })).chain(images.map(part)).collect()
}

fn asked(message: &ChatMessage) -> Vec<Value> {
    let parts = parts::parts(&message.content);
    parts.iter().filter(|part| **part != Part::Text("")).map(part).collect()
}

fn part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(text) => json!({ "text": text }),
        Part::Inline { media_type, data } => json!({"inlineData": {"mimeType": media_type, "data": data}}),
        Part::Linked(url) => match media_type(url) {
            kind if takes(Wire::Gemini, kind) => json!({"fileData": {"mimeType": kind, "fileUri": url}}),
            kind => json!({"text": parts::note(kind)}),
        },
        Part::Other(kind) => json!({"text": parts::note(kind)}),
    }
}

/// What kind of image it is, by the end of its address.
fn media_type(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_lowercase();
    let known = [(".png", "image/png"), (".webp", "image/webp"), (".gif", "image/gif"), (".heic", "image/heic")];
    known.iter().find(|(end, _)| path.ends_with(end)).map_or("image/jpeg", |(_, kind)| kind)
}

fn declaration(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name.model_name(),
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    })
}

#[cfg(test)]
mod tests;
