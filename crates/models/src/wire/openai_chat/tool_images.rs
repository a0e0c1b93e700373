//! Images that tools gave.
//!
//! The message of a tool may hold text and nothing else here; one of the user may hold images. So images that tools gave
//! are shown by the user, right after the results of the step. A server refuses the whole conversation over an image for
//! a model that cannot see, and it would stay refused: so that is done only for models that are known to see, and others
//! are left with a note.

use capstan_protocol::{ChatMessage, Content, ContentPart, MessageRole};
use serde_json::{Value, json};

use crate::wire::message_parts::{MessagePart, read_parts};

/// What stands before them.
const TOOL_IMAGES_NOTE: &str = "[The images that the tools gave, in their order:]";

/// How the names of models begin that see, and what others have in theirs.
const VISION_MODEL_PREFIXES: &[&str] = &[
    "gpt-4o",
    "gpt-4.1",
    "gpt-4-turbo",
    "gpt-5",
    "gpt-6",
    "chatgpt-4o",
    "o1",
    "o3",
    "o4",
    "claude",
    "gemini",
    "gemma-3",
    "gemma3",
    "llama-4",
    "llama4",
    "grok-4",
    "pixtral",
    "llava",
];
const VISION_MODEL_SUBSTRINGS: &[&str] = &["-vl", "vision", "omni"];
/// Of these families the small ones do not.
const TEXT_ONLY_MODEL_PREFIXES: &[&str] = &["o1-mini", "o1-preview", "o3-mini"];

/// Whether a model is known to see. Routers write the maker before its name.
pub(super) fn supports_vision(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let begins = |with: &[&str]| with.iter().any(|beginning| name.starts_with(beginning));
    (begins(VISION_MODEL_PREFIXES) && !begins(TEXT_ONLY_MODEL_PREFIXES))
        || VISION_MODEL_SUBSTRINGS.iter().any(|sign| name.contains(sign))
}

/// The images of a step's results, as a message of the user; none where there are none.
pub(super) fn tool_images_message(results: &[ChatMessage]) -> Option<Value> {
    let is_image = |part: &ContentPart| {
        let part = Content::Parts(vec![part.clone()]);
        matches!(read_parts(&part)[..], [MessagePart::InlineImage { .. } | MessagePart::LinkedImage(_)])
    };
    let mut content = vec![json!({"type": "text", "text": TOOL_IMAGES_NOTE})];
    for result in results.iter().filter(|message| message.role == MessageRole::Tool) {
        if let Content::Parts(parts) = &result.content {
            content.extend(parts.iter().filter(|part| is_image(part)).map(|part| json!(part)));
        }
    }
    (content.len() > 1).then(|| json!({"role": "user", "content": content}))
}

#[cfg(test)]
mod tests {
    use super::supports_vision;

    #[test]
    fn models_that_see_are_known_by_their_names() {
        for model in ["gpt-5-mini", "o3", "anthropic/claude-sonnet-4.5", "google/gemini-3-pro", "qwen/qwen3-vl-8b"] {
            assert!(supports_vision(model), "{model}");
        }
        for model in ["o3-mini", "deepseek-chat", "llama-3.3-70b", "m", "some/model", "gpt-oss-120b", "kimi-k2"] {
            assert!(!supports_vision(model), "{model}");
        }
    }
}
