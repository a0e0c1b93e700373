//! The protocols the server speaks, each on the path its provider has it on, and the rules it holds requests to.

mod anthropic;
mod chat;
mod gemini;
mod ollama;
mod reply_ledger;
mod responses;
mod rules;

use serde_json::Value;

use crate::scripted_reply::{ReplyBody, ScriptedCompletion};
pub(crate) use reply_ledger::ReplyLedger;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderProtocol {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

impl ProviderProtocol {
    /// The protocol that is spoken on this path.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Anthropic),
            "/api/chat" => Some(Self::Ollama),
            path if path.starts_with("/v1beta/models/") && path.ends_with(":streamGenerateContent") => {
                Some(Self::Gemini)
            }
            _ => None,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        if self == Self::Ollama { "application/x-ndjson" } else { "text/event-stream" }
    }

    /// What is wrong with a request; empty when nothing is.
    pub(crate) fn violations(self, path: &str, body: &Value, memory: &ReplyLedger) -> Vec<String> {
        match self {
            Self::Chat => chat::violations(body, memory),
            Self::Responses => responses::violations(body, memory),
            Self::Anthropic => anthropic::violations(body, memory),
            Self::Gemini => gemini::violations(path, body, memory),
            Self::Ollama => ollama::violations(body),
        }
    }

    /// The frames of an answer, the first of which carries the first word.
    pub(crate) fn frames(
        self,
        path: &str,
        request: &Value,
        reply: &ReplyBody,
        memory: &mut ReplyLedger,
    ) -> Vec<String> {
        match reply {
            ReplyBody::Completion(answer) => self.completion_frames(path, request, answer, memory),
            ReplyBody::Disconnect { text } => self.partial_frames(text),
            ReplyBody::StreamError { text, message } => {
                let mut frames = self.partial_frames(text);
                frames.push(self.error_frame(message));
                frames
            }
            ReplyBody::Raw { body } => vec![body.clone()],
            ReplyBody::Status { .. } | ReplyBody::ContextOverflow => Vec::new(),
        }
    }

    fn completion_frames(
        self,
        path: &str,
        request: &Value,
        answer: &ScriptedCompletion,
        memory: &mut ReplyLedger,
    ) -> Vec<String> {
        let frames = match self {
            Self::Chat => chat::frames(request, answer, memory),
            Self::Responses => responses::frames(request, answer, memory),
            Self::Anthropic => anthropic::frames(request, answer, memory),
            Self::Gemini => gemini::frames(path, answer, memory),
            Self::Ollama => ollama::frames(answer),
        };
        merge_leading_frames(frames)
    }

    /// The beginning of an answer that never ends.
    fn partial_frames(self, text: &str) -> Vec<String> {
        let words = split_words(text);
        let frames = match self {
            Self::Chat => words.map(chat::text_frame).collect(),
            Self::Responses => responses::partial_frames(words),
            Self::Anthropic => anthropic::partial_frames(words),
            Self::Gemini => words.map(gemini::text_frame).collect(),
            Self::Ollama => words.map(ollama::text_frame).collect(),
        };
        if text.is_empty() { Vec::new() } else { merge_leading_frames(frames) }
    }

    /// An error in mid-stream.
    fn error_frame(self, message: &str) -> String {
        match self {
            Self::Chat => chat::error_frame(message),
            Self::Responses => responses::error_frame(message),
            Self::Anthropic => anthropic::error_frame(message),
            Self::Gemini => gemini::error_frame(message),
            Self::Ollama => ollama::error_frame(message),
        }
    }

    /// What the provider says to a request that is longer than the model takes, in its own words.
    pub(crate) fn overflow_response(self) -> (u16, String) {
        let (status, body) = match self {
            Self::Chat => chat::overflow_response(),
            Self::Responses => responses::overflow_response(),
            Self::Anthropic => anthropic::overflow_response(),
            Self::Gemini => gemini::overflow_response(),
            Self::Ollama => ollama::overflow_response(),
        };
        (status, body.to_string())
    }
}

/// What the provider that has its endpoint on this path would find wrong with a body; empty when that is nothing. What an
/// answer gave out is not known here, so none of it may be in the body.
///
/// # Panics
///
/// If no protocol is spoken on the path.
pub fn violations(path: &str, body: &Value) -> Vec<String> {
    let protocol = ProviderProtocol::from_path(path).expect("a path on which a protocol is spoken");
    protocol.violations(path, body, &ReplyLedger::default())
}

/// The words of a text with the spaces after them.
fn split_words(text: &str) -> std::str::SplitInclusive<'_, char> {
    text.split_inclusive(' ')
}

/// The pieces in which the arguments of a call come.
fn split_arguments(text: &str) -> Vec<String> {
    const ARGUMENT_FRAGMENT_CHARS: usize = 7;
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(ARGUMENT_FRAGMENT_CHARS).map(|fragment| fragment.iter().collect()).collect()
}

/// Puts what comes before the first word together with it. A frame that says nothing begins with a `#`.
fn merge_leading_frames(frames: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut waiting = String::new();
    for frame in frames {
        match frame.strip_prefix('#') {
            Some(silent) if joined.is_empty() => waiting.push_str(silent),
            Some(silent) => joined.push(silent.to_owned()),
            None => joined.push(std::mem::take(&mut waiting) + &frame),
        }
    }
    joined
}

/// An event with a name, which says nothing yet.
fn leading_sse_event(name: &str, data: &Value) -> String {
    format!("#{}", sse_event(name, data))
}

/// An event with a name.
fn sse_event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An event without a name.
fn sse_data(data: &Value) -> String {
    format!("data: {data}\n\n")
}
