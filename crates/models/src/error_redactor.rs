//! Quoting a provider without repeating a secret or the prompt.

use std::collections::HashMap;

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

const MAX_EXCERPT_CHARS: usize = 300;
/// So many characters in a row of the prompt are the prompt and not chance.
const MIN_PROMPT_MATCH_CHARS: usize = 24;
/// So many characters in a row of a secret are too many.
const MIN_SECRET_MATCH_CHARS: usize = 8;
/// A shorter line is not looked for: it would be found in ordinary words.
const MIN_LINE_MATCH_CHARS: usize = 8;
const REDACTION_MASK: &str = "[...]";
/// How a line begins that tells of a context that was too long, with the provider's own words: they are no secret of the
/// prompt, and a second time it says the same.
const OVERFLOW_ANCHOR_PREFIX: &str = "[Anchor created: auto_handoff/context_overflow]:";
/// What the sums of runs are made with: any odd number that is large.
const ROLLING_HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// What must not be in an error: the key and what else may be a secret, and what was sent.
#[derive(Clone)]
pub(crate) struct ErrorRedactor {
    pub(crate) secrets: Vec<SecretString>,
    /// The body of the request.
    pub(crate) request_body: Bytes,
}

impl ErrorRedactor {
    /// A short excerpt of a provider's body: its error message where it has one, in one line, with secrets and
    /// stretches of the prompt masked.
    pub(crate) fn excerpt(&self, body: &str) -> String {
        let message = error_message(body).unwrap_or_else(|| body.to_owned());
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        // A little more than is shown: a cut could leave a stretch too short to be recognised.
        let letters: Vec<char> = line.chars().take(MAX_EXCERPT_CHARS + MIN_PROMPT_MATCH_CHARS).collect();
        let mut hidden = vec![false; letters.len()];
        for secret in &self.secrets {
            mark_matching_runs(&letters, secret.expose_secret(), MIN_SECRET_MATCH_CHARS, &mut hidden);
        }
        for text in &self.conversation_texts() {
            let said = || text.lines().filter(|line| !line.starts_with(OVERFLOW_ANCHOR_PREFIX));
            let in_one_line = said().flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
            if in_one_line.chars().count() >= MIN_PROMPT_MATCH_CHARS {
                mark_matching_runs(&letters, &in_one_line, MIN_PROMPT_MATCH_CHARS, &mut hidden);
            }
            said().for_each(|line| mark_matching_line(&letters, line, &mut hidden));
        }
        truncate_excerpt(&apply_mask(&letters, &hidden))
    }

    /// Every text of the conversation that was sent. They are only looked for when something went wrong.
    fn conversation_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Ok(Value::Object(mut body)) = serde_json::from_slice(&self.request_body) {
            body.remove("tools");
            collect_texts("", Value::Object(body), TextLocation::Elsewhere, &mut texts);
        }
        texts
    }
}

/// Where in a body a text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextLocation {
    /// In the arguments or the result of a call: all of it is the conversation.
    InToolCall,
    /// Elsewhere: only what is under certain keys is. Names and ids are what an error must be able to tell.
    Elsewhere,
}

