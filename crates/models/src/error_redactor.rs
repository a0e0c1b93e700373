//! Redaction of provider error messages: neither secrets nor the prompt may appear in an error.
//!
//! # Matching
//!
//! A run of characters shared with a secret or with the prompt is masked if it is long enough not to be a coincidence.
//! The prompt may be megabytes long, so runs are compared by a rolling hash in one pass over it.

use std::collections::HashMap;

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

const MAX_EXCERPT_CHARS: usize = 300;
/// Minimum length of a run shared with the prompt that is masked.
const MIN_PROMPT_MATCH_CHARS: usize = 24;
/// Minimum length of a run shared with a secret that is masked.
const MIN_SECRET_MATCH_CHARS: usize = 8;
/// Shorter lines of the prompt are not masked: they would match ordinary words.
const MIN_LINE_MATCH_CHARS: usize = 8;
const REDACTION_MASK: &str = "[...]";
/// Prefix of the line in a prompt that shows the anchor of a context overflow.
const OVERFLOW_ANCHOR_PREFIX: &str = "[Anchor created: auto_handoff/context_overflow]:";
/// Multiplier of the rolling hash: any large odd number.
const ROLLING_HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Secrets and request body that must not appear in an error.
#[derive(Clone)]
pub(crate) struct ErrorRedactor {
    pub(crate) secrets: Vec<SecretString>,
    /// Body of the request, which contains the prompt.
    pub(crate) request_body: Bytes,
}

impl ErrorRedactor {
    /// Short one-line excerpt of an error body (its message, where it has one) with secrets and parts of the prompt
    /// masked.
    pub(crate) fn excerpt(&self, body: &str) -> String {
        let message = error_message(body).unwrap_or_else(|| body.to_owned());
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        // Longer than the result, because a cut run could be too short to be recognised.
        let chars: Vec<char> = line.chars().take(MAX_EXCERPT_CHARS + MIN_PROMPT_MATCH_CHARS).collect();
        let mut hidden = vec![false; chars.len()];
        for secret in &self.secrets {
            mark_matching_runs(&chars, secret.expose_secret(), MIN_SECRET_MATCH_CHARS, &mut hidden);
        }
        for text in &self.conversation_texts() {
            let lines = || text.lines().filter(|line| !is_overflow_quote(line));
            let joined = lines().flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
            if joined.chars().count() >= MIN_PROMPT_MATCH_CHARS {
                mark_matching_runs(&chars, &joined, MIN_PROMPT_MATCH_CHARS, &mut hidden);
            }
            lines().for_each(|line| mark_matching_line(&chars, line, &mut hidden));
        }
        truncate_excerpt(&apply_mask(&chars, &hidden))
    }

    /// Texts of the conversation in the request body. Extracted on demand, since only errors need them.
    fn conversation_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Ok(Value::Object(mut body)) = serde_json::from_slice(&self.request_body) {
            body.remove("tools");
            collect_texts("", Value::Object(body), TextLocation::Elsewhere, &mut texts);
        }
        texts
    }
}

/// Returns true for an anchor that has nothing but the provider's message about an earlier overflow. The provider may
/// repeat its message, which is not masked. An anchor with a summary is part of the conversation.
fn is_overflow_quote(line: &str) -> bool {
    let Some(state) = line.strip_prefix(OVERFLOW_ANCHOR_PREFIX) else { return false };
    let state: serde_json::Map<String, Value> = serde_json::from_str(state).unwrap_or_default();
    state.keys().all(|key| matches!(key.as_str(), "reason" | "error"))
}

/// Location of a text in a request body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextLocation {
    /// Inside the arguments or the result of a tool call: every string is conversation.
    InToolCall,
    /// Anywhere else: only the strings under certain keys are conversation. Names and ids may appear in an error.
    Elsewhere,
}

