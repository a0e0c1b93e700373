//! One-line summaries of tool calls, whose arguments may be megabytes long.
//!
//! Arguments are shown as they are used: control characters and hidden characters as escapes, and nothing but the end of
//! a long one left out.

use capstan_protocol::{escape_line, truncate_chars};
use serde_json::Value;

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
                let key = truncate_to_one_line(key, MAX_ARGUMENT_SUMMARY_CHARS);
                format!("{key}={}", truncate_to_one_line(&value(argument), MAX_ARGUMENT_SUMMARY_CHARS))
            });
            truncate_chars(&each.collect::<Vec<_>>().join(" "), MAX_SUMMARY_CHARS, "…")
        }
    }
}

/// First `max_chars` characters of a text in one line, with escapes for hidden characters.
pub(crate) fn truncate_to_one_line(text: &str, max_chars: usize) -> String {
    // Truncated before it is escaped, because a text may be long, and after, because escapes are longer.
    truncate_chars(&escape_line(&truncate_chars(text, max_chars, "…")), max_chars + 1, "…")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::summarize_arguments;

    #[test]
    fn a04_arguments_are_summarized_in_one_line() {
        assert_eq!(summarize_arguments("{}"), "");
        assert_eq!(summarize_arguments(r#"{"cmd": "ls\n  -l"}"#), r"ls\n  -l");
        assert_eq!(summarize_arguments(r#"{"path": "a", "limit": 3}"#), "path=a limit=3");
        assert_eq!(summarize_arguments("no \u{1b}[31mJSON"), r"no \x1b[31mJSON");
    }

    #[test]
    fn x06_unfinished_escape_sequence_hides_nothing_of_a_command() {
        let shown = |command: &str| summarize_arguments(&json!({ "cmd": command }).to_string());
        assert_eq!(shown("ls -la #\u{1b}]\ntouch x\n"), r"ls -la #\x1b]\ntouch x\n");
        assert_eq!(shown("git status \u{1b}_; touch x; \u{7}"), r"git status \x1b_; touch x; \x07");
        assert_eq!(shown("cat a\u{202e}b\u{200b}\u{9b}2J"), r"cat a\u{202e}b\u{200b}\x9b2J");
        let several = json!({ "path\u{1b}[8m": "a", "text": "b\u{1b}]c" });
        assert_eq!(summarize_arguments(&several.to_string()), r"path\x1b[8m=a text=b\x1b]c");
    }

    #[test]
    fn x06_escapes_do_not_make_a_summary_long() {
        let shown = summarize_arguments(&json!({ "cmd": "\u{e0041}".repeat(10_000) }).to_string());
        assert!(shown.chars().count() < 210 && shown.ends_with('…'), "{shown}");
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
