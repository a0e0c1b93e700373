//! Wire protocols of the server, each on the path of its provider, with the rules for requests.

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

/// Wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderProtocol {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

impl ProviderProtocol {
    /// Returns the protocol served on a path.
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

    /// Returns the violations of a request.
    pub(crate) fn violations(self, path: &str, body: &Value, ledger: &ReplyLedger) -> Vec<String> {
        match self {
            Self::Chat => chat::violations(body, ledger),
            Self::Responses => responses::violations(body, ledger),
            Self::Anthropic => anthropic::violations(body, ledger),
            Self::Gemini => gemini::violations(path, body, ledger),
            Self::Ollama => ollama::violations(body),
        }
    }

    /// Renders the frames of a reply; the first one carries the first word.
    pub(crate) fn frames(
        self,
        path: &str,
        request: &Value,
        reply: &ReplyBody,
        ledger: &mut ReplyLedger,
    ) -> Vec<String> {
        match reply {
            ReplyBody::Completion(completion) => self.completion_frames(path, request, completion, ledger),
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
        completion: &ScriptedCompletion,
        ledger: &mut ReplyLedger,
    ) -> Vec<String> {
        let frames = match self {
            Self::Chat => chat::frames(request, completion, ledger),
            Self::Responses => responses::frames(request, completion, ledger),
            Self::Anthropic => anthropic::frames(request, completion, ledger),
            Self::Gemini => gemini::frames(path, completion, ledger),
            Self::Ollama => ollama::frames(completion),
        };
        merge_leading_frames(frames)
    }

    /// Renders the beginning of a reply that never ends.
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

    /// Renders an error in mid-stream.
    fn error_frame(self, message: &str) -> String {
        match self {
            Self::Chat => chat::error_frame(message),
            Self::Responses => responses::error_frame(message),
            Self::Anthropic => anthropic::error_frame(message),
            Self::Gemini => gemini::error_frame(message),
            Self::Ollama => ollama::error_frame(message),
        }
    }

    /// Returns the provider's own response to a request that exceeds the context window.
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

/// Returns the violations that the provider with this endpoint path would find in a body. The body must not contain
/// signatures or ids of earlier replies, which are not known here.
///
/// # Panics
///
/// Panics if no protocol is served on the path.
pub fn violations(path: &str, body: &Value) -> Vec<String> {
    let protocol = ProviderProtocol::from_path(path).expect("a path of a known protocol");
    protocol.violations(path, body, &ReplyLedger::default())
}

/// Splits a text into words with their trailing spaces.
fn split_words(text: &str) -> std::str::SplitInclusive<'_, char> {
    text.split_inclusive(' ')
}

/// Splits the arguments of a call into fragments.
fn split_arguments(text: &str) -> Vec<String> {
    const ARGUMENT_FRAGMENT_CHARS: usize = 7;
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(ARGUMENT_FRAGMENT_CHARS).map(|fragment| fragment.iter().collect()).collect()
}

/// Joins the frames before the first word with it. A frame without content starts with a `#`.
fn merge_leading_frames(frames: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut leading = String::new();
    for frame in frames {
        match frame.strip_prefix('#') {
            Some(frame) if joined.is_empty() => leading.push_str(frame),
            Some(frame) => joined.push(frame.to_owned()),
            None => joined.push(std::mem::take(&mut leading) + &frame),
        }
    }
    joined
}

/// Renders a named event without content.
fn leading_sse_event(name: &str, data: &Value) -> String {
    format!("#{}", sse_event(name, data))
}

/// Renders a named event.
fn sse_event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Renders an unnamed event.
fn sse_data(data: &Value) -> String {
    format!("data: {data}\n\n")
}
