//! Calls of tools in a few words: a model may write megabytes into one.

use serde_json::Value;

use super::tame::tame;

/// How much is told of the arguments, in characters.
const TOLD: usize = 200;
/// How much of that one of several may take: what a file is called is told beside what is written to it.
const SHARE: usize = 80;

/// Arguments in one line: the only one by its value, several by name.
pub(crate) fn brief(arguments: &str) -> String {
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else { return in_one_line(arguments, TOLD) };
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match arguments.iter().collect::<Vec<_>>().as_slice() {
        [(_, only)] => in_one_line(&value(only), TOLD),
        several => {
            let each = several.iter().map(|(key, of)| format!("{key}={}", in_one_line(&value(of), SHARE)));
            in_one_line(&each.collect::<Vec<_>>().join(" "), TOLD)
        }
    }
}

/// The beginning of a text, so many characters of it, in one line.
pub(crate) fn in_one_line(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    let words: Vec<&str> = short.split_whitespace().collect();
    tame(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::brief;

    #[test]
    fn a04_arguments_are_told_in_a_few_words() {
        assert_eq!(brief("{}"), "");
        assert_eq!(brief(r#"{"cmd": "ls\n  -l"}"#), "ls -l");
        assert_eq!(brief(r#"{"path": "a", "limit": 3}"#), "path=a limit=3");
        assert_eq!(brief("no \u{1b}[31mJSON"), "no JSON");
    }

    #[test]
    fn a04_a_long_argument_leaves_room_for_the_others() {
        let long = "x".repeat(3_000_000);
        let told = brief(&json!({"content": long, "path": "story.txt"}).to_string());
        assert!(told.starts_with("content=xxx") && told.ends_with("x… path=story.txt"), "{told}");
        assert!(brief(&json!({"cmd": long}).to_string()).ends_with("x…"));
        assert!(brief(&long).chars().count() < 300);
    }
}
