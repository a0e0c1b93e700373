//! What a text is found by.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use capstan_tape::{is_unspaced_script, searchable_words};

/// The longest word that is a term, in bytes. Longer ones are keys, pictures and other data in the clothes of text.
const MAX_TERM_LEN: usize = 64;

/// A word, or a pair of neighbours in a script without spaces, as a number: there are many, and most occur in many
/// places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TermHash(u32);

/// The terms of a text, in order, as often as they occur; upper and lower case are the same.
pub(super) fn tokenize(text: &str) -> Vec<TermHash> {
    let text = text.to_lowercase();
    let mut terms = Vec::new();
    for mut word in searchable_words(&text) {
        // A word that mixes scripts is divided where they meet.
        while let Some(first) = word.chars().next() {
            let is_of_signs = is_unspaced_script(first);
            let length = word.find(|letter| is_unspaced_script(letter) != is_of_signs).unwrap_or(word.len());
            let (part, rest) = word.split_at(length);
            word = rest;
            if is_of_signs {
                push_bigrams(part, &mut terms);
            } else if part.len() <= MAX_TERM_LEN {
                terms.push(hash_term(part));
            }
        }
    }
    terms
}

/// Every sign, and every sign with its neighbour.
fn push_bigrams(signs: &str, terms: &mut Vec<TermHash>) {
    for (start, first) in signs.char_indices() {
        let end = start + first.len_utf8();
        terms.push(hash_term(&signs[start..end]));
        if let Some(second) = signs[end..].chars().next() {
            terms.push(hash_term(&signs[start..end + second.len_utf8()]));
        }
    }
}

/// Of thirty-two bits, since the index is made of them. That a word of a question has the same as another of the folder is
/// not to be expected, and would show a passage too many.
fn hash_term(word: &str) -> TermHash {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    // The upper half of a number fits into half of it.
    TermHash(u32::try_from(hasher.finish() >> 32).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{MAX_TERM_LEN, tokenize};

    #[test]
    fn k04_words_are_found_whatever_their_case_and_what_stands_between_them() {
        assert_eq!(tokenize("The anchor-rope, twice"), tokenize("the ANCHOR rope_twice"));
        assert_ne!(tokenize("anchor"), tokenize("anchors"));
        assert!(tokenize("--- ... !").is_empty());
        assert!(tokenize(&"x".repeat(MAX_TERM_LEN + 1)).is_empty());
    }

    #[test]
    fn k04_scripts_without_spaces_are_found_by_signs_and_pairs() {
        assert_eq!(tokenize("你好吗").len(), 5);
        assert!(tokenize("说你好吗").ends_with(&tokenize("你好吗")));
        assert_eq!(tokenize("v2版本"), [tokenize("v2"), tokenize("版本")].concat());
    }
}
