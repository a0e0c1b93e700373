//! One-line summaries of tool calls, whose arguments may be megabytes long.

use capstan_protocol::truncate_chars;
use serde_json::Value;

use super::escape::strip_escapes;

/// Maximum length of a summary in characters.
const MAX_SUMMARY_CHARS: usize = 200;
/// Maximum share of one of several arguments, so that a file name remains visible beside the file content.
const MAX_ARGUMENT_SUMMARY_CHARS: usize = 80;

/// Arguments in one line: a single argument by its value, several by name and value.
pub(crate) fn summarize_arguments(arguments: &str) -> String {
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else {
        return truncate_to_one_line(arguments, MAX_SUMMARY_CHARS);
    };
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match arguments.iter().collect::<Vec<_>>().as_slice() {
        [(_, only)] => truncate_to_one_line(&value(only), MAX_SUMMARY_CHARS),
        several => {
            let each = several.iter().map(|(key, argument)| {
                format!("{key}={}", truncate_to_one_line(&value(argument), MAX_ARGUMENT_SUMMARY_CHARS))
            });
            truncate_to_one_line(&each.collect::<Vec<_>>().join(" "), MAX_SUMMARY_CHARS)
        }
    }
}

/// First `max_chars` characters of a text, in one line.
pub(crate) fn truncate_to_one_line(text: &str, max_chars: usize) -> String {
    let short = truncate_chars(text, max_chars, "…");
    let words: Vec<&str> = short.split_whitespace().collect();
    strip_escapes(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::summarize_arguments;

    #[test]
    fn a04_arguments_are_summarized_in_one_line() {
        assert_eq!(summarize_arguments("{}"), "");
        assert_eq!(summarize_arguments(r#"{"cmd": "ls\n  -l"}"#), "ls -l");
        assert_eq!(summarize_arguments(r#"{"path": "a", "limit": 3}"#), "path=a limit=3");
        assert_eq!(summarize_arguments("no \u{1b}[31mJSON"), "no JSON");
    }

    #[test]
    fn a04_long_argument_leaves_room_for_the_others() {
        let long = "x".repeat(3_000_000);
        let summary = summarize_arguments(&json!({"content": long, "path": "story.txt"}).to_string());
        assert!(summary.starts_with("content=xxx") && summary.ends_with("x… path=story.txt"), "{summary}");
        assert!(summarize_arguments(&json!({"cmd": long}).to_string()).ends_with("x…"));
        assert!(summarize_arguments(&long).chars().count() < 300);
    }
}
