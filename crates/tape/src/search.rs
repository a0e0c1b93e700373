//! Fuzzy search over the text of entries.

use serde_json::Value;

use crate::Entry;

/// Whether every word of the query is found in the entry: as a part of its text, or within a typo of one of its words.
pub fn matches(entry: &Entry, query: &str) -> bool {
    let mut text = String::new();
    collect_text(&entry.payload, &mut text);
    text_matches(&text.to_lowercase(), &query.to_lowercase())
}

fn text_matches(text: &str, query: &str) -> bool {
    let mut wanted = query.split_whitespace().peekable();
    if wanted.peek().is_none() {
        return false;
    }
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    wanted.all(|needle| text.contains(needle) || words.iter().any(|word| is_near(word, needle)))
}

/// One typo in a word of four letters or more, two from eight on.
fn is_near(word: &str, needle: &str) -> bool {
    let length = needle.chars().count();
    let allowed = match length {
        0..4 => return false,
        4..8 => 1,
        _ => 2,
    };
    word.chars().count().abs_diff(length) <= allowed && strsim::osa_distance(word, needle) <= allowed
}

fn collect_text(value: &Value, text: &mut String) {
    match value {
        Value::String(part) => {
            text.push_str(part);
            text.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| collect_text(item, text)),
        Value::Object(map) => map.values().for_each(|item| collect_text(item, text)),
        Value::Number(number) => {
            text.push_str(&number.to_string());
            text.push('\n');
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::text_matches;

    #[test]
    fn p10_search_finds_parts_words_in_any_order_and_typos() {
        let text = "the capstan winds the anchor rope, 你好 🐋";
        assert!(text_matches(text, "anchor capstan"));
        assert!(text_matches(text, "capst"));
        assert!(text_matches(text, "cpastan"), "two letters swapped");
        assert!(text_matches(text, "ancor"), "a letter missing");
        assert!(text_matches(text, "你好"));
        assert!(!text_matches(text, "telegram"));
        assert!(!text_matches(text, "anchor telegram"));
        assert!(!text_matches(text, "rpe"), "short words must be exact");
        assert!(!text_matches(text, "  "));
    }
}
