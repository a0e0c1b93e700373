//! Masks keys in tool results and model requests, so that they reach neither models nor tapes.
//!
//! The plugin is fail-closed: if it fails, the call fails, and nothing is sent unmasked.

use capstan::hooks::args::{LlmRequest, ToolOutcome};
use capstan::hooks::points::{AfterToolCall, BeforeLlmCall, LlmCallVerdict};
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Prefixes of the keys of well-known services.
const KEY_PREFIXES: &[&str] =
    &["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_"];
/// Minimum length of a key; ordinary words with the same prefix are shorter.
const MIN_API_KEY_LEN: usize = 16;
/// Replacement for a key.
const KEY_MASK: &str = "[key]";

/// Plugin that masks keys in every tool result and model request, of every runner.
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

/// Returns the value with every key in its texts masked.
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

/// Masks every key in a text.
pub fn mask_keys(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = KEY_PREFIXES.iter().filter_map(|prefix| rest.find(prefix)).min() {
        let end = rest[start..].find(|character| !is_key_char(character)).map_or(rest.len(), |length| start + length);
        let is_word_start = !rest[..start].ends_with(char::is_alphanumeric);
        masked.push_str(&rest[..start]);
        masked.push_str(if is_word_start && end - start >= MIN_API_KEY_LEN { KEY_MASK } else { &rest[start..end] });
        rest = &rest[end..];
    }
    masked + rest
}

fn is_key_char(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '_'
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
