//! Search terms of a text. The index must return every entry that [`TextSearch`](capstan_tape::TextSearch) matches.
//!
//! # Rules
//!
//! - A word of a script with spaces between words is a term. A part of a word or a typo is looked up among all words.
//! - Scripts without spaces have no words to look up: each of their letters is a term, and so is each pair of adjacent
//!   letters.
//! - A word that mixes both is split where they meet. With few unspaced letters it is also a term as a whole, because a
//!   typo might leave no other term unchanged.
//! - Every other character except white space is a term.
//!
//! Terms that would make the index large without helping searches are omitted and replaced by
//! [`INCOMPLETE_ENTRY_TERM`]: each search examines such an entry itself.

use std::collections::HashSet;

use capstan_tape::{is_unspaced_script, searchable_words};

/// Version of these rules and of the Unicode tables that they use. Increment the number when the rules change.
pub(super) fn tokenizer_version() -> String {
    let (major, minor, update) = char::UNICODE_VERSION;
    format!("1, Unicode {major}.{minor}.{update}")
}

/// Term of entries that are not completely indexed.
pub(super) const INCOMPLETE_ENTRY_TERM: char = '\u{e0ff}';

/// Maximum length of a word that is a term. Longer ones are keys, images and other data encoded as text.
const MAX_INDEXED_WORD_CHARS: usize = 64;
/// Maximum number of terms of an entry. An entry with more is a large file or data.
const MAX_ENTRY_TERMS: usize = 10_000;
/// Maximum number of unspaced letters in a mixed word that is a term as a whole. A search term with so few unspaced
/// letters that typos may affect all of them has two, and a word may differ from it by two more.
const MAX_MIXED_WORD_UNSPACED: usize = 4;

/// Piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextPiece<'a> {
    /// Letters and digits of scripts with spaces.
    Word(&'a str),
    /// Letter of a script without spaces.
    UnspacedLetter(char),
    /// Character that is neither letter nor digit nor white space.
    Symbol(char),
    /// White space.
    Whitespace,
}

/// Splits a text in lower case into its pieces.
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

/// Term of a symbol. The tokenizer of FTS5 treats ASCII symbols as separators, so that they are mapped to private-use
/// characters.
pub(super) fn symbol_term(c: char) -> char {
    if c.is_ascii() { char::from_u32(0xe000 + u32::from(c)).unwrap_or(INCOMPLETE_ENTRY_TERM) } else { c }
}

/// Terms of an entry.
#[derive(Debug, Default)]
pub(super) struct EntryTerms {
    /// Terms that are words.
    pub(super) words: HashSet<String>,
    /// All other terms.
    other_terms: HashSet<String>,
}

impl EntryTerms {
    /// Collects the terms of a text in lower case.
    pub(super) fn from_text(text: &str) -> Self {
        let mut terms = Self::default();
        if terms.collect_terms(text).is_none() {
            // Every search examines the entry itself then.
            terms = Self::default();
            terms.other_terms.insert(INCOMPLETE_ENTRY_TERM.to_string());
        }
        terms
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() + self.other_terms.len()
    }

    /// All terms joined with spaces, as the index expects them.
    pub(super) fn to_index_text(&self) -> String {
        let terms: Vec<&str> = self.words.iter().chain(&self.other_terms).map(String::as_str).collect();
        terms.join(" ")
    }

    /// Collects the terms of a text; `None` if there are too many.
    fn collect_terms(&mut self, text: &str) -> Option<()> {
        let mut last_letter = None;
        for piece in split_pieces(text) {
            let previous = last_letter.take();
            match piece {
                TextPiece::Word(word) => self.add_word(word)?,
                TextPiece::Symbol(c) => self.add_other_term(String::from(symbol_term(c)))?,
                TextPiece::Whitespace => {}
                TextPiece::UnspacedLetter(letter) => {
                    self.add_other_term(String::from(letter))?;
                    if let Some(previous) = previous {
                        self.add_other_term(String::from_iter([previous, letter]))?;
                    }
                    last_letter = Some(letter);
                }
            }
        }
        for word in searchable_words(text) {
            let unspaced = word.chars().filter(|c| is_unspaced_script(*c)).take(MAX_MIXED_WORD_UNSPACED + 1).count();
            if (1..=MAX_MIXED_WORD_UNSPACED).contains(&unspaced) && word.contains(is_letter) {
                self.add_word(word)?;
            }
        }
        Some(())
    }

    fn add_word(&mut self, word: &str) -> Option<()> {
        // A short byte length rules out a long word without counting characters.
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
    fn p10_words_unspaced_letters_and_symbols_are_terms() {
        assert_eq!(sorted_terms("the rope, the ship"), ["rope", "ship", "the", "\u{e02c}"]);
        assert_eq!(sorted_terms("你好 世"), ["世", "你", "你好", "好"]);
        assert_eq!(sorted_terms("用rust写🐋"), ["rust", "写", "用", "用rust写", "🐋"]);
    }

    #[test]
    fn p10_data_encoded_as_text_is_not_indexed() {
        assert_eq!(
            sorted_terms(&format!("key {}", "0f".repeat(33))),
            ["key".to_owned(), INCOMPLETE_ENTRY_TERM.to_string()]
        );
        let many: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
        assert_eq!(sorted_terms(&many.join(" ")), [INCOMPLETE_ENTRY_TERM.to_string()]);
    }
}
