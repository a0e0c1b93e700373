//! Sanitizing of the history, so that every provider accepts it.
//!
//! A tape stores model output verbatim, and that may be rejected by another provider or even by the one it came from: a
//! tool name with a dot, a long id, arguments that are not JSON, an unknown image type. Every later request contains the
//! same history, so the session would be unusable. The request is changed; the tape is not.

use std::collections::{HashMap, HashSet};

use capstan_protocol::{ChatMessage, Content, ContentPart, ModelRequest, ToolCall};
use serde_json::Value;

use super::WireProtocol;
use super::message_parts::{self, MessagePart};

/// Longest tool name that every provider accepts.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Longest call id that every provider accepts.
pub(super) const MAX_CALL_ID_CHARS: usize = 40;
/// Key in the provider data of a call whose id was assigned by the provider, which accepts it unchanged.
pub(super) const PROVIDER_ID_KEY: &str = "id";

/// Returns the request without anything that the provider rejects. Later messages do not affect how earlier ones are
/// changed, so that the start of a conversation still matches the provider's cache.
pub(crate) fn sanitize_request(wire: WireProtocol, provider: &str, request: &ModelRequest) -> ModelRequest {
    let mut request = request.clone();
    let mut ids = CallIdMap { allows_any_char: wire != WireProtocol::Anthropic, ..CallIdMap::default() };
    for message in &mut request.messages {
        sanitize_message(wire, provider, message, &mut ids);
    }
    request
}

fn sanitize_message(wire: WireProtocol, provider: &str, message: &mut ChatMessage, ids: &mut CallIdMap) {
    for call in &mut message.tool_calls {
        call.function.name = sanitize_tool_name(&call.function.name);
        if !is_json_object(&call.function.arguments) {
            call.function.arguments = message_parts::arguments_object(&call.function.arguments).to_string();
        }
        call.id = if has_provider_id(provider, call) {
            ids.assign_unchanged(&call.id)
        } else {
            ids.assign_portable(&call.id)
        };
    }
    if let Some(answered) = message.tool_call_id.as_mut().filter(|id| ids.assigned.contains_key(*id)) {
        answered.clone_from(&ids.assigned[answered]);
        message.name = message.name.as_deref().map(sanitize_tool_name);
    }
    if let Content::Parts(parts) = &mut message.content {
        for part in parts {
            sanitize_part(wire, part);
        }
    }
}

/// Tool name as given to models. An invalid name stays as readable as possible.
fn sanitize_tool_name(name: &str) -> String {
    name.chars().map(|c| if is_portable_char(c) { c } else { '_' }).take(MAX_TOOL_NAME_CHARS).collect()
}

fn is_portable_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_json_object(arguments: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(arguments).is_ok()
}

fn has_provider_id(provider: &str, call: &ToolCall) -> bool {
    call.extra.get("provider").and_then(|data| data.get(provider)?.get(PROVIDER_ID_KEY)).is_some()
}

/// Call ids as recorded, mapped to the ids to send.
#[derive(Debug, Default)]
struct CallIdMap {
    /// True if the provider accepts any character in an id.
    allows_any_char: bool,
    assigned: HashMap<String, String>,
    used_ids: HashSet<String>,
}

impl CallIdMap {
    fn assign_unchanged(&mut self, recorded: &str) -> String {
        if self.used_ids.contains(recorded) {
            self.assign_portable(recorded)
        } else {
            self.record(recorded, recorded.to_owned())
        }
    }

    /// Assigns an id that every provider accepts and no earlier call has.
    fn assign_portable(&mut self, recorded: &str) -> String {
        let base = if recorded.is_empty() { "call" } else { recorded };
        let is_allowed = |c: char| self.allows_any_char || is_portable_char(c);
        let chars: Vec<char> = base.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
        let with_suffix = |suffix: String| {
            let prefix = chars.iter().take(MAX_CALL_ID_CHARS - suffix.len());
            prefix.collect::<String>() + &suffix
        };
        let numbered = (2_u64..).map(|number| with_suffix(format!("_{number}")));
        let mut candidates = std::iter::once(with_suffix(String::new())).chain(numbered);
        // The candidates are infinite and the used ids finite, so one is free.
        let free = candidates.find(|id| !self.used_ids.contains(id)).unwrap_or_default();
        self.record(recorded, free)
    }

    fn record(&mut self, recorded: &str, id: String) -> String {
        self.used_ids.insert(id.clone());
        self.assigned.insert(recorded.to_owned(), id.clone());
        id
    }
}

/// Replaces an image that the provider would reject by a note.
fn sanitize_part(wire: WireProtocol, part: &mut ContentPart) {
    let replacement = match message_parts::read_part(part) {
        MessagePart::InlineImage { media_type: "image/jpg", data } => {
            ContentPart::from_image_url(format!("data:image/jpeg;base64,{data}"))
        }
        MessagePart::InlineImage { media_type, data } if !supports_image_type(wire, media_type) || data.is_empty() => {
            ContentPart::from_text(message_parts::omission_note(media_type))
        }
        MessagePart::LinkedImage(url) if url.starts_with("data:") => {
            ContentPart::from_text(message_parts::omission_note("image_url"))
        }
        MessagePart::Text(_)
        | MessagePart::InlineImage { .. }
        | MessagePart::LinkedImage(_)
        | MessagePart::Other(_) => return,
    };
    *part = replacement;
}

