//! How much a model of `OpenAI` is asked to think, in the words it takes.

use capstan_protocol::Reasoning;

/// The word for it; nothing where the model takes none and is left as it is. Not every model can be told not to think: it
/// gets the least it takes, as it would refuse the request otherwise.
pub(super) fn effort_level(model: &str, reasoning: Reasoning) -> Option<&'static str> {
    if reasoning != Reasoning::None {
        return Some(reasoning.as_str());
    }
    // Servers that have the models of many put the maker's name before theirs.
    let model = model.rsplit('/').next().unwrap_or(model);
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| model.starts_with(prefix));
    // These do not think, or take one word only, which is what they do anyway.
    let has_no_choice = begins(&["gpt-3", "gpt-4", "chatgpt", "o1-mini", "o1-preview"])
        || (begins(&["gpt-5"]) && model.contains("-chat"))
        || is_pro_model(model);
    // Its successors, from 5.1 on, can be told.
    let is_first = model == "gpt-5" || model.starts_with("gpt-5-");
    match model {
        _ if has_no_choice => None,
        _ if begins(&["o1", "o3", "o4", "codex"]) || (begins(&["gpt-"]) && model.contains("codex")) => Some("low"),
        _ if is_first => Some("minimal"),
        _ => Some("none"),
    }
}

/// Whether it is one of those that always think, and only much.
fn is_pro_model(model: &str) -> bool {
    model.starts_with("gpt-5") && model.contains("-pro")
}

/// Whether a model of whatever maker cannot be told not to think.
pub(super) fn always_reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let least = effort_level(name, Reasoning::None);
    least.is_some_and(|least| least != "none")
        || is_pro_model(name)
        || ["gemini-3", "gemini-2.5-pro"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Reasoning::{self, High, Low};

    use super::{always_reasons, effort_level};

    #[test]
    fn a8_a_model_that_cannot_be_told_not_to_think_is_asked_for_the_least_it_takes() {
        let none = |model| effort_level(model, Reasoning::None);
        for (model, least) in [
            ("gpt-5", Some("minimal")),
            ("gpt-5-mini-2025-08-07", Some("minimal")),
            ("openai/gpt-5-nano", Some("minimal")),
            ("gpt-5.1", Some("none")),
            ("gpt-5.2-2025-12-11", Some("none")),
            ("gpt-5-codex", Some("low")),
            ("gpt-5.3-codex", Some("low")),
            ("o3", Some("low")),
            ("o4-mini", Some("low")),
            ("gpt-5-pro", None),
            ("gpt-5.2-pro", None),
            ("gpt-5.1-chat-latest", None),
            ("gpt-4o", None),
            ("qwen3-32b", Some("none")),
        ] {
            assert_eq!(none(model), least, "{model}");
        }
        assert_eq!(
            (effort_level("gpt-5", Low), effort_level("o3", High)),
            (Some("low"), Some("high")),
            "what is asked for else"
        );
        assert!(always_reasons("google/gemini-3-pro-preview") && always_reasons("openai/o3"));
        assert!(always_reasons("openai/gpt-5-pro") && always_reasons("openai/gpt-5.2-pro"));
        assert!(
            !always_reasons("openai/gpt-4o")
                && !always_reasons("anthropic/claude-sonnet-4.5")
                && !always_reasons("openai/gpt-5.1")
        );
    }
}
