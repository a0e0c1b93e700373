//! Words of a search.

use super::{CompoundTerm, searchable_words};

/// Word of a search, in lower case. Words of four letters or more match with typos.
#[derive(Debug, Clone)]
pub struct SearchTerm {
    text: String,
    length: usize,
    letters: LetterMask,
    compound: Option<CompoundTerm>,
}

impl SearchTerm {
    pub(super) fn new(text: &str) -> Self {
        let (length, letters) = (text.chars().count(), LetterMask::from_word(text));
        Self { text: text.to_owned(), length, letters, compound: CompoundTerm::parse(text) }
    }

    /// Text of the word.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Words of the term, if it has punctuation and typos are tolerated.
    pub fn compound(&self) -> Option<&CompoundTerm> {
        self.compound.as_ref()
    }

    /// Maximum number of typos in a matching word.
    pub fn max_typos(&self) -> usize {
        max_typos_for_len(self.length)
    }

    /// Returns true if a word equals the term up to typos: wrong, missing, additional or transposed letters.
    pub fn matches_word(&self, word: &str) -> bool {
        let max_typos = self.max_typos();
        max_typos > 0
            && word.chars().count().abs_diff(self.length) <= max_typos
            && self.letters.can_match(LetterMask::from_word(word), max_typos)
            && strsim::osa_distance(word, &self.text) <= max_typos
    }

    pub(super) fn matches_any_word(&self, text: &str) -> bool {
        self.max_typos() > 0 && searchable_words(text).any(|word| self.matches_word(word))
            || self.compound.as_ref().is_some_and(|compound| compound.matches_in(text))
    }
}

/// Maximum number of typos in a word of this length: one from four letters on, two from eight. None beyond 256 letters,
/// because such text was not typed by hand and is slow to compare.
pub(super) fn max_typos_for_len(letters: usize) -> usize {
    match letters {
        4..8 => 1,
        8..=256 => 2,
        _ => 0,
    }
}

/// Approximate set of the letters of a word, in which several letters share a bit. A cheap filter before the edit
/// distance is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetterMask(u64);

impl LetterMask {
    pub(super) fn from_word(word: &str) -> Self {
        Self(word.chars().fold(0, |letters, letter| letters | 1 << (u32::from(letter) % 64)))
    }

    /// Returns false if the words cannot match, given that a typo adds at most one letter and removes at most one.
    pub(super) fn can_match(self, other: Self, max_typos: usize) -> bool {
        let max_typos = u32::try_from(max_typos).unwrap_or(u32::MAX);
        (self.0 & !other.0).count_ones() <= max_typos && (other.0 & !self.0).count_ones() <= max_typos
    }
}

#[cfg(test)]
mod tests {
    use super::SearchTerm;

    /// All words of up to six letters of a small alphabet, so that all kinds of typos occur.
    fn all_short_words() -> Vec<String> {
        let letters = ['a', 'b', 'c', '你'];
        let mut words = vec![String::new()];
        for _ in 0..6 {
            let longer = words.iter().flat_map(|word| letters.map(|letter| format!("{word}{letter}")));
            words = words.iter().cloned().chain(longer).collect();
            words.sort();
            words.dedup();
        }
        words
    }

    #[test]
    fn p10_letter_filter_rejects_no_matching_word() {
        for text in ["abca", "你bc", "abcab", "abcabcab"] {
            let term = SearchTerm::new(text);
            for word in all_short_words() {
                let expected = term.max_typos() > 0 && strsim::osa_distance(&word, text) <= term.max_typos();
                assert_eq!(term.matches_word(&word), expected, "{word} and {text}");
            }
        }
    }
}