fn collect_texts(key: &str, value: Value, said: TextLocation, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let conversation = ["content", "text", "system", "instructions", "output", "arguments", "thinking"];
            if said == TextLocation::InToolCall || conversation.contains(&key) {
                texts.push(text);
            }
        }
        Value::Array(values) => values.into_iter().for_each(|value| collect_texts(key, value, said, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                // `input` is also the whole conversation, as a list.
                let is_call = matches!(key.as_str(), "args" | "arguments" | "input" | "response") && value.is_object();
                let said = if is_call { TextLocation::InToolCall } else { said };
                collect_texts(&key, value, said, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The message of an error body in one of its usual forms.
fn error_message(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let places = ["/error/message", "/message", "/detail", "/error"];
    places.iter().find_map(|place| body.pointer(place)?.as_str().map(str::to_owned))
}

/// Marks every run of `length` characters that also is in `secret`; of a shorter secret, the whole. A prompt may be
/// megabytes long: it is gone through once, with a sum that goes along, and what has the sum of a run is compared with it.
fn mark_matching_runs(letters: &[char], secret: &str, length: usize, hidden: &mut [bool]) {
    let secret: Vec<char> = secret.chars().collect();
    let length = length.min(secret.len());
    if length == 0 || letters.len() < length {
        return;
    }
    let add = |sum: u64, letter: char| sum.wrapping_mul(ROLLING_HASH_MULTIPLIER).wrapping_add(u64::from(letter));
    let sum = |run: &[char]| run.iter().fold(0, |sum, letter| add(sum, *letter));
    let first_counts = (1..length).fold(1_u64, |product, _| product.wrapping_mul(ROLLING_HASH_MULTIPLIER));
    let mut runs: HashMap<u64, Vec<usize>> = HashMap::new();
    for (start, run) in letters.windows(length).enumerate() {
        runs.entry(sum(run)).or_default().push(start);
    }
    // Nearly every place of a prompt is none of them, and is told so by the first bits of its sum.
    let first_bits = |sum: u64| usize::from(u16::try_from(sum >> 48).unwrap_or(u16::MAX));
    let mut may_be = vec![false; usize::from(u16::MAX) + 1];
    for sum in runs.keys() {
        may_be[first_bits(*sum)] = true;
    }
    let mut present = sum(&secret[..length]);
    for (position, window) in secret.windows(length).enumerate() {
        if may_be[first_bits(present)]
            && let Some(starts) = runs.get_mut(&present)
        {
            for start in starts.extract_if(.., |start| letters[*start..*start + length] == *window) {
                hidden[start..start + length].fill(true);
            }
            if starts.is_empty() {
                runs.remove(&present);
            }
        }
        if let Some(next) = secret.get(position + length) {
            present = add(present.wrapping_sub(u64::from(window[0]).wrapping_mul(first_counts)), *next);
        }
    }
}

/// Marks a line where it stands whole.
fn mark_matching_line(letters: &[char], line: &str, hidden: &mut [bool]) {
    let line: Vec<char> = line.trim().chars().collect();
    if line.len() < MIN_LINE_MATCH_CHARS {
        return;
    }
    for (start, window) in letters.windows(line.len()).enumerate() {
        if window == line {
            hidden[start..start + line.len()].fill(true);
        }
    }
}

fn apply_mask(letters: &[char], hidden: &[bool]) -> String {
    let mut text = String::new();
    let mut was_hidden = false;
    for (letter, is_hidden) in letters.iter().zip(hidden) {
        match (is_hidden, was_hidden) {
            (false, _) => text.push(*letter),
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
        let sent = json!({"messages": [{"role": "user", "content": prompt}]}).to_string();
        ErrorRedactor { secrets: vec![SecretString::from(key.to_owned())], request_body: sent.into() }
    }

    #[test]
    fn the_message_of_an_error_body_is_quoted_in_one_line() {
        let body = json!({"error": {"message": "slow\n  down", "type": "rate_limit"}}).to_string();
        assert_eq!(redactor_for("", "hi").excerpt(&body), "slow down");
        assert_eq!(redactor_for("", "hi").excerpt("<html>Bad Gateway</html>"), "<html>Bad Gateway</html>");
    }

    #[test]
    fn neither_the_key_nor_a_part_of_it_is_quoted() {
        let redactor = redactor_for("sk-0123456789abcdef", "hi");
        assert_eq!(redactor.excerpt("bad key sk-0123456789abcdef!"), "bad key [...]!");
        assert_eq!(redactor.excerpt("bad key sk-01234*****!"), "bad key [...]*****!");
        assert_eq!(self::redactor_for("abc", "hi").excerpt("bad key abc"), "bad key [...]");
    }

    #[test]
    fn stretches_of_the_prompt_are_not_quoted() {
        let redactor = redactor_for("", "the launch code is\n4711 and the door is in the east wing");
        let body = json!({"message": "cannot parse: the launch code is\n4711 and the do (cut)"}).to_string();
        assert_eq!(redactor.excerpt(&body), "cannot parse: [...] (cut)");
        let with_header = "channel=$cli\n---Date: 2026-11-15---\npw: 4711";
        assert_eq!(self::redactor_for("", with_header).excerpt("bad: pw: 4711!"), "bad: [...]!");
    }

    #[test]
    fn ordinary_words_survive_a_short_prompt() {
        assert_eq!(redactor_for("", "model").excerpt("no such model"), "no such model");
    }

    #[test]
    fn names_and_ids_of_a_request_are_quoted_and_what_its_calls_hold_is_not() {
        let sent = json!({"model": "claude-opus", "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_0123456789", "name": "bash_output", "input": {"name": "swordfish"}}
        ]}]});
        let redactor = ErrorRedactor { secrets: Vec::new(), request_body: sent.to_string().into() };
        let said = "claude-opus: assistant toolu_0123456789 of bash_output lacks swordfish";
        assert_eq!(redactor.excerpt(said), "claude-opus: assistant toolu_0123456789 of bash_output lacks [...]");
    }

    #[test]
    fn a_stretch_is_found_wherever_it_stands_in_a_long_prompt() {
        let words: Vec<String> = (0..100_000).map(|number| format!("word{number}")).collect();
        let prompt = words.join(" ");
        for place in [0, 50_000, 99_990] {
            let stretch = words[place..place + 9].join(" ");
            let said = redactor_for("", &prompt).excerpt(&format!("cannot parse <{stretch}> here"));
            assert_eq!(said, "cannot parse <[...]> here", "from word {place} on");
        }
        assert_eq!(redactor_for("", &"x".repeat(1 << 20)).excerpt(&"x".repeat(5000)), "[...]");
    }

    #[test]
    fn a2_what_a_provider_said_of_a_context_that_was_too_long_can_be_said_again() {
        let said = "maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
        let anchor = format!("[Anchor created: auto_handoff/context_overflow]: {{\"error\":\"x: {said}\"}}");
        let redactor = redactor_for("", &format!("{anchor}\nthe launch code is 4711 and the door is open"));
        assert_eq!(redactor.excerpt(said), said);
        assert_eq!(redactor.excerpt("bad: the launch code is 4711 and the door is open"), "bad: [...]");
    }

    #[test]
    fn an_excerpt_is_short() {
        assert_eq!(redactor_for("", "hi").excerpt(&"x".repeat(5000)).chars().count(), 303);
    }
}
