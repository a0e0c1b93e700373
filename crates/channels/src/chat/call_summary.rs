//! Calls of tools in a few words: a model may write megabytes into one.

use serde_json::Value;

use super::escape::strip_escapes;

/// How much is told of the arguments, in characters.
const MAX_SUMMARY_CHARS: usize = 200;
/// How much of that one of several may take: what a file is called is told beside what is written to it.
const MAX_ARGUMENT_SUMMARY_CHARS: usize = 80;

/// Arguments in one line: the only one by its value, several by name.
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
            let each = several
                .iter()
                .map(|(key, of)| format!("{key}={}", truncate_to_one_line(&value(of), MAX_ARGUMENT_SUMMARY_CHARS)));
            truncate_to_one_line(&each.collect::<Vec<_>>().join(" "), MAX_SUMMARY_CHARS)
        }
    }
}

/// The beginning of a text, so many characters of it, in one line.
pub(crate) fn truncate_to_one_line(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    let words: Vec<&str> = short.split_whitespace().collect();
    strip_escapes(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::summarize_arguments;

    #[test]
    fn a04_arguments_are_told_in_a_few_words() {
        assert_eq!(summarize_arguments("{}"), "");
        assert_eq!(summarize_arguments(r#"{"cmd": "ls\n  -l"}"#), "ls -l");
        assert_eq!(summarize_arguments(r#"{"path": "a", "limit": 3}"#), "path=a limit=3");
        assert_eq!(summarize_arguments("no \u{1b}[31mJSON"), "no JSON");
    }

    #[test]
    fn a04_a_long_argument_leaves_room_for_the_others() {
        let long = "x".repeat(3_000_000);
        let told = summarize_arguments(&json!({"content": long, "path": "story.txt"}).to_string());
        assert!(told.starts_with("content=xxx") && told.ends_with("x… path=story.txt"), "{told}");
        assert!(summarize_arguments(&json!({"cmd": long}).to_string()).ends_with("x…"));
        assert!(summarize_arguments(&long).chars().count() < 300);
    }
}
