//! Asking Claude to think before it answers.

use capstan_protocol::{JsonObject, Reasoning};
use serde_json::{Value, json};

/// The least it can be told to think, in tokens.
const MIN_THINKING_TOKENS: u32 = 1024;

/// What a request with these messages says about thinking.
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
    // Thinking counts towards the limit, and something must be left for the answer.
    let budget = budget.min(limit / 2);
    if budget < MIN_THINKING_TOKENS || !can_set_budget(messages) {
        return JsonObject::new();
    }
    JsonObject::from_iter([("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}))])
}

/// Newer models decide themselves how long to think, and take no budget.
fn uses_adaptive_thinking(model: &str) -> bool {
    claude_version(model).is_some_and(|version| version >= (4, 6))
}

/// The newest models sign a thought for everything that stood before it: system prompt, tools and messages. Where any of
/// it has changed since, as a system prompt does with the files it is made of, they refuse the whole request, unless
/// they are told to leave such thoughts out.
pub(super) fn binds_thinking_blocks(model: &str) -> bool {
    claude_version(model).is_some_and(|version| version >= (5, 1))
}

/// What tells a model to leave out thoughts whose beginning has changed.
pub(super) fn drop_unbound_blocks(settings: &mut JsonObject) {
    let thinking = settings.entry("thinking").or_insert_with(|| json!({"type": "adaptive"}));
    thinking["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
}

/// The version of a Claude, `claude-FAMILY-MAJOR-MINOR` or the older `claude-MAJOR-MINOR-FAMILY`. A date is none.
fn claude_version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let mut numbers = name.split(['-', '.', '@']).filter_map(|part| part.parse().ok()).filter(|number| *number < 100);
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Whether a budget can be given: within a step that uses tools the answer must have begun with a thought, which is not
/// so when another model began it.
fn can_set_budget(messages: &[Value]) -> bool {
    let is_result = |block: &Value| block["type"] == "tool_result";
    let answers_calls =
        |message: &Value| message["content"].as_array().is_some_and(|blocks| blocks.iter().any(is_result));
    if !messages.last().is_some_and(answers_calls) {
        return true;
    }
    let asked = messages.iter().rev().find(|message| message["role"] == "assistant");
    let first = asked.map(|message| &message["content"][0]["type"]);
    first.is_some_and(|kind| kind == "thinking" || kind == "redacted_thinking")
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Reasoning::{High, Low, None};
    use serde_json::json;

    use super::{binds_thinking_blocks, thinking_options, uses_adaptive_thinking};

    #[test]
    fn newer_models_decide_themselves_how_long_to_think() {
        for model in ["claude-opus-4-6", "claude-sonnet-4-7-20260801", "claude-opus-5", "claude-haiku-5-1"] {
            assert!(uses_adaptive_thinking(model), "{model}");
        }
        for model in ["claude-opus-4-20250514", "claude-opus-4-5-20251101", "claude-3-7-sonnet-latest", "glm-5.2"] {
            assert!(!uses_adaptive_thinking(model), "{model}");
        }
    }

    #[test]
    fn the_newest_models_bind_their_thoughts_to_what_stood_before() {
        for model in ["claude-fable-5-1", "claude-opus-5-5-20260901", "anthropic/claude-haiku-5.5", "claude-opus-6"] {
            assert!(binds_thinking_blocks(model), "{model}");
        }
        for model in ["claude-opus-5", "claude-opus-5-20260401", "claude-sonnet-4-7", "glm-5.2"] {
            assert!(!binds_thinking_blocks(model), "{model}");
        }
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer() {
        let of = |reasoning, limit| thinking_options("claude-sonnet-4-5", reasoning, limit, &[]).remove("thinking");
        assert_eq!(of(High, 32_000), Some(json!({"type": "enabled", "budget_tokens": 16_000})));
        assert_eq!(of(Low, 32_000), Some(json!({"type": "enabled", "budget_tokens": 2048})));
        assert_eq!(of(Low, 1500), Option::None, "too little to think at all");
        assert_eq!(of(None, 32_000), Option::None);
    }
}
