//! Fuzzy search over the text of entries: one rule that says what is found, however the entries come to it.

mod compound;
mod scan;
mod search_term;

pub use compound::{CompoundPart, CompoundTerm};
pub use scan::SearchScan;
pub use search_term::SearchTerm;

use serde_json::Value;

use crate::Entry;

/// What a search looks for: words, each of which must be found in an entry. Without any it finds nothing.
///
/// A store that has an index asks it for entries that may be meant and lets [`TextSearch::matches`] decide.
///
/// ```
/// use capstan_tape::TextSearch;
///
/// let search = TextSearch::new("Cpastan rope");
/// assert_eq!(search.terms().len(), 2);
/// assert!(search.matches_text("the capstan winds the rope"));
/// ```
#[derive(Debug, Clone)]
pub struct TextSearch {
    terms: Vec<SearchTerm>,
}

impl TextSearch {
    /// A search for every word of a text, upper and lower case being the same.
    pub fn new(text: &str) -> Self {
        Self { terms: text.to_lowercase().split_whitespace().map(SearchTerm::new).collect() }
    }

    /// The words it looks for.
    pub fn terms(&self) -> &[SearchTerm] {
        &self.terms
    }

    /// Whether every word is found in the entry: as a part of its text, or within a typo of one of its words or, where it
    /// has punctuation, of several that stand together.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.matches_text(&searchable_text(entry))
    }

    /// The same for a text, which must be in lower case.
    pub fn matches_text(&self, text: &str) -> bool {
        let found = |needle: &SearchTerm| text.contains(needle.as_str()) || needle.matches_any_word(text);
        !self.terms.is_empty() && self.terms.iter().all(found)
    }
}

/// The text of an entry that is searched, in lower case: every text and number of its payload, with line ends between.
pub fn searchable_text(entry: &Entry) -> String {
    let mut text = String::new();
    collect_text(&entry.payload, &mut text);
    text.to_lowercase()
}

/// The words of a text: what stands between characters that are neither letters nor digits.
pub fn searchable_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether a letter belongs to a script that puts no spaces between words: Thai, Lao, Burmese, Khmer, kana, and Chinese
/// characters in all their blocks.
pub fn is_unspaced_script(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
        && c.is_alphanumeric()
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
    use super::TextSearch;

    #[test]
    fn p10_search_finds_parts_words_in_any_order_and_typos() {
        let finds = |text: &str| TextSearch::new(text).matches_text("the capstan winds the anchor rope, 你好 🐋");
        assert!(finds("anchor Capstan"));
        assert!(finds("capst"));
        assert!(finds("cpastan"), "two letters swapped");
        assert!(finds("ancor"), "a letter missing");
        assert!(finds("rope,"), "as it is written");
        assert!(finds("你好"));
        assert!(finds("🐋"));
        assert!(!finds("telegram"));
        assert!(!finds("anchor telegram"));
        assert!(!finds("rpe"), "short words must be exact");
        assert!(!finds("  "));
    }
}
