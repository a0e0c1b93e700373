//! One word of a search that has punctuation in it.

use super::search_term::{LetterMask, max_typos_for_len};
use super::searchable_words;

/// How many words it may have. They are compared at every place of a text.
const MAX_COMPOUND_PARTS: usize = 16;

/// A word with punctuation, such as `src/fork.rs`, as the words that it is made of.
///
/// It is found where they stand one after the other with nothing but punctuation between them, and with no more typos in
/// all of them than are forgiven in a word of as many letters. Which punctuation it is does not matter.
///
/// ```
/// use capstan_tape::TextSearch;
///
/// let search = TextSearch::new("src/frok.rs");
/// let compound = search.terms()[0].compound().unwrap();
/// assert_eq!(compound.parts()[1].distance_to("fork"), Some(1));
/// assert!(search.matches_text("look at src/fork.rs"));
/// ```
#[derive(Debug, Clone)]
pub struct CompoundTerm {
    parts: Vec<CompoundPart>,
    max_typos: usize,
}

impl CompoundTerm {
    /// Nothing where there is no punctuation, too little or too much else for a typo to be forgiven, or too many words.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<CompoundPart> =
            searchable_words(text).take(MAX_COMPOUND_PARTS + 1).map(CompoundPart::new).collect();
        let typos = max_typos_for_len(parts.iter().map(|part| part.length).sum());
        (typos > 0 && parts.len() <= MAX_COMPOUND_PARTS && text.contains(|c: char| !c.is_alphanumeric()))
            .then_some(Self { parts, max_typos: typos })
    }

    /// The words it is made of.
    pub fn parts(&self) -> &[CompoundPart] {
        &self.parts
    }

    pub(super) fn matches_in(&self, text: &str) -> bool {
        let mut words = Vec::new();
        text.split_whitespace().any(|run| {
            words.clear();
            words.extend(searchable_words(run));
            words.windows(self.parts.len()).any(|words| self.matches_words(words))
        })
    }

    fn matches_words(&self, words: &[&str]) -> bool {
        let mut typos = 0;
        self.parts.iter().zip(words).all(|(part, word)| {
            part.distance_to(word).is_some_and(|more| {
                typos += more;
                typos <= self.max_typos
            })
        })
    }
}

/// A word of a compound.
///
/// Four letters or more have the typos of any word. Fewer are too easily something else: only two that are swapped are
/// forgiven. Digits must be right, or each date and version would be found for every other.
#[derive(Debug, Clone)]
pub struct CompoundPart {
    text: String,
    length: usize,
    letters: LetterMask,
}

impl CompoundPart {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), length: text.chars().count(), letters: LetterMask::from_word(text) }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many letters may be wrong, missing or too many; those that are swapped are all there.
    pub fn max_typos(&self) -> usize {
        max_typos_for_len(self.length)
    }

    /// How many typos make this word of another, if they can be forgiven.
    pub fn distance_to(&self, word: &str) -> Option<usize> {
        if word == self.text {
            return Some(0);
        }
        let (typos, length) = (self.max_typos(), word.chars().count());
        let may_be_near = length.abs_diff(self.length) <= typos
            && self.letters.can_match(LetterMask::from_word(word), typos)
            && digits(word).eq(digits(&self.text));
        if !may_be_near {
            return None;
        }
        if typos == 0 || max_typos_for_len(length) == 0 {
            return is_transposition(word, &self.text).then_some(1);
        }
        Some(strsim::osa_distance(word, &self.text)).filter(|distance| *distance <= typos)
    }
}

fn digits(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|c| c.is_numeric())
}

/// Whether two words are the same but for two neighbours that have changed places.
fn is_transposition(one: &str, other: &str) -> bool {
    let mut differing = one.chars().zip(other.chars()).enumerate().filter(|(_, (a, b))| a != b);
    let (first, second, more) = (differing.next(), differing.next(), differing.next());
    let (Some((at, (a, b))), Some((next, (c, d))), None) = (first, second, more) else { return false };
    next == at + 1 && (a, b) == (d, c) && one.chars().count() == other.chars().count()
}

#[cfg(test)]
mod tests {
    use super::super::TextSearch;

    #[test]
    fn p10_a_typo_is_forgiven_in_a_word_with_punctuation() {
        let finds = |text: &str| {
            TextSearch::new(text).matches_text("look at src/fork.rs and harbour-master and (config.toml).")
        };
        for typo in ["frok.rs", "src/frok.rs", "src/fork.sr", "scr/fork.rs", "fork.sr", "sr/fork.rs"] {
            assert_eq!(finds(typo), typo != "sr/fork.rs", "{typo}: a short part must be whole");
        }
        for typo in ["harbour-mastre", "harbor-master", "harbor-mastre", "confg.toml", "config.tmol", "Cnofig.tmol"] {
            assert!(finds(typo), "{typo}");
        }
        assert!(finds("\"harbuor-master\","), "what stands around it is no part of it");
        assert!(finds("harbuor,"), "nor is what stands at its end");
        assert!(finds("harbour_master"), "which punctuation it is does not matter");
    }

    #[test]
    fn p10_a_word_with_punctuation_is_found_in_one_place_with_few_typos() {
        let finds = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        assert!(!finds("frok.sr", "fork.rs"), "two typos in six letters");
        assert!(!finds("hrabor-mastre", "harbour-master"), "three in twelve");
        assert!(!finds("frok.rs", "fork the rs"), "not side by side");
        assert!(!finds("frok.rs", "rs.fork"), "in another order");
        assert!(!finds("frok.rs", "fork. rs"), "white space between");
        assert!(!finds("fork.rs", "for.rs"), "too short to be sure");
        assert!(!finds("a.cb", "a.bc"), "three letters in all");
    }

    #[test]
    fn p10_what_nobody_typed_is_looked_for_as_it_is() {
        let found = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        let (path, long) = ("part/".repeat(20), "letters".repeat(40));
        assert!(found(&path, &path) && !found(&path, &path.replacen("part", "prat", 1)));
        assert!(found(&long, &long) && !found(&long, &long.replacen("letters", "lettres", 1)));
    }

    #[test]
    fn p10_digits_of_a_word_with_punctuation_must_be_right() {
        let finds = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        assert!(!finds("2020-01-02", "2020-01-03"));
        assert!(!finds("2020-01-02t10:30", "2020-01-20t10:30"));
        assert!(!finds("1.2.34", "1.2.43"));
        assert!(finds("2020-01-02", "2020/01/02"));
        assert!(finds("frok2.rs", "fork2.rs") && !finds("fork2.rs", "fork3.rs"));
    }
}
