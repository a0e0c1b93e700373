//! Words of a needle that stand together in the text, with punctuation between them.

use capstan_tape::{Compound, CompoundPart};

use super::{MOST_PARTS, MOST_WORDS, all_of, any_of, groups, signs, term};

/// All of its words must be there, each as it is or with typos. The index does not know where they stand.
pub(super) struct Together<'a> {
    words: Vec<Word<'a>>,
}

struct Word<'a> {
    part: &'a CompoundPart,
    /// Words that are near.
    near: Vec<String>,
    /// Signs, any group of which may be there.
    groups: Vec<Vec<String>>,
}

impl<'a> Together<'a> {
    pub(super) fn of(compound: &'a Compound) -> Self {
        let word =
            |part: &'a CompoundPart| Word { part, near: Vec::new(), groups: groups(part.as_str(), part.typos()) };
        Self { words: compound.parts().iter().take(MOST_PARTS).map(word).collect() }
    }

    pub(super) fn offer(&mut self, word: &str) {
        for part in &mut self.words {
            if part.near.len() <= MOST_WORDS && part.part.typos_in(word).is_some() {
                part.near.push(word.to_owned());
            }
        }
    }

    /// Whether each of its words is near to too many.
    pub(super) fn says_nothing(&self) -> bool {
        self.telling().next().is_none()
    }

    /// What must be there; nothing when it cannot be.
    pub(super) fn complete(&self) -> Option<String> {
        let can_be = self.telling().all(|word| !word.near.is_empty() || !word.groups.is_empty());
        can_be.then(|| all_of(self.telling().map(Word::any)))
    }

    /// The words to ask for. One that is near to too many says little, and to leave it out finds more, never less.
    fn telling(&self) -> impl Iterator<Item = &Word<'a>> {
        self.words.iter().filter(|word| word.near.len() <= MOST_WORDS)
    }
}

impl Word<'_> {
    fn any(&self) -> String {
        any_of(self.near.iter().map(|word| term(word)).chain(self.groups.iter().map(|group| signs(group))))
    }
}
