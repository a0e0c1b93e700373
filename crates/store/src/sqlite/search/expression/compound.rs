//! Search terms that consist of several words with punctuation between them.

use capstan_tape::{CompoundPart, CompoundTerm};

use super::{
    MAX_MATCHING_WORDS, MAX_SEARCH_TERM_PARTS, all_of, all_unspaced, any_of, quote_term, split_unspaced_groups,
};

/// Alternatives for a compound: all of its words must occur, each exactly or with typos. The index has no positions.
pub(super) struct CompoundAlternatives<'a> {
    words: Vec<CompoundWord<'a>>,
}

struct CompoundWord<'a> {
    part: &'a CompoundPart,
    /// Indexed words within the typo distance.
    near_words: Vec<String>,
    /// Groups of unspaced letters, at least one of which must occur.
    unspaced_groups: Vec<Vec<String>>,
}

impl<'a> CompoundAlternatives<'a> {
    pub(super) fn for_compound(compound: &'a CompoundTerm) -> Self {
        let word = |part: &'a CompoundPart| CompoundWord {
            part,
            near_words: Vec::new(),
            unspaced_groups: split_unspaced_groups(part.as_str(), part.max_typos()),
        };
        Self { words: compound.parts().iter().take(MAX_SEARCH_TERM_PARTS).map(word).collect() }
    }

    pub(super) fn offer_word(&mut self, word: &str) {
        for part in &mut self.words {
            if part.near_words.len() <= MAX_MATCHING_WORDS && part.part.distance_to(word).is_some() {
                part.near_words.push(word.to_owned());
            }
        }
    }

    /// Returns true if each word of the compound matches too many indexed words.
    pub(super) fn is_unselective(&self) -> bool {
        self.selective_words().next().is_none()
    }

    /// Builds the expression; `None` if no entry can match.
    pub(super) fn build(&self) -> Option<String> {
        let can_match =
            self.selective_words().all(|word| !word.near_words.is_empty() || !word.unspaced_groups.is_empty());
        can_match.then(|| all_of(self.selective_words().map(CompoundWord::any_expression)))
    }

    /// Words to search for. A word that matches too many indexed words is omitted, which adds candidates and loses
    /// none.
    fn selective_words(&self) -> impl Iterator<Item = &CompoundWord<'a>> {
        self.words.iter().filter(|word| word.near_words.len() <= MAX_MATCHING_WORDS)
    }
}

impl CompoundWord<'_> {
    fn any_expression(&self) -> String {
        any_of(
            self.near_words
                .iter()
                .map(|word| quote_term(word))
                .chain(self.unspaced_groups.iter().map(|group| all_unspaced(group))),
        )
    }
}
