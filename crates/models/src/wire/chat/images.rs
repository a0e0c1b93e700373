//! Images that tools gave.
//!
//! The message of a tool may hold text and nothing else here; one of the user may hold images. So images that tools gave
//! are shown by the user, right after the results of the step. A server refuses the whole conversation over an image for
//! a model that cannot see, and it would stay refused: so that is done only for models that are known to see, and others
//! are left with a note.

use capstan_protocol::{ChatMessage, Content, ContentPart, Role};
use serde_json::{Value, json};

use crate::wire::parts::{Part, parts};

/// What stands before them.
const SHOWN: &str = "[The images that the tools gave, in their order:]";

/// How the names of models begin that see, and what others have in theirs.
const BEGINNINGS: &[&str] = &[
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
const SIGNS: &[&str] = &["-vl", "vision", "omni"];
/// Of these families the small ones do not.
const BLIND: &[&str] = &["o1-mini", "o1-preview", "o3-mini"];

/// Whether a model is known to see. Routers write the maker before its name.
pub(super) fn sees(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let begins = |with: &[&str]| with.iter().any(|beginning| name.starts_with(beginning));
    (begins(BEGINNINGS) && !begins(BLIND)) || SIGNS.iter().any(|sign| name.contains(sign))
}

/// The images of a step's results, as a message of the user; none where there are none.
pub(super) fn of_results(results: &[ChatMessage]) -> Option<Value> {
    let is_image = |part: &ContentPart| {
        let part = Content::Parts(vec![part.clone()]);
        matches!(parts(&part)[..], [Part::Inline { .. } | Part::Linked(_)])
    };
    let mut content = vec![json!({"type": "text", "text": SHOWN})];
    for result in results.iter().filter(|message| message.role == Role::Tool) {
        if let Content::Parts(parts) = &result.content {
            content.extend(parts.iter().filter(|part| is_image(part)).map(|part| json!(part)));
        }
    }
    (content.len() > 1).then(|| json!({"role": "user", "content": content}))
}

#[cfg(test)]
mod tests {
    use super::sees;

    #[test]
    fn models_that_see_are_known_by_their_names() {
        for model in ["gpt-5-mini", "o3", "anthropic/claude-sonnet-4.5", "google/gemini-3-pro", "qwen/qwen3-vl-8b"] {
            assert!(sees(model), "{model}");
        }
        for model in ["o3-mini", "deepseek-chat", "llama-3.3-70b", "m", "some/model", "gpt-oss-120b", "kimi-k2"] {
            assert!(!sees(model), "{model}");
        }
    }
}
