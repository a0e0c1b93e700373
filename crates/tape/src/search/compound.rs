//! Search terms with punctuation.

use super::search_term::{LetterMask, max_typos_for_len};
use super::searchable_words;

/// Maximum number of words of a compound term, because they are compared at every position of a text.
const MAX_COMPOUND_PARTS: usize = 16;

/// Term with punctuation, such as `src/fork.rs`, split into words.
///
/// It matches a sequence of these words that is separated only by punctuation, of any kind. The total number of typos
/// is limited as in a single word of the same length.
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
    /// Splits a term. `None` if it has no punctuation, too many words, or a length at which typos are not tolerated.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<CompoundPart> =
            searchable_words(text).take(MAX_COMPOUND_PARTS + 1).map(CompoundPart::new).collect();
        let max_typos = max_typos_for_len(parts.iter().map(|part| part.length).sum());
        (max_typos > 0 && parts.len() <= MAX_COMPOUND_PARTS && text.contains(|c: char| !c.is_alphanumeric()))
            .then_some(Self { parts, max_typos })
    }

    /// Words of the term.
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
            part.distance_to(word).is_some_and(|distance| {
                typos += distance;
                typos <= self.max_typos
            })
        })
    }
}

/// Word of a compound term.
///
/// From four letters on, typos are tolerated as in any word. Shorter words are too easily confused with others, so only
/// one transposition is tolerated. Digits must be exact, or dates and versions would match each other.
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

    /// Text of the word.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Maximum number of wrong, missing and additional letters. Transpositions are not limited by it.
    pub fn max_typos(&self) -> usize {
        max_typos_for_len(self.length)
    }

    /// Number of typos between two words, or `None` if they are too different.
    pub fn distance_to(&self, word: &str) -> Option<usize> {
        if word == self.text {
            return Some(0);
        }
        let (max_typos, length) = (self.max_typos(), word.chars().count());
        let is_candidate = length.abs_diff(self.length) <= max_typos
            && self.letters.can_match(LetterMask::from_word(word), max_typos)
            && digits(word).eq(digits(&self.text));
        if !is_candidate {
            return None;
        }
        if max_typos == 0 || max_typos_for_len(length) == 0 {
            return is_transposition(word, &self.text).then_some(1);
        }
        Some(strsim::osa_distance(word, &self.text)).filter(|distance| *distance <= max_typos)
    }
}

fn digits(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|c| c.is_numeric())
}

/// Returns true if two words differ only by a transposition of two adjacent letters.
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
    fn p10_typo_is_tolerated_in_a_word_with_punctuation() {
        let finds = |text: &str| {
            TextSearch::new(text).matches_text("look at src/fork.rs and harbour-master and (config.toml).")
        };
        for typo in ["frok.rs", "src/frok.rs", "src/fork.sr", "scr/fork.rs", "fork.sr", "sr/fork.rs"] {
            assert_eq!(finds(typo), typo != "sr/fork.rs", "{typo}: a short part must be complete");
        }
        for typo in ["harbour-mastre", "harbor-master", "harbor-mastre", "confg.toml", "config.tmol", "Cnofig.tmol"] {
            assert!(finds(typo), "{typo}");
        }
        assert!(finds("\"harbuor-master\","), "surrounding punctuation is ignored");
        assert!(finds("harbuor,"), "trailing punctuation is ignored");
        assert!(finds("harbour_master"), "any punctuation matches");
    }

    #[test]
    fn p10_parts_of_a_word_with_punctuation_must_be_adjacent_with_few_typos() {
        let finds = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        assert!(!finds("frok.sr", "fork.rs"), "two typos in six letters");
        assert!(!finds("hrabor-mastre", "harbour-master"), "three in twelve");
        assert!(!finds("frok.rs", "fork the rs"), "not adjacent");
        assert!(!finds("frok.rs", "rs.fork"), "in another order");
        assert!(!finds("frok.rs", "fork. rs"), "white space between");
        assert!(!finds("fork.rs", "for.rs"), "too short to be sure");
        assert!(!finds("a.cb", "a.bc"), "three letters in all");
    }

    #[test]
    fn p10_very_long_words_must_match_exactly() {
        let found = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        let (path, long) = ("part/".repeat(20), "letters".repeat(40));
        assert!(found(&path, &path) && !found(&path, &path.replacen("part", "prat", 1)));
        assert!(found(&long, &long) && !found(&long, &long.replacen("letters", "lettres", 1)));
    }

    #[test]
    fn p10_digits_of_a_word_with_punctuation_must_be_exact() {
        let finds = |text: &str, in_text: &str| TextSearch::new(text).matches_text(in_text);
        assert!(!finds("2020-01-02", "2020-01-03"));
        assert!(!finds("2020-01-02t10:30", "2020-01-20t10:30"));
        assert!(!finds("1.2.34", "1.2.43"));
        assert!(finds("2020-01-02", "2020/01/02"));
        assert!(finds("frok2.rs", "fork2.rs") && !finds("fork2.rs", "fork3.rs"));
    }
}
