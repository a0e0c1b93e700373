//! What of a text stands in the index, so that whatever the rule of a search finds is found there first.
//!
//! - A word of a script that puts spaces between words is a term. A part of a word or a typo is looked up among all words.
//! - Scripts without spaces have no words to look up: each of their signs is a term, and so is each pair of neighbours.
//! - A word that mixes both is divided where they meet. With few signs it is a term as a whole, too: a typo in it might
//!   leave no other trace.
//! - Every other character is a term, but for white space.
//!
//! What would make the index large and help nobody is left out, and [`INCOMPLETE`] stands there instead: each search
//! looks at such an entry itself.

use std::collections::HashSet;

use capstan_tape::{is_unspaced_script, searchable_words};

/// The rules of this file and of the Unicode tables it is compiled with. Change the number with the rules.
pub(super) fn tokenizer_version() -> String {
    let (major, minor, update) = char::UNICODE_VERSION;
    format!("1, Unicode {major}.{minor}.{update}")
}

/// The term of entries that the index does not have in full.
pub(super) const INCOMPLETE_ENTRY_TERM: char = '\u{e0ff}';

/// The longest word that is a term. Longer ones are keys, pictures and other data in the clothes of text.
const MAX_INDEXED_WORD_CHARS: usize = 64;
/// How many terms an entry may have. One with more is a large file, or data.
const MAX_ENTRY_TERMS: usize = 10_000;
/// Words with up to this many signs among their letters are terms as a whole. A needle with so few signs that typos may
/// have hit them all (two), and a word with as many typos (two more), come to this.
const MAX_MIXED_WORD_UNSPACED: usize = 4;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextPiece<'a> {
    /// Letters and digits of scripts with spaces.
    Word(&'a str),
    /// A letter of a script without spaces.
    UnspacedLetter(char),
    /// Neither letter nor digit nor white space.
    Symbol(char),
    /// White space.
    Whitespace,
}

/// The parts of a text in lower case, one after the other.
pub(super) fn split_pieces(text: &str) -> impl Iterator<Item = TextPiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length =
            if is_letter(first) { rest.find(|c| !is_letter(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (piece, after) = rest.split_at(length);
        rest = after;
        Some(match first {
            _ if is_letter(first) => TextPiece::Word(piece),
            _ if first.is_alphanumeric() => TextPiece::UnspacedLetter(first),
            _ if first.is_whitespace() => TextPiece::Whitespace,
            _ => TextPiece::Symbol(first),
        })
    })
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() && !is_unspaced_script(c)
}

/// The term of a symbol. The tokenizer takes ASCII symbols for gaps, so they have stand-ins of private use.
pub(super) fn symbol_term(c: char) -> char {
    if c.is_ascii() { char::from_u32(0xe000 + u32::from(c)).unwrap_or(INCOMPLETE_ENTRY_TERM) } else { c }
}

/// The terms of an entry.
#[derive(Debug, Default)]
pub(super) struct EntryTerms {
    /// Those that are words.
    pub(super) words: HashSet<String>,
    /// Those that are not.
    other_terms: HashSet<String>,
}

impl EntryTerms {
    /// The terms of a text in lower case.
    pub(super) fn from_text(text: &str) -> Self {
        let mut terms = Self::default();
        if terms.collect_terms(text).is_none() {
            // As good as nothing is known of it then: it is looked at anyway.
            terms = Self::default();
            terms.other_terms.insert(INCOMPLETE_ENTRY_TERM.to_string());
        }
        terms
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() + self.other_terms.len()
    }

    /// All of them with spaces between, as the index takes them.
    pub(super) fn to_index_text(&self) -> String {
        let terms: Vec<&str> = self.words.iter().chain(&self.other_terms).map(String::as_str).collect();
        terms.join(" ")
    }

    /// Nothing when there are too many of them.
    fn collect_terms(&mut self, text: &str) -> Option<()> {
        let mut last_sign = None;
        for piece in split_pieces(text) {
            let pair = last_sign.take();
            match piece {
                TextPiece::Word(word) => self.add_word(word)?,
                TextPiece::Symbol(c) => self.add_other_term(String::from(symbol_term(c)))?,
                TextPiece::Whitespace => {}
                TextPiece::UnspacedLetter(sign) => {
                    self.add_other_term(String::from(sign))?;
                    if let Some(before) = pair {
                        self.add_other_term(String::from_iter([before, sign]))?;
                    }
                    last_sign = Some(sign);
                }
            }
        }
        for word in searchable_words(text) {
            let signs = word.chars().filter(|c| is_unspaced_script(*c)).take(MAX_MIXED_WORD_UNSPACED + 1).count();
            if (1..=MAX_MIXED_WORD_UNSPACED).contains(&signs) && word.contains(is_letter) {
                self.add_word(word)?;
            }
        }
        Some(())
    }

    fn add_word(&mut self, word: &str) -> Option<()> {
        // A character has at least one byte and at most four.
        if word.len() > MAX_INDEXED_WORD_CHARS && word.chars().count() > MAX_INDEXED_WORD_CHARS {
            return self.add_other_term(INCOMPLETE_ENTRY_TERM.to_string());
        }
        if !self.words.contains(word) {
            self.words.insert(word.to_owned());
        }
        (self.len() <= MAX_ENTRY_TERMS).then_some(())
    }

    fn add_other_term(&mut self, term: String) -> Option<()> {
        self.other_terms.insert(term);
        (self.len() <= MAX_ENTRY_TERMS).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryTerms, INCOMPLETE_ENTRY_TERM};

    fn sorted_terms(text: &str) -> Vec<String> {
        let mut terms: Vec<String> =
            EntryTerms::from_text(text).to_index_text().split(' ').map(str::to_owned).collect();
        terms.sort();
        terms
    }

    #[test]
    fn p10_words_signs_and_symbols_are_terms() {
        assert_eq!(sorted_terms("the rope, the ship"), ["rope", "ship", "the", "\u{e02c}"]);
        assert_eq!(sorted_terms("你好 世"), ["世", "你", "你好", "好"]);
        assert_eq!(sorted_terms("用rust写🐋"), ["rust", "写", "用", "用rust写", "🐋"]);
    }

    #[test]
    fn p10_data_that_looks_like_text_is_left_out() {
        assert_eq!(
            sorted_terms(&format!("key {}", "0f".repeat(33))),
            ["key".to_owned(), INCOMPLETE_ENTRY_TERM.to_string()]
        );
        let many: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
        assert_eq!(sorted_terms(&many.join(" ")), [INCOMPLETE_ENTRY_TERM.to_string()]);
    }
}
