//! The history of a session, as every provider takes it.
//!
//! A tape keeps what a model wrote as it wrote it, and that may be what another provider refuses, or even the one it came
//! from: a name with a dot, a long id, arguments that are no JSON, an image of a kind it does not know. Every later
//! request has it too, so the session would be lost. What is sent is made to fit; the tape stays as it is.

use std::collections::{HashMap, HashSet};

use capstan_protocol::{ChatMessage, Content, ContentPart, ModelRequest, ToolCall};
use serde_json::Value;

use super::Wire;
use super::parts::{self, Part};

/// The longest name of a tool that is taken everywhere.
const LONGEST_NAME: usize = 64;
/// The longest id of a call that is taken everywhere.
pub(super) const LONGEST_ID: usize = 40;
/// Where a call's data of a provider has this, the provider gave the id of the call itself, and takes it back.
pub(super) const OWN_ID: &str = "id";

/// A request with nothing in its history that a provider refuses. What comes later changes nothing of what came before, so
/// that the beginning of a conversation stays what a provider has in its cache.
pub(crate) fn fitting(wire: Wire, provider: &str, request: &ModelRequest) -> ModelRequest {
    let mut request = request.clone();
    let mut ids = Ids { any_letters: wire != Wire::Anthropic, ..Ids::default() };
    for message in &mut request.messages {
        fit(wire, provider, message, &mut ids);
    }
    request
}

fn fit(wire: Wire, provider: &str, message: &mut ChatMessage, ids: &mut Ids) {
    for call in &mut message.tool_calls {
        call.function.name = name(&call.function.name);
        if !is_object(&call.function.arguments) {
            call.function.arguments = parts::arguments(&call.function.arguments).to_string();
        }
        call.id = if has_own_id(provider, call) { ids.keep(&call.id) } else { ids.shorten(&call.id) };
    }
    if let Some(answered) = message.tool_call_id.as_mut().filter(|id| ids.sent.contains_key(*id)) {
        answered.clone_from(&ids.sent[answered]);
        message.name = message.name.as_deref().map(name);
    }
    if let Content::Parts(parts) = &mut message.content {
        for part in parts {
            fit_part(wire, part);
        }
    }
}

