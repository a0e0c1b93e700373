//! Images in tool results.
//!
//! Tool messages of this protocol contain text only, but user messages may contain images. Images of tool results are
//! therefore sent as a user message after the results of the step. A server rejects the whole conversation for an image
//! sent to a model without vision, and would reject every later request too, so only models known to support vision get
//! images; others get a note.

use capstan_protocol::{ChatMessage, Content, ContentPart, MessageRole};
use serde_json::{Value, json};

use crate::wire::message_parts::{MessagePart, read_parts};

/// Text before the images.
const TOOL_IMAGES_NOTE: &str = "[The images that the tools gave, in their order:]";

/// Name prefixes of models with vision.
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
/// Name parts of further models with vision.
const VISION_MODEL_SUBSTRINGS: &[&str] = &["-vl", "vision", "omni"];
/// Name prefixes of small models without vision in families with vision.
const TEXT_ONLY_MODEL_PREFIXES: &[&str] = &["o1-mini", "o1-preview", "o3-mini"];

/// True if the model is known to support vision. Routers prefix the vendor to its name.
pub(super) fn supports_vision(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    (has_prefix(VISION_MODEL_PREFIXES) && !has_prefix(TEXT_ONLY_MODEL_PREFIXES))
        || VISION_MODEL_SUBSTRINGS.iter().any(|part| name.contains(part))
}

/// User message with the images of a step's results; `None` if there are none.
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
    fn vision_support_is_recognised_by_model_name() {
        for model in ["gpt-5-mini", "o3", "anthropic/claude-sonnet-4.5", "google/gemini-3-pro", "qwen/qwen3-vl-8b"] {
            assert!(supports_vision(model), "{model}");
        }
        for model in ["o3-mini", "deepseek-chat", "llama-3.3-70b", "m", "some/model", "gpt-oss-120b", "kimi-k2"] {
            assert!(!supports_vision(model), "{model}");
        }
    }
}
