//! Keeps keys from models and tapes: what looks like one is masked in what tools answer and in what models are sent.
//!
//! It is fail-closed: when it fails, the call fails, and nothing goes out unmasked.

use capstan::hooks::args::{LlmRequest, ToolOutcome};
use capstan::hooks::points::{AfterToolCall, BeforeLlmCall, LlmCallVerdict};
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How the keys of well-known services begin.
const KEY_PREFIXES: &[&str] =
    &["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_"];
/// How many letters follow at least. Words of a text that begin the same way are shorter.
const MIN_API_KEY_LEN: usize = 16;
/// What stands in a key's place.
const KEY_MASK: &str = "[key]";

/// Masks keys in every tool's output and every model request, of every runner.
pub struct KeyRedactor;

impl Plugin for KeyRedactor {
    fn name(&self) -> &'static str {
        "redactor"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks
            .fail_closed()
            .on(AfterToolCall, |outcome: ToolOutcome| async move { Ok(Some(redact(outcome.0.as_ref())?)) })
            .on(BeforeLlmCall, |request: LlmRequest| async move {
                Ok(Some(LlmCallVerdict::Change(redact(request.0.as_ref())?)))
            });
        Ok(())
    }
}

/// The same value with every key in its texts masked.
fn redact<T: Serialize + DeserializeOwned>(value: &T) -> Result<T, BoxError> {
    let mut value = serde_json::to_value(value)?;
    mask_all(&mut value);
    Ok(serde_json::from_value(value)?)
}

fn mask_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_keys(text),
        Value::Array(items) => items.iter_mut().for_each(mask_all),
        Value::Object(map) => map.values_mut().for_each(mask_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with every key masked.
pub fn mask_keys(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = KEY_PREFIXES.iter().filter_map(|beginning| rest.find(beginning)).min() {
        let end = rest[at..].find(|letter| !is_key_char(letter)).map_or(rest.len(), |length| at + length);
        let begins_word = !rest[..at].ends_with(char::is_alphanumeric);
        masked.push_str(&rest[..at]);
        masked.push_str(if begins_word && end - at >= MIN_API_KEY_LEN { KEY_MASK } else { &rest[at..end] });
        rest = &rest[end..];
    }
    masked + rest
}

fn is_key_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::mask_keys;

    #[test]
    fn x06_keys_are_masked_and_words_are_not() {
        assert_eq!(mask_keys("KEY=sk-proj-0123456789abcdef; done"), "KEY=[key]; done");
        assert_eq!(mask_keys("ghp_0123456789abcdefghij AKIAIOSFODNN7EXAMPLE"), "[key] [key]");
        assert_eq!(mask_keys("a sk-etch, a risk-0123456789abcdef, é"), "a sk-etch, a risk-0123456789abcdef, é");
    }
}