fn collect_texts(key: &str, value: Value, location: TextLocation, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let conversation = ["content", "text", "system", "instructions", "output", "arguments", "thinking"];
            if location == TextLocation::InToolCall || conversation.contains(&key) {
                texts.push(text);
            }
        }
        Value::Array(values) => values.into_iter().for_each(|value| collect_texts(key, value, location, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                // `input` is also the whole conversation, as a list.
                let is_call = matches!(key.as_str(), "args" | "arguments" | "input" | "response") && value.is_object();
                let location = if is_call { TextLocation::InToolCall } else { location };
                collect_texts(&key, value, location, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Message of an error body, in one of the common formats.
fn error_message(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let pointers = ["/error/message", "/message", "/detail", "/error"];
    pointers.iter().find_map(|pointer| body.pointer(pointer)?.as_str().map(str::to_owned))
}

/// Marks every run of `length` characters that also occurs in `secret`; for a shorter secret, every whole occurrence.
fn mark_matching_runs(chars: &[char], secret: &str, length: usize, hidden: &mut [bool]) {
    let secret: Vec<char> = secret.chars().collect();
    let length = length.min(secret.len());
    if length == 0 || chars.len() < length {
        return;
    }
    let add = |sum: u64, c: char| sum.wrapping_mul(ROLLING_HASH_MULTIPLIER).wrapping_add(u64::from(c));
    let sum = |run: &[char]| run.iter().fold(0, |sum, c| add(sum, *c));
    let first_weight = (1..length).fold(1_u64, |product, _| product.wrapping_mul(ROLLING_HASH_MULTIPLIER));
    let mut runs: HashMap<u64, Vec<usize>> = HashMap::new();
    for (start, run) in chars.windows(length).enumerate() {
        runs.entry(sum(run)).or_default().push(start);
    }
    // Filter on the top bits of the hash: almost no position of a prompt matches, and the map lookup is slower.
    let first_bits = |sum: u64| usize::from(u16::try_from(sum >> 48).unwrap_or(u16::MAX));
    let mut may_match = vec![false; usize::from(u16::MAX) + 1];
    for sum in runs.keys() {
        may_match[first_bits(*sum)] = true;
    }
    let mut current = sum(&secret[..length]);
    for (position, window) in secret.windows(length).enumerate() {
        if may_match[first_bits(current)]
            && let Some(starts) = runs.get_mut(&current)
        {
            for start in starts.extract_if(.., |start| chars[*start..*start + length] == *window) {
                hidden[start..start + length].fill(true);
            }
            if starts.is_empty() {
                runs.remove(&current);
            }
        }
        if let Some(next) = secret.get(position + length) {
            current = add(current.wrapping_sub(u64::from(window[0]).wrapping_mul(first_weight)), *next);
        }
    }
}

/// Marks every occurrence of the whole line.
fn mark_matching_line(chars: &[char], line: &str, hidden: &mut [bool]) {
    let line: Vec<char> = line.trim().chars().collect();
    if line.len() < MIN_LINE_MATCH_CHARS {
        return;
    }
    for (start, window) in chars.windows(line.len()).enumerate() {
        if window == line {
            hidden[start..start + line.len()].fill(true);
        }
    }
}

fn apply_mask(chars: &[char], hidden: &[bool]) -> String {
    let mut text = String::new();
    let mut was_hidden = false;
    for (c, is_hidden) in chars.iter().zip(hidden) {
        match (is_hidden, was_hidden) {
            (false, _) => text.push(*c),
            (true, false) => text.push_str(REDACTION_MASK),
            (true, true) => {}
        }
        was_hidden = *is_hidden;
    }
    text
}

fn truncate_excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use serde_json::json;

    use super::ErrorRedactor;

    fn redactor_for(key: &str, prompt: &str) -> ErrorRedactor {
        let body = json!({"messages": [{"role": "user", "content": prompt}]}).to_string();
        ErrorRedactor { secrets: vec![SecretString::from(key.to_owned())], request_body: body.into() }
    }

    #[test]
    fn message_of_an_error_body_is_quoted_in_one_line() {
        let body = json!({"error": {"message": "slow\n  down", "type": "rate_limit"}}).to_string();
        assert_eq!(redactor_for("", "hi").excerpt(&body), "slow down");
        assert_eq!(redactor_for("", "hi").excerpt("<html>Bad Gateway</html>"), "<html>Bad Gateway</html>");
    }

    #[test]
    fn key_and_its_parts_are_masked() {
        let redactor = redactor_for("sk-0123456789abcdef", "hi");
        assert_eq!(redactor.excerpt("bad key sk-0123456789abcdef!"), "bad key [...]!");
        assert_eq!(redactor.excerpt("bad key sk-01234*****!"), "bad key [...]*****!");
        assert_eq!(self::redactor_for("abc", "hi").excerpt("bad key abc"), "bad key [...]");
    }

    #[test]
    fn parts_of_the_prompt_are_masked() {
        let redactor = redactor_for("", "the launch code is\n4711 and the door is in the east wing");
        let body = json!({"message": "cannot parse: the launch code is\n4711 and the do (cut)"}).to_string();
        assert_eq!(redactor.excerpt(&body), "cannot parse: [...] (cut)");
        let with_header = "channel=$cli\n---Date: 2026-11-15---\npw: 4711";
        assert_eq!(self::redactor_for("", with_header).excerpt("bad: pw: 4711!"), "bad: [...]!");
    }

    #[test]
    fn ordinary_words_are_not_masked_for_a_short_prompt() {
        assert_eq!(redactor_for("", "model").excerpt("no such model"), "no such model");
    }

    #[test]
    fn names_and_ids_of_a_request_are_quoted_but_tool_arguments_are_masked() {
        let sent = json!({"model": "claude-opus", "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_0123456789", "name": "bash_output", "input": {"name": "swordfish"}}
        ]}]});
        let redactor = ErrorRedactor { secrets: Vec::new(), request_body: sent.to_string().into() };
        let message = "claude-opus: assistant toolu_0123456789 of bash_output lacks swordfish";
        assert_eq!(redactor.excerpt(message), "claude-opus: assistant toolu_0123456789 of bash_output lacks [...]");
    }

    #[test]
    fn part_of_a_long_prompt_is_masked_at_any_position() {
        let words: Vec<String> = (0..100_000).map(|number| format!("word{number}")).collect();
        let prompt = words.join(" ");
        for first in [0, 50_000, 99_990] {
            let part = words[first..first + 9].join(" ");
            let excerpt = redactor_for("", &prompt).excerpt(&format!("cannot parse <{part}> here"));
            assert_eq!(excerpt, "cannot parse <[...]> here", "starting at word {first}");
        }
        assert_eq!(redactor_for("", &"x".repeat(1 << 20)).excerpt(&"x".repeat(5000)), "[...]");
    }

    #[test]
    fn a02_context_overflow_message_is_quoted_again_on_the_next_overflow() {
        let message = "maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
        let anchor = format!("[Anchor created: auto_handoff/context_overflow]: {{\"error\":\"x: {message}\"}}");
        let redactor = redactor_for("", &format!("{anchor}\nthe launch code is 4711 and the door is open"));
        assert_eq!(redactor.excerpt(message), message);
        assert_eq!(redactor.excerpt("bad: the launch code is 4711 and the door is open"), "bad: [...]");
    }

    #[test]
    fn a02_summary_in_the_anchor_of_an_overflow_is_masked() {
        let state = json!({"reason": "x", "error": "y", "task": "the launch code is 4711 and the door is open"});
        let anchor = format!("[Anchor created: auto_handoff/context_overflow]: {state}");
        let excerpt = redactor_for("", &anchor).excerpt("bad: the launch code is 4711 and the door is open!");
        assert_eq!(excerpt, "bad: [...]!");
    }

    #[test]
    fn excerpt_is_truncated() {
        assert_eq!(redactor_for("", "hi").excerpt(&"x".repeat(5000)).chars().count(), 303);
    }
}
