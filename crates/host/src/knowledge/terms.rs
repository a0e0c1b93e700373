//! What a text is found by.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use capstan_tape::{is_sign, searched_words};

/// The longest word that is a term, in bytes. Longer ones are keys, pictures and other data in the clothes of text.
const LONGEST_WORD: usize = 64;

/// A word, or a pair of neighbours in a script without spaces, as a number: there are many, and most occur in many
/// places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term(u32);

/// The terms of a text, in order, as often as they occur; upper and lower case are the same.
pub(super) fn terms(text: &str) -> Vec<Term> {
    let text = text.to_lowercase();
    let mut terms = Vec::new();
    for mut word in searched_words(&text) {
        // A word that mixes scripts is divided where they meet.
        while let Some(first) = word.chars().next() {
            let is_of_signs = is_sign(first);
            let length = word.find(|letter| is_sign(letter) != is_of_signs).unwrap_or(word.len());
            let (part, rest) = word.split_at(length);
            word = rest;
            if is_of_signs {
                pairs(part, &mut terms);
            } else if part.len() <= LONGEST_WORD {
                terms.push(term(part));
            }
        }
    }
    terms
}

/// Every sign, and every sign with its neighbour.
fn pairs(signs: &str, terms: &mut Vec<Term>) {
    for (start, first) in signs.char_indices() {
        let end = start + first.len_utf8();
        terms.push(term(&signs[start..end]));
        if let Some(second) = signs[end..].chars().next() {
            terms.push(term(&signs[start..end + second.len_utf8()]));
        }
    }
}

/// Of thirty-two bits, since the index is made of them. That a word of a question has the same as another of the folder is
/// not to be expected, and would show a passage too many.
fn term(word: &str) -> Term {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    // The upper half of a number fits into half of it.
    Term(u32::try_from(hasher.finish() >> 32).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_WORD, terms};

    #[test]
    fn k04_words_are_found_whatever_their_case_and_what_stands_between_them() {
        assert_eq!(terms("The anchor-rope, twice"), terms("the ANCHOR rope_twice"));
        assert_ne!(terms("anchor"), terms("anchors"));
        assert!(terms("--- ... !").is_empty());
        assert!(terms(&"x".repeat(LONGEST_WORD + 1)).is_empty());
    }

    #[test]
    fn k04_scripts_without_spaces_are_found_by_signs_and_pairs() {
        assert_eq!(terms("你好吗").len(), 5);
        assert!(terms("说你好吗").ends_with(&terms("你好吗")));
        assert_eq!(terms("v2版本"), [terms("v2"), terms("版本")].concat());
    }
}
