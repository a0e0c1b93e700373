//! Asking Claude to think before it answers.

use capstan_protocol::{Map, Reasoning};
use serde_json::{Value, json};

/// The least it can be told to think, in tokens.
const LEAST: u32 = 1024;

/// What a request with these messages says about thinking.
pub(super) fn settings(model: &str, reasoning: Reasoning, limit: u32, messages: &[Value]) -> Map {
    let budget = match reasoning {
        Reasoning::None => return Map::new(),
        Reasoning::Low => 2048,
        Reasoning::Medium => 8192,
        Reasoning::High => 16_384,
    };
    if decides_itself(model) {
        return Map::from_iter([
            ("thinking".to_owned(), json!({"type": "adaptive"})),
            ("output_config".to_owned(), json!({"effort": reasoning.as_str()})),
        ]);
    }
    // Thinking counts towards the limit, and something must be left for the answer.
    let budget = budget.min(limit / 2);
    if budget < LEAST || !may_be_asked_for(messages) {
        return Map::new();
    }
    Map::from_iter([("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}))])
}

/// Newer models decide themselves how long to think, and take no budget: `claude-FAMILY-MAJOR-MINOR`, from 4.6 on.
fn decides_itself(model: &str) -> bool {
    let numbers: Vec<u32> = model.split(['-', '.', '@']).filter_map(|part| part.parse().ok()).collect();
    match numbers.as_slice() {
        // A date is no version.
        [4, minor, ..] => (6..100).contains(minor),
        [major, ..] => (5..100).contains(major),
        [] => false,
    }
}

/// Whether a budget can be given: within a step that uses tools the answer must have begun with a thought, which is not
/// so when another model began it.
fn may_be_asked_for(messages: &[Value]) -> bool {
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

    use super::{decides_itself, settings};

    #[test]
    fn newer_models_decide_themselves_how_long_to_think() {
        for model in ["claude-opus-4-6", "claude-sonnet-4-7-20260801", "claude-opus-5", "claude-haiku-5-1"] {
            assert!(decides_itself(model), "{model}");
        }
        for model in ["claude-opus-4-20250514", "claude-opus-4-5-20251101", "claude-3-7-sonnet-latest", "other"] {
            assert!(!decides_itself(model), "{model}");
        }
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer() {
        let of = |reasoning, limit| settings("claude-sonnet-4-5", reasoning, limit, &[]).remove("thinking");
        assert_eq!(of(High, 32_000), Some(json!({"type": "enabled", "budget_tokens": 16_000})));
        assert_eq!(of(Low, 32_000), Some(json!({"type": "enabled", "budget_tokens": 2048})));
        assert_eq!(of(Low, 1500), Option::None, "too little to think at all");
        assert_eq!(of(None, 32_000), Option::None);
    }
}
