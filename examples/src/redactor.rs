//! Keeps keys from models and tapes: what looks like one is masked in what tools answer and in what models are sent.
//!
//! It is fail-closed: when it fails, the call fails, and nothing goes out unmasked.

use capstan::hooks::args::{LlmRequest, ToolOutcome};
use capstan::hooks::points::{AfterToolCall, BeforeLlm, BeforeLlmCall};
use capstan::hooks::{BoxError, Plugin, Registrar};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How the keys of well-known services begin.
const BEGINNINGS: &[&str] = &["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_"];
/// How many letters follow at least. Words of a text that begin the same way are shorter.
const SHORTEST: usize = 16;
/// What stands in a key's place.
const MASK: &str = "[key]";

/// Masks keys in every tool's output and every model request, of every runner.
pub struct Redactor;

impl Plugin for Redactor {
    fn name(&self) -> &'static str {
        "redactor"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        hooks
            .fail_closed()
            .on(AfterToolCall, |outcome: ToolOutcome| async move { Ok(Some(redacted(outcome.0.as_ref())?)) })
            .on(BeforeLlmCall, |request: LlmRequest| async move {
                Ok(Some(BeforeLlm::Change(redacted(request.0.as_ref())?)))
            });
        Ok(())
    }
}

/// The same value with every key in its texts masked.
fn redacted<T: Serialize + DeserializeOwned>(value: &T) -> Result<T, BoxError> {
    let mut value = serde_json::to_value(value)?;
    mask_all(&mut value);
    Ok(serde_json::from_value(value)?)
}

fn mask_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(items) => items.iter_mut().for_each(mask_all),
        Value::Object(map) => map.values_mut().for_each(mask_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with every key masked.
pub fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = BEGINNINGS.iter().filter_map(|beginning| rest.find(beginning)).min() {
        let end = rest[at..].find(|letter| !is_of_key(letter)).map_or(rest.len(), |length| at + length);
        let begins_word = !rest[..at].ends_with(char::is_alphanumeric);
        masked.push_str(&rest[..at]);
        masked.push_str(if begins_word && end - at >= SHORTEST { MASK } else { &rest[at..end] });
        rest = &rest[end..];
    }
    masked + rest
}

fn is_of_key(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn x06_keys_are_masked_and_words_are_not() {
        assert_eq!(masked("KEY=sk-proj-0123456789abcdef; done"), "KEY=[key]; done");
        assert_eq!(masked("ghp_0123456789abcdefghij AKIAIOSFODNN7EXAMPLE"), "[key] [key]");
        assert_eq!(masked("a sk-etch, a risk-0123456789abcdef, é"), "a sk-etch, a risk-0123456789abcdef, é");
    }
}
