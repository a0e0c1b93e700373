//! Next reply of the demo model, a pure function of the request.

use std::time::Duration;

use capstan_protocol::{ChatMessage, MessageRole, ModelRequest, ToolCall, ToolName, Usage};
use serde_json::Value;

use super::arguments;
use super::call_marker::{self, CallMarker, ParsedPrompt};

const DEMO_INTRODUCTION: &str = "I am the demo model: I work offline, repeat what you say, and call a tool when you write \
    [[tool:NAME key=value]]. To talk to a real model, set CAPSTAN_MODEL=openai:NAME and CAPSTAN_API_KEY.";

/// Prefix of an anchor in a view. Anchors have the assistant role but are not replies.
const ANCHOR_MESSAGE_PREFIX: &str = "[Anchor created:";

/// One reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DemoReply {
    /// Tool call.
    Call(ToolCall),
    /// Text.
    Text(String),
}

impl DemoReply {
    /// Reply to a request.
    pub(super) fn for_request(request: &ModelRequest) -> Self {
        let (task, since) = current_task(&request.messages);
        let call_count: usize = since.iter().map(|message| message.tool_calls.len()).sum();
        match task.markers.get(call_count) {
            Some(marker) => Self::Call(compose_call(marker, request)),
            None => Self::Text(compose_reply(&task, since, is_first_reply(&request.messages))),
        }
    }

    /// Pause before each word, if a marker asks for one.
    pub(super) fn word_pause(request: &ModelRequest) -> Option<Duration> {
        current_task(&request.messages).0.word_pause
    }

    /// Usage in words instead of tokens: equal for equal requests on every machine.
    pub(super) fn usage(&self, request: &ModelRequest) -> Usage {
        let prompt = count_words(&request.system) + request.messages.iter().map(count_message_words).sum::<u64>();
        let completion = match self {
            Self::Call(call) => count_call_words(call),
            Self::Text(text) => count_words(text),
        };
        Usage {
            prompt_tokens: Some(prompt),
            completion_tokens: Some(completion),
            total_tokens: Some(prompt + completion),
            ..Usage::default()
        }
    }
}

/// Current task and the messages after it.
///
/// An agent may add a message of its own after the results of a step ("Continue ..."). Such a message directly follows
/// a tool result, starts with that word and contains no marker; the task is then the user message before it.
fn current_task(messages: &[ChatMessage]) -> (ParsedPrompt, &[ChatMessage]) {
    let mut last = None;
    for (index, message) in messages.iter().enumerate().rev() {
        if message.role != MessageRole::User {
            continue;
        }
        let text = message.content.text();
        let body = strip_context_header(&text);
        let parsed = call_marker::parse_prompt(body.unwrap_or(&text));
        let follows_tool = index > 0 && messages[index - 1].role == MessageRole::Tool;
        let is_agent_prompt = follows_tool && text.starts_with("Continue") && parsed.markers.is_empty();
        last = Some((parsed, &messages[index + 1..]));
        if !is_agent_prompt {
            break;
        }
    }
    last.unwrap_or_default()
}

/// Text after the line `---Date: ...---` that ends a context header, if there is one.
fn strip_context_header(text: &str) -> Option<&str> {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let line = line.trim_end();
        if line.starts_with("---Date:") && line.ends_with("---") {
            return Some(&text[end..]);
        }
    }
    None
}

fn is_first_reply(messages: &[ChatMessage]) -> bool {
    let is_reply = |message: &ChatMessage| {
        let text = message.content.text();
        message.role == MessageRole::Assistant && !text.is_empty() && !text.starts_with(ANCHOR_MESSAGE_PREFIX)
    };
    !messages.iter().any(is_reply)
}

fn compose_reply(task: &ParsedPrompt, since: &[ChatMessage], is_first: bool) -> String {
    let mut paragraphs = Vec::new();
    if is_first {
        paragraphs.push(DEMO_INTRODUCTION.to_owned());
    }
    for result in since.iter().filter(|message| message.role == MessageRole::Tool) {
        let name = result.name.as_deref().unwrap_or("the tool");
        paragraphs.push(format!("{name} answered:\n{}", result.content.text()));
    }
    match task.rest.trim() {
        "" if task.markers.is_empty() => paragraphs.push("You said nothing.".to_owned()),
        "" => {}
        text => paragraphs.push(format!("You said: {text}")),
    }
    paragraphs.join("\n\n")
}

fn compose_call(marker: &CallMarker, request: &ModelRequest) -> ToolCall {
    let spec =
        request.tools.iter().find(|tool| tool.name.as_str() == marker.name || tool.name.model_name() == marker.name);
    // Unknown names are called too, so that the handling of unknown tools can be tried out.
    let name = spec.map_or_else(|| ToolName::new(&marker.name).model_name(), |spec| spec.name.model_name());
    let arguments = arguments::typed_arguments(&marker.arguments, spec.map(|spec| &*spec.parameters));
    ToolCall::new(next_call_id(&request.messages), name, Value::Object(arguments).to_string())
}

/// Next `call_<n>`: above both the number of calls so far and the highest id of this form, since a view may start in the
/// middle of a conversation.
fn next_call_id(messages: &[ChatMessage]) -> String {
    let calls = || messages.iter().flat_map(|message| &message.tool_calls);
    let highest = calls().filter_map(|call| call.id.strip_prefix("call_")?.parse().ok()).max().unwrap_or(0);
    format!("call_{}", calls().count().max(highest).saturating_add(1))
}

fn count_message_words(message: &ChatMessage) -> u64 {
    count_words(&message.content.text()) + message.tool_calls.iter().map(count_call_words).sum::<u64>()
}

fn count_call_words(call: &ToolCall) -> u64 {
    count_words(&call.function.name) + count_words(&call.function.arguments)
}

fn count_words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}