/// True if the provider accepts images of this type.
pub(super) fn supports_image_type(wire: WireProtocol, media_type: &str) -> bool {
    let extra_types = match wire {
        WireProtocol::OpenAi | WireProtocol::OpenAiResponses | WireProtocol::OpenRouter | WireProtocol::Anthropic => {
            ["image/gif"].as_slice()
        }
        WireProtocol::Gemini => &["image/heic", "image/heif"],
        WireProtocol::Ollama => &[],
    };
    ["image/png", "image/jpeg", "image/webp"].contains(&media_type) || extra_types.contains(&media_type)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Content, ContentPart, ModelOptions, ModelRequest, ToolCall};
    use serde_json::json;

    use super::{MAX_CALL_ID_CHARS, sanitize_request};
    use crate::WireProtocol;

    fn sanitized_messages(wire: WireProtocol, messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let model = format!("{}:m", wire.name()).parse().unwrap();
        let options = ModelOptions::default();
        sanitize_request(
            wire,
            wire.name(),
            &ModelRequest { model, system: String::new(), messages, tools: [].into(), options },
        )
        .messages
    }

    fn tool_step(id: &str) -> Vec<ChatMessage> {
        let call = ToolCall::new(id, "fs.read", "{}");
        vec![ChatMessage::from_tool_calls(vec![call]), ChatMessage::tool_result(id, "fs.read", "A")]
    }

    fn call_ids(messages: &[ChatMessage]) -> Vec<&str> {
        messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn p13_tool_names_are_sent_as_models_know_them() {
        let sent = sanitized_messages(WireProtocol::OpenAi, tool_step("a"));
        assert_eq!(sent[0].tool_calls[0].function.name, "fs_read");
        assert_eq!(sent[1].name.as_deref(), Some("fs_read"));
    }

    #[test]
    fn p13_object_arguments_are_sent_verbatim_and_others_are_wrapped() {
        let arguments = |written: &str| {
            let call = ToolCall::new("a", "bash", written);
            sanitized_messages(WireProtocol::OpenAi, vec![ChatMessage::from_tool_calls(vec![call])])[0].tool_calls[0]
                .function
                .arguments
                .clone()
        };
        assert_eq!(arguments("{\"n\" : 1.0}"), "{\"n\" : 1.0}");
        assert_eq!(arguments(""), "{}");
        assert_eq!(arguments("{\"cmd\": \"ls"), r#"{"invalid_arguments":"{\"cmd\": \"ls"}"#);
        assert_eq!(arguments("[1]"), r#"{"invalid_arguments":"[1]"}"#);
    }

    #[test]
    fn p13_long_ids_with_a_common_prefix_stay_distinct_and_paired() {
        let (one, other) = (format!("{}1", "x".repeat(50)), format!("{}2", "x".repeat(50)));
        let sent = sanitized_messages(WireProtocol::OpenAi, [tool_step(&one), tool_step(&other)].concat());
        let ids = call_ids(&sent);
        assert!(ids.iter().all(|id| id.len() == MAX_CALL_ID_CHARS) && ids[0] != ids[1], "{ids:?}");
        assert_eq!([sent[1].tool_call_id.as_deref(), sent[3].tool_call_id.as_deref()], [Some(ids[0]), Some(ids[1])]);
    }

    #[test]
    fn p13_ids_stay_distinct_when_invalid_characters_are_replaced() {
        let messages = || [tool_step("a.b"), tool_step("a_b"), tool_step("a:b")].concat();
        assert_eq!(call_ids(&sanitized_messages(WireProtocol::Anthropic, messages())), ["a_b", "a_b_2", "a_b_3"]);
        assert_eq!(call_ids(&sanitized_messages(WireProtocol::OpenAi, messages())), ["a.b", "a_b", "a:b"]);
    }

    #[test]
    fn p13_later_messages_do_not_change_ids_sent_before() {
        let early = tool_step("a:b");
        let later = [early.clone(), tool_step("a_b")].concat();
        assert_eq!(
            sanitized_messages(WireProtocol::Anthropic, later)[..2],
            sanitized_messages(WireProtocol::Anthropic, early)
        );
    }

    #[test]
    fn a08_provider_assigned_id_is_returned_unchanged_to_that_provider() {
        let mut messages = tool_step(&"x".repeat(80));
        messages[0].tool_calls[0].extra.insert("provider".to_owned(), json!({"openai": {"id": true}}));
        assert_eq!(call_ids(&sanitized_messages(WireProtocol::OpenAi, messages.clone()))[0].len(), 80);
        assert_eq!(call_ids(&sanitized_messages(WireProtocol::OpenRouter, messages))[0].len(), MAX_CALL_ID_CHARS);
    }

    #[test]
    fn a08_unsupported_image_becomes_a_note_for_that_provider_only() {
        let image = |url: &str| vec![ChatMessage::user(Content::Parts(vec![ContentPart::from_image_url(url)]))];
        let gif = "data:image/gif;base64,AA==";
        assert_eq!(sanitized_messages(WireProtocol::Anthropic, image(gif)), image(gif));
        let note = |text: &str| vec![ChatMessage::user(Content::Parts(vec![ContentPart::from_text(text)]))];
        assert_eq!(sanitized_messages(WireProtocol::Gemini, image(gif)), note("[image/gif left out]"));
        for wire in WireProtocol::PROTOCOLS {
            assert_eq!(
                sanitized_messages(wire, image("data:image/svg+xml;base64,AA==")),
                note("[image/svg+xml left out]")
            );
            assert_eq!(sanitized_messages(wire, image("data:image/png,AA")), note("[image_url left out]"));
            assert_eq!(sanitized_messages(wire, image("data:image/png;base64,")), note("[image/png left out]"));
            let jpeg = image("data:image/jpeg;base64,AA==");
            assert_eq!(sanitized_messages(wire, image("data:image/jpg;base64,AA==")), jpeg);
        }
    }
}
