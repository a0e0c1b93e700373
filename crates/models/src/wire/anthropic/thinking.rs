//! Thinking options of Claude models.

use capstan_protocol::{JsonObject, Reasoning};
use serde_json::{Value, json};

/// Minimum thinking budget that the provider accepts.
const MIN_THINKING_TOKENS: u32 = 1024;

/// Thinking options of a request with these messages.
pub(super) fn thinking_options(model: &str, reasoning: Reasoning, limit: u32, messages: &[Value]) -> JsonObject {
    let budget = match reasoning {
        Reasoning::None => return JsonObject::new(),
        Reasoning::Low => 2048,
        Reasoning::Medium => 8192,
        Reasoning::High => 16_384,
    };
    if uses_adaptive_thinking(model) {
        return JsonObject::from_iter([
            ("thinking".to_owned(), json!({"type": "adaptive"})),
            ("output_config".to_owned(), json!({"effort": reasoning.as_str()})),
        ]);
    }
    // Thinking counts towards the token limit; the rest is left for the answer.
    let budget = budget.min(limit / 2);
    if budget < MIN_THINKING_TOKENS || !can_set_budget(messages) {
        return JsonObject::new();
    }
    JsonObject::from_iter([("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}))])
}

/// True for newer models, which choose the amount of thinking themselves and accept no budget.
fn uses_adaptive_thinking(model: &str) -> bool {
    claude_version(model).is_some_and(|version| version >= (4, 6))
}

/// True for the newest models, which sign a thought together with everything before it: system prompt, tools and
/// messages. If any of it has changed, as a system prompt does with the files it is built from, they reject the whole
/// request unless it asks to drop such thoughts.
pub(super) fn binds_thinking_blocks(model: &str) -> bool {
    claude_version(model).is_some_and(|version| version >= (5, 1))
}

/// Makes the provider drop thoughts whose prefix has changed.
pub(super) fn drop_unbound_blocks(options: &mut JsonObject) {
    let thinking = options.entry("thinking").or_insert_with(|| json!({"type": "adaptive"}));
    thinking["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
}

/// Version of a Claude model, `claude-FAMILY-MAJOR-MINOR` or the older `claude-MAJOR-MINOR-FAMILY`. Dates are ignored.
fn claude_version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let mut numbers = name.split(['-', '.', '@']).filter_map(|part| part.parse().ok()).filter(|number| *number < 100);
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// True if a budget may be set. Within a step that uses tools, the assistant turn must have started with a thought, which
/// is not the case if another model started it.
fn can_set_budget(messages: &[Value]) -> bool {
    let is_result = |block: &Value| block["type"] == "tool_result";
    let answers_calls =
        |message: &Value| message["content"].as_array().is_some_and(|blocks| blocks.iter().any(is_result));
    if !messages.last().is_some_and(answers_calls) {
        return true;
    }
    let last_reply = messages.iter().rev().find(|message| message["role"] == "assistant");
    let first = last_reply.map(|message| &message["content"][0]["type"]);
    first.is_some_and(|kind| kind == "thinking" || kind == "redacted_thinking")
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Reasoning::{High, Low, None};
    use serde_json::json;

    use super::{binds_thinking_blocks, thinking_options, uses_adaptive_thinking};

    #[test]
    fn newer_models_use_adaptive_thinking() {
        for model in ["claude-opus-4-6", "claude-sonnet-4-7-20260801", "claude-opus-5", "claude-haiku-5-1"] {
            assert!(uses_adaptive_thinking(model), "{model}");
        }
        for model in ["claude-opus-4-20250514", "claude-opus-4-5-20251101", "claude-3-7-sonnet-latest", "glm-5.2"] {
            assert!(!uses_adaptive_thinking(model), "{model}");
        }
    }

    #[test]
    fn newest_models_bind_thoughts_to_their_prefix() {
        for model in ["claude-fable-5-1", "claude-opus-5-5-20260901", "anthropic/claude-haiku-5.5", "claude-opus-6"] {
            assert!(binds_thinking_blocks(model), "{model}");
        }
        for model in ["claude-opus-5", "claude-opus-5-20260401", "claude-sonnet-4-7", "glm-5.2"] {
            assert!(!binds_thinking_blocks(model), "{model}");
        }
    }

    #[test]
    fn budget_leaves_room_for_the_answer() {
        let thinking =
            |reasoning, limit| thinking_options("claude-sonnet-4-5", reasoning, limit, &[]).remove("thinking");
        assert_eq!(thinking(High, 32_000), Some(json!({"type": "enabled", "budget_tokens": 16_000})));
        assert_eq!(thinking(Low, 32_000), Some(json!({"type": "enabled", "budget_tokens": 2048})));
        assert_eq!(thinking(Low, 1500), Option::None, "below the minimum budget");
        assert_eq!(thinking(None, 32_000), Option::None);
    }
}
