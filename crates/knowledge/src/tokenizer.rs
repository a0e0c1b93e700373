//! Terms by which texts are found.

use capstan_tape::{is_unspaced_script, searchable_words};

/// Maximum length of a word that is a term, in bytes. Longer words are keys, encoded images and other data.
const MAX_TERM_LEN: usize = 64;

/// Terms of a text in lower case, in order, with repetitions: words, and in scripts without spaces single characters and
/// pairs of neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TermList {
    /// Terms separated by spaces, which no term contains: FTS5 splits them there and nowhere else.
    text: String,
    count: u32,
}

impl TermList {
    /// Terms of a text.
    pub(crate) fn tokenize(text: &str) -> Self {
        let text = text.to_lowercase();
        let mut terms = Self::default();
        for mut word in searchable_words(&text) {
            // A word that mixes scripts is divided where they meet.
            while let Some(first) = word.chars().next() {
                let is_unspaced = is_unspaced_script(first);
                let length = word.find(|letter| is_unspaced_script(letter) != is_unspaced).unwrap_or(word.len());
                let (part, rest) = word.split_at(length);
                word = rest;
                if is_unspaced {
                    terms.push_bigrams(part);
                } else if part.len() <= MAX_TERM_LEN {
                    terms.push(part);
                }
            }
        }
        terms
    }

    /// Number of terms, with repetitions.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The terms, separated by spaces.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The terms in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.text.split(' ').filter(|term| !term.is_empty())
    }

    fn push(&mut self, term: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(term);
        self.count = self.count.saturating_add(1);
    }

    /// Adds every character, and every character with its neighbour.
    fn push_bigrams(&mut self, characters: &str) {
        for (start, first) in characters.char_indices() {
            let end = start + first.len_utf8();
            self.push(&characters[start..end]);
            if let Some(second) = characters[end..].chars().next() {
                self.push(&characters[start..end + second.len_utf8()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TERM_LEN, TermList};

    fn tokenize(text: &str) -> Vec<String> {
        TermList::tokenize(text).iter().map(str::to_owned).collect()
    }

    #[test]
    fn g11_words_are_found_whatever_their_case_and_what_stands_between_them() {
        assert_eq!(tokenize("The anchor-rope, twice"), tokenize("the ANCHOR rope_twice"));
        assert_ne!(tokenize("anchor"), tokenize("anchors"));
        assert!(tokenize("--- ... !").is_empty());
        assert!(tokenize(&"x".repeat(MAX_TERM_LEN + 1)).is_empty());
    }

    #[test]
    fn g11_scripts_without_spaces_are_found_by_signs_and_pairs() {
        assert_eq!(tokenize("你好吗").len(), 5);
        assert!(tokenize("说你好吗").ends_with(&tokenize("你好吗")));
        assert_eq!(tokenize("v2版本"), [tokenize("v2"), tokenize("版本")].concat());
    }
}
