//! The protocols the server speaks, each on the path its provider has it on, and the rules it holds requests to.

mod anthropic;
mod chat;
mod gemini;
mod memory;
mod ollama;
mod responses;
mod rules;

use serde_json::Value;

use crate::reply::{Answer, Body};
pub(crate) use memory::Memory;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

impl Protocol {
    /// The protocol that is spoken on this path.
    pub(crate) fn of(path: &str) -> Option<Self> {
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
    pub(crate) fn violations(self, path: &str, body: &Value, memory: &Memory) -> Vec<String> {
        match self {
            Self::Chat => chat::violations(body, memory),
            Self::Responses => responses::violations(body, memory),
            Self::Anthropic => anthropic::violations(body, memory),
            Self::Gemini => gemini::violations(path, body, memory),
            Self::Ollama => ollama::violations(body),
        }
    }

    /// The frames of an answer, the first of which carries the first word.
    pub(crate) fn frames(self, path: &str, request: &Value, reply: &Body, memory: &mut Memory) -> Vec<String> {
        match reply {
            Body::Answer(answer) => self.answer(path, request, answer, memory),
            Body::Cut { text } => self.half(text),
            Body::Failed { text, message } => {
                let mut frames = self.half(text);
                frames.push(self.error(message));
                frames
            }
            Body::Raw { body } => vec![body.clone()],
            Body::Status { .. } | Body::Overflow => Vec::new(),
        }
    }

    fn answer(self, path: &str, request: &Value, answer: &Answer, memory: &mut Memory) -> Vec<String> {
        let frames = match self {
            Self::Chat => chat::frames(request, answer, memory),
            Self::Responses => responses::frames(request, answer, memory),
            Self::Anthropic => anthropic::frames(request, answer, memory),
            Self::Gemini => gemini::frames(path, answer, memory),
            Self::Ollama => ollama::frames(answer),
        };
        from_the_first_word(frames)
    }

    /// The beginning of an answer that never ends.
    fn half(self, text: &str) -> Vec<String> {
        let words = words(text);
        let frames = match self {
            Self::Chat => words.map(chat::text).collect(),
            Self::Responses => responses::half(words),
            Self::Anthropic => anthropic::half(words),
            Self::Gemini => words.map(gemini::text).collect(),
            Self::Ollama => words.map(ollama::text).collect(),
        };
        if text.is_empty() { Vec::new() } else { from_the_first_word(frames) }
    }

    /// An error in mid-stream.
    fn error(self, message: &str) -> String {
        match self {
            Self::Chat => chat::error(message),
            Self::Responses => responses::error(message),
            Self::Anthropic => anthropic::error(message),
            Self::Gemini => gemini::error(message),
            Self::Ollama => ollama::error(message),
        }
    }

    /// What the provider says to a request that is longer than the model takes, in its own words.
    pub(crate) fn overflow(self) -> (u16, String) {
        let (status, body) = match self {
            Self::Chat => chat::overflow(),
            Self::Responses => responses::overflow(),
            Self::Anthropic => anthropic::overflow(),
            Self::Gemini => gemini::overflow(),
            Self::Ollama => ollama::overflow(),
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
    let protocol = Protocol::of(path).expect("a path on which a protocol is spoken");
    protocol.violations(path, body, &Memory::default())
}

/// The words of a text with the spaces after them.
fn words(text: &str) -> std::str::SplitInclusive<'_, char> {
    text.split_inclusive(' ')
}

/// The pieces in which the arguments of a call come.
fn fragments(text: &str) -> Vec<String> {
    const FRAGMENT: usize = 7;
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(FRAGMENT).map(|fragment| fragment.iter().collect()).collect()
}

/// Puts what comes before the first word together with it. A frame that says nothing begins with a `#`.
fn from_the_first_word(frames: Vec<String>) -> Vec<String> {
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
fn silent_event(name: &str, data: &Value) -> String {
    format!("#{}", event(name, data))
}

/// An event with a name.
fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An event without a name.
fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}
