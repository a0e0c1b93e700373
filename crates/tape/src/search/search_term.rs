//! One word of a search.

use super::{CompoundTerm, searchable_words};

/// One word that a search looks for, in lower case.
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

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it is made of, if it has punctuation and typos may be in it.
    pub fn compound(&self) -> Option<&CompoundTerm> {
        self.compound.as_ref()
    }

    /// How many typos are forgiven in a word that it is compared with.
    pub fn max_typos(&self) -> usize {
        max_typos_for_len(self.length)
    }

    /// Whether a word is the one that is looked for, but for typos: letters that are wrong, missing, too many or swapped.
    pub fn matches_word(&self, word: &str) -> bool {
        let typos = self.max_typos();
        typos > 0
            && word.chars().count().abs_diff(self.length) <= typos
            && self.letters.can_match(LetterMask::from_word(word), typos)
            && strsim::osa_distance(word, &self.text) <= typos
    }

    pub(super) fn matches_any_word(&self, text: &str) -> bool {
        self.max_typos() > 0 && searchable_words(text).any(|word| self.matches_word(word))
            || self.compound.as_ref().is_some_and(|compound| compound.matches_in(text))
    }
}

/// How many typos are forgiven in a word of so many letters: one from four on, two from eight on. What is longer than any
/// word was not typed, and would take long to compare.
pub(super) fn max_typos_for_len(letters: usize) -> usize {
    match letters {
        4..8 => 1,
        8..=256 => 2,
        _ => 0,
    }
}

/// Which letters a word has, roughly: several letters share a bit. A cheap look before the distance is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetterMask(u64);

impl LetterMask {
    pub(super) fn from_word(word: &str) -> Self {
        Self(word.chars().fold(0, |letters, letter| letters | 1 << (u32::from(letter) % 64)))
    }

    /// A typo adds at most one letter and takes at most one away.
    pub(super) fn can_match(self, other: Self, typos: usize) -> bool {
        let typos = u32::try_from(typos).unwrap_or(u32::MAX);
        (self.0 & !other.0).count_ones() <= typos && (other.0 & !self.0).count_ones() <= typos
    }
}

#[cfg(test)]
mod tests {
    use super::SearchTerm;

    /// Every word of a few letters, so that each kind of typo is among them.
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
    fn p10_the_cheap_look_at_letters_hides_no_typo() {
        for text in ["abca", "你bc", "abcab", "abcabcab"] {
            let needle = SearchTerm::new(text);
            for word in all_short_words() {
                let is_near = needle.max_typos() > 0 && strsim::osa_distance(&word, text) <= needle.max_typos();
                assert_eq!(needle.matches_word(&word), is_near, "{word} and {text}");
            }
        }
    }
}
