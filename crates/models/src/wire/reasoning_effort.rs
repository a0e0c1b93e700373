//! Reasoning effort levels of `OpenAI` models.

use capstan_protocol::Reasoning;

/// Effort level for a model; `None` if the model accepts none. Some models reject a request to turn reasoning off: they
/// get their lowest level.
pub(super) fn effort_level(model: &str, reasoning: Reasoning) -> Option<&'static str> {
    if reasoning != Reasoning::None {
        return Some(reasoning.as_str());
    }
    // Servers that host models of many vendors prefix the vendor name.
    let model = model.rsplit('/').next().unwrap_or(model);
    let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| model.starts_with(prefix));
    // Models that do not reason, or accept only the level they use anyway.
    let has_no_choice = has_prefix(&["gpt-3", "gpt-4", "chatgpt", "o1-mini", "o1-preview"])
        || (has_prefix(&["gpt-5"]) && model.contains("-chat"))
        || is_pro_model(model);
    // Versions from 5.1 on accept `none`.
    let is_first_gpt_5 = model == "gpt-5" || model.starts_with("gpt-5-");
    match model {
        _ if has_no_choice => None,
        _ if has_prefix(&["o1", "o3", "o4", "codex"]) || (has_prefix(&["gpt-"]) && model.contains("codex")) => {
            Some("low")
        }
        _ if is_first_gpt_5 => Some("minimal"),
        _ => Some("none"),
    }
}

/// True for models that always reason at the highest level.
fn is_pro_model(model: &str) -> bool {
    model.starts_with("gpt-5") && model.contains("-pro")
}

/// True for models of any vendor whose reasoning cannot be turned off.
pub(super) fn always_reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let lowest = effort_level(name, Reasoning::None);
    lowest.is_some_and(|lowest| lowest != "none")
        || is_pro_model(name)
        || ["gemini-3", "gemini-2.5-pro"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Reasoning::{self, High, Low};

    use super::{always_reasons, effort_level};

    #[test]
    fn a08_model_that_always_reasons_gets_its_lowest_level() {
        let none = |model| effort_level(model, Reasoning::None);
        for (model, lowest) in [
            ("gpt-5", Some("minimal")),
            ("gpt-5-mini-2025-08-07", Some("minimal")),
            ("openai/gpt-5-nano", Some("minimal")),
            ("gpt-5.1", Some("none")),
            ("gpt-5.2-2025-12-11", Some("none")),
            ("gpt-5-codex", Some("low")),
            ("gpt-5.3-codex", Some("low")),
            ("o1", Some("low")),
            ("o3", Some("low")),
            ("o4-mini", Some("low")),
            ("gpt-5-pro", None),
            ("gpt-5.2-pro", None),
            ("gpt-5.1-chat-latest", None),
            ("gpt-4o", None),
            ("qwen3-32b", Some("none")),
        ] {
            assert_eq!(none(model), lowest, "{model}");
        }
        assert_eq!(
            (effort_level("gpt-5", Low), effort_level("o3", High)),
            (Some("low"), Some("high")),
            "other levels are passed on"
        );
        assert!(always_reasons("google/gemini-3-pro-preview") && always_reasons("google/gemini-2.5-pro"));
        assert!(always_reasons("openai/o3"));
        assert!(always_reasons("openai/gpt-5-pro") && always_reasons("openai/gpt-5.2-pro"));
        assert!(
            !always_reasons("openai/gpt-4o")
                && !always_reasons("anthropic/claude-sonnet-4.5")
                && !always_reasons("openai/gpt-5.1")
        );
    }
}
