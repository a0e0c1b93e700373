//! Fuzzy text search over entries.
//!
//! # Matching
//!
//! An entry matches if each word of the search occurs in its text: as a substring, or as a word with a few typos (see
//! [`SearchTerm`]). A word with punctuation also matches a sequence of words (see [`CompoundTerm`]). All stores use
//! this rule, with or without an index.

mod compound;
mod scan;
mod search_term;

pub use compound::{CompoundPart, CompoundTerm};
pub use scan::SearchScan;
pub use search_term::SearchTerm;

use serde_json::Value;

use crate::Entry;

/// Words to search for. All of them must match; a search without words matches nothing.
///
/// A store with an index selects candidates and filters them with [`TextSearch::matches`].
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
    /// Search for all words of a text, ignoring case.
    pub fn new(text: &str) -> Self {
        Self { terms: text.to_lowercase().split_whitespace().map(SearchTerm::new).collect() }
    }

    /// Words of the search.
    pub fn terms(&self) -> &[SearchTerm] {
        &self.terms
    }

    /// Returns true if all words match the entry.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.matches_text(&searchable_text(entry))
    }

    /// Returns true if all words match the text, which must be in lower case.
    pub fn matches_text(&self, text: &str) -> bool {
        let matches = |term: &SearchTerm| text.contains(term.as_str()) || term.matches_any_word(text);
        !self.terms.is_empty() && self.terms.iter().all(matches)
    }
}

/// Searchable text of an entry: all strings and numbers of its payload in lower case, one per line.
pub fn searchable_text(entry: &Entry) -> String {
    let mut text = String::new();
    collect_text(&entry.payload, &mut text);
    text.to_lowercase()
}

/// Words of a text: the longest sequences of letters and digits.
pub fn searchable_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Returns true if a letter belongs to a script without spaces between words: Thai, Lao, Burmese, Khmer, kana, and
/// Chinese characters in all their blocks.
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
    fn p10_search_finds_substrings_words_in_any_order_and_typos() {
        let finds = |text: &str| TextSearch::new(text).matches_text("the capstan winds the anchor rope, 你好 🐋");
        assert!(finds("anchor Capstan"));
        assert!(finds("capst"));
        assert!(finds("cpastan"), "two letters swapped");
        assert!(finds("ancor"), "a letter missing");
        assert!(finds("rope,"), "with its punctuation");
        assert!(finds("你好"));
        assert!(finds("🐋"));
        assert!(!finds("telegram"));
        assert!(!finds("anchor telegram"));
        assert!(!finds("rpe"), "short words must be exact");
        assert!(!finds("  "));
    }
}
