//! Words of a needle that stand together in the text, with punctuation between them.

use capstan_tape::{CompoundPart, CompoundTerm};

use super::{
    MAX_MATCHING_WORDS, MAX_SEARCH_TERM_PARTS, all_of, all_unspaced, any_of, quote_term, split_unspaced_groups,
};

/// All of its words must be there, each as it is or with typos. The index does not know where they stand.
pub(super) struct CompoundAlternatives<'a> {
    words: Vec<CompoundWord<'a>>,
}

struct CompoundWord<'a> {
    part: &'a CompoundPart,
    /// Words that are near.
    near_words: Vec<String>,
    /// Signs, any group of which may be there.
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

    /// Whether each of its words is near to too many.
    pub(super) fn is_unselective(&self) -> bool {
        self.selective_words().next().is_none()
    }

    /// What must be there; nothing when it cannot be.
    pub(super) fn build(&self) -> Option<String> {
        let can_be = self.selective_words().all(|word| !word.near_words.is_empty() || !word.unspaced_groups.is_empty());
        can_be.then(|| all_of(self.selective_words().map(CompoundWord::any_expression)))
    }

    /// The words to ask for. One that is near to too many says little, and to leave it out finds more, never less.
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