/// The name of a tool as models are given it. One that never was a tool's name stays readable, as far as it can.
fn name(written: &str) -> String {
    written.chars().map(|c| if is_plain(c) { c } else { '_' }).take(LONGEST_NAME).collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_object(arguments: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(arguments).is_ok()
}

fn has_own_id(provider: &str, call: &ToolCall) -> bool {
    call.extra.get("provider").and_then(|given| given.get(provider)?.get(OWN_ID)).is_some()
}

/// The ids of calls, as they were written and as they are sent.
#[derive(Debug, Default)]
struct Ids {
    /// Whether the provider takes any letters in them.
    any_letters: bool,
    sent: HashMap<String, String>,
    used: HashSet<String>,
}

impl Ids {
    fn keep(&mut self, written: &str) -> String {
        if self.used.contains(written) { self.shorten(written) } else { self.send(written, written.to_owned()) }
    }

    /// An id that is taken everywhere and that no call before has.
    fn shorten(&mut self, written: &str) -> String {
        let written_or = if written.is_empty() { "call" } else { written };
        let fits = |c: char| self.any_letters || is_plain(c);
        let letters: Vec<char> = written_or.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        let ending_in = |end: String| {
            let kept = letters.iter().take(LONGEST_ID - end.len());
            kept.collect::<String>() + &end
        };
        let numbered = (2_u64..).map(|number| ending_in(format!("_{number}")));
        let mut candidates = std::iter::once(ending_in(String::new())).chain(numbered);
        // The candidates never end and the used ids are finite, so one is free.
        let free = candidates.find(|id| !self.used.contains(id)).unwrap_or_default();
        self.send(written, free)
    }

    fn send(&mut self, written: &str, id: String) -> String {
        self.used.insert(id.clone());
        self.sent.insert(written.to_owned(), id.clone());
        id
    }
}

/// A note stands in the place of an image that the provider would refuse.
fn fit_part(wire: Wire, part: &mut ContentPart) {
    let fitted = match parts::part(part) {
        Part::Inline { media_type: "image/jpg", data } => ContentPart::image(format!("data:image/jpeg;base64,{data}")),
        Part::Inline { media_type, data } if !takes(wire, media_type) || data.is_empty() => {
            ContentPart::text(parts::note(media_type))
        }
        Part::Linked(url) if url.starts_with("data:") => ContentPart::text(parts::note("image_url")),
        Part::Text(_) | Part::Inline { .. } | Part::Linked(_) | Part::Other(_) => return,
    };
    *part = fitted;
}

/// Whether the provider takes images of this kind.
pub(super) fn takes(wire: Wire, media_type: &str) -> bool {
    let also = match wire {
        Wire::OpenAi | Wire::OpenAiResponses | Wire::OpenRouter | Wire::Anthropic => ["image/gif"].as_slice(),
        Wire::Gemini => &["image/heic", "image/heif"],
        Wire::Ollama => &[],
    };
    ["image/png", "image/jpeg", "image/webp"].contains(&media_type) || also.contains(&media_type)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, ToolCall};
    use serde_json::json;

    use super::{LONGEST_ID, fitting};
    use crate::Wire;

    fn fitted(wire: Wire, messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let model = format!("{}:m", wire.name()).parse().unwrap();
        let options = ModelOptions::default();
        fitting(wire, wire.name(), &ModelRequest { model, system: String::new(), messages, tools: [].into(), options })
            .messages
    }

    fn step(id: &str) -> Vec<ChatMessage> {
        let call = ToolCall::new(id, "fs.read", "{}");
        vec![ChatMessage::calls(vec![call]), ChatMessage::tool(id, "fs.read", "A")]
    }

    fn ids(messages: &[ChatMessage]) -> Vec<&str> {
        messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn p13_names_are_those_that_models_are_given() {
        let sent = fitted(Wire::OpenAi, step("a"));
        assert_eq!(sent[0].tool_calls[0].function.name, "fs_read");
        assert_eq!(sent[1].name.as_deref(), Some("fs_read"));
    }

    #[test]
    fn p13_arguments_that_are_an_object_stay_as_they_were_written_and_others_become_one() {
        let arguments = |written: &str| {
            let call = ToolCall::new("a", "bash", written);
            fitted(Wire::OpenAi, vec![ChatMessage::calls(vec![call])])[0].tool_calls[0].function.arguments.clone()
        };
        assert_eq!(arguments("{\"n\" : 1.0}"), "{\"n\" : 1.0}");
        assert_eq!(arguments(""), "{}");
        assert_eq!(arguments("{\"cmd\": \"ls"), r#"{"invalid_arguments":"{\"cmd\": \"ls"}"#);
        assert_eq!(arguments("[1]"), r#"{"invalid_arguments":"[1]"}"#);
    }

    #[test]
    fn p13_long_ids_that_begin_alike_stay_apart_and_are_answered() {
        let (one, other) = (format!("{}1", "x".repeat(50)), format!("{}2", "x".repeat(50)));
        let sent = fitted(Wire::OpenAi, [step(&one), step(&other)].concat());
        let ids = ids(&sent);
        assert!(ids.iter().all(|id| id.len() == LONGEST_ID) && ids[0] != ids[1], "{ids:?}");
        assert_eq!([sent[1].tool_call_id.as_deref(), sent[3].tool_call_id.as_deref()], [Some(ids[0]), Some(ids[1])]);
    }

    #[test]
    fn p13_ids_whose_letters_are_refused_stay_apart_where_they_are_replaced() {
        let messages = || [step("a.b"), step("a_b"), step("a:b")].concat();
        assert_eq!(ids(&fitted(Wire::Anthropic, messages())), ["a_b", "a_b_2", "a_b_3"]);
        assert_eq!(ids(&fitted(Wire::OpenAi, messages())), ["a.b", "a_b", "a:b"]);
    }

    #[test]
    fn p13_what_comes_later_changes_no_id_that_was_sent() {
        let early = step("a:b");
        let later = [early.clone(), step("a_b")].concat();
        assert_eq!(fitted(Wire::Anthropic, later)[..2], fitted(Wire::Anthropic, early));
    }

    #[test]
    fn a8_an_id_goes_back_whole_to_the_provider_that_gave_it() {
        let mut messages = step(&"x".repeat(80));
        messages[0].tool_calls[0].extra.insert("provider".to_owned(), json!({"openai": {"id": true}}));
        assert_eq!(ids(&fitted(Wire::OpenAi, messages.clone()))[0].len(), 80);
        assert_eq!(ids(&fitted(Wire::OpenRouter, messages))[0].len(), LONGEST_ID);
    }

    #[test]
    fn a8_an_image_that_a_provider_refuses_becomes_a_note_there_only() {
        let image = |url: &str| vec![ChatMessage::user(Content::Parts(vec![ContentPart::image(url)]))];
        let gif = "data:image/gif;base64,AA==";
        assert_eq!(fitted(Wire::Anthropic, image(gif)), image(gif));
        let note = |text: &str| vec![ChatMessage::user(Content::Parts(vec![ContentPart::text(text)]))];
        assert_eq!(fitted(Wire::Gemini, image(gif)), note("[image/gif left out]"));
        for wire in Wire::ALL {
            assert_eq!(fitted(wire, image("data:image/svg+xml;base64,AA==")), note("[image/svg+xml left out]"));
            assert_eq!(fitted(wire, image("data:image/png,AA")), note("[image_url left out]"));
            assert_eq!(fitted(wire, image("data:image/png;base64,")), note("[image/png left out]"));
            let jpeg = image("data:image/jpeg;base64,AA==");
            assert_eq!(fitted(wire, image("data:image/jpg;base64,AA==")), jpeg);
        }
    }
}
