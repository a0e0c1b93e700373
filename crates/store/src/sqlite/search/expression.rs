//! Search as an FTS5 expression. The rows that match it are candidates, a superset of the matches.

mod compound;

use capstan_tape::{SearchTerm, TextSearch};

use self::compound::CompoundAlternatives;
use super::terms::{INCOMPLETE_ENTRY_TERM, TextPiece, split_pieces, symbol_term};

/// Maximum number of indexed words that a search term may match. A term that matches more is not selective, and each
/// word has a cost.
const MAX_MATCHING_WORDS: usize = 300;
/// Maximum number of search terms, and of parts of each, in an expression. Omitting some adds candidates and loses
/// none.
const MAX_SEARCH_TERM_PARTS: usize = 32;

/// Expression of a search, to be completed with the words of the index.
pub(super) struct MatchExpression<'a> {
    alternatives: Vec<SearchTermAlternatives<'a>>,
}

/// Alternatives for matching a search term: as a part of the text, as a word with typos, or as a compound.
struct SearchTermAlternatives<'a> {
    search_term: &'a SearchTerm,
    /// Parts of the exact search term, all of which must occur.
    parts: Vec<SearchTermPart<'a>>,
    /// Indexed words within the typo distance.
    near_words: Vec<String>,
    /// Groups of unspaced letters, one more than the typos that are allowed, so that typos leave at least one group
    /// intact.
    unspaced_groups: Vec<Vec<String>>,
    /// Words of a search term with punctuation.
    compound: Option<CompoundAlternatives<'a>>,
}

enum SearchTermPart<'a> {
    /// Exact term.
    Term(String),
    /// Word, or part of a word if the search term may begin or end within one.
    Word { text: &'a str, may_begin_before: bool, may_end_after: bool, matching_words: Vec<String> },
}

impl<'a> MatchExpression<'a> {
    pub(super) fn for_search(search: &'a TextSearch) -> Self {
        Self {
            alternatives: search
                .terms()
                .iter()
                .take(MAX_SEARCH_TERM_PARTS)
                .map(SearchTermAlternatives::for_search_term)
                .collect(),
        }
    }

    /// Adds a word of the index where it matches. Must be called with every word of the index.
    pub(super) fn offer_word(&mut self, word: &str) {
        self.alternatives.iter_mut().for_each(|alternatives| alternatives.offer_word(word));
    }

    /// Builds the expression; `None` if it would match every row.
    pub(super) fn build(&self) -> Option<String> {
        let expressions: Vec<String> = self.alternatives.iter().filter_map(SearchTermAlternatives::build).collect();
        (!expressions.is_empty()).then(|| expressions.join(" AND "))
    }
}

impl<'a> SearchTermAlternatives<'a> {
    fn for_search_term(search_term: &'a SearchTerm) -> Self {
        let pieces: Vec<TextPiece<'a>> = split_pieces(search_term.as_str()).collect();
        let mut parts = Vec::new();
        for (index, piece) in pieces.iter().enumerate().take(MAX_SEARCH_TERM_PARTS) {
            let (previous, next) = (index.checked_sub(1).map(|previous| pieces[previous]), pieces.get(index + 1));
            parts.extend(match (*piece, previous) {
                (TextPiece::Word(text), _) => {
                    let (may_begin_before, may_end_after) = (previous.is_none(), next.is_none());
                    Some(SearchTermPart::Word { text, may_begin_before, may_end_after, matching_words: Vec::new() })
                }
                (TextPiece::UnspacedLetter(letter), Some(TextPiece::UnspacedLetter(previous))) => {
                    Some(SearchTermPart::Term(String::from_iter([previous, letter])))
                }
                // The pair with the next letter covers this one.
                (TextPiece::UnspacedLetter(_), _) if matches!(next, Some(TextPiece::UnspacedLetter(_))) => None,
                (TextPiece::UnspacedLetter(letter), _) => Some(SearchTermPart::Term(letter.into())),
                (TextPiece::Symbol(c), _) => Some(SearchTermPart::Term(symbol_term(c).into())),
                (TextPiece::Whitespace, _) => None,
            });
        }
        let unspaced_groups = if search_term.max_typos() == 0 {
            Vec::new()
        } else {
            split_unspaced_groups(search_term.as_str(), search_term.max_typos())
        };
        Self {
            search_term,
            parts,
            near_words: Vec::new(),
            unspaced_groups,
            compound: search_term.compound().map(CompoundAlternatives::for_compound),
        }
    }

    fn offer_word(&mut self, word: &str) {
        for part in &mut self.parts {
            part.offer_word(word);
        }
        if self.near_words.len() <= MAX_MATCHING_WORDS && self.search_term.matches_word(word) {
            self.near_words.push(word.to_owned());
        }
        if let Some(compound) = &mut self.compound {
            compound.offer_word(word);
        }
    }

    fn build(&self) -> Option<String> {
        if self.near_words.len() > MAX_MATCHING_WORDS
            || self.compound.as_ref().is_some_and(CompoundAlternatives::is_unselective)
        {
            return None;
        }
        let parts: Vec<Vec<String>> = self.parts.iter().filter_map(SearchTermPart::terms).collect();
        if parts.is_empty() {
            return None;
        }
        let mut alternatives = vec![quote_term(&INCOMPLETE_ENTRY_TERM.to_string())];
        if parts.iter().all(|terms| !terms.is_empty()) {
            alternatives.push(all_of(parts.iter().map(|terms| any_of(terms.iter().map(|text| quote_term(text))))));
        }
        alternatives.extend(self.near_words.iter().map(|word| quote_term(word)));
        alternatives.extend(self.unspaced_groups.iter().map(|group| all_unspaced(group)));
        alternatives.extend(self.compound.as_ref().and_then(CompoundAlternatives::build));
        Some(any_of(alternatives))
    }
}

impl SearchTermPart<'_> {
    fn offer_word(&mut self, word: &str) {
        let Self::Word { text, may_begin_before, may_end_after, matching_words } = self else { return };
        let is_match = match (*may_begin_before, *may_end_after) {
            (true, true) => word.contains(*text),
            (true, false) => word.ends_with(*text),
            (false, true) => word.starts_with(*text),
            (false, false) => word == *text,
        };
        if is_match && matching_words.len() <= MAX_MATCHING_WORDS {
            matching_words.push(word.to_owned());
        }
    }

    /// Terms of which at least one must occur; `None` if there are too many.
    fn terms(&self) -> Option<Vec<String>> {
        match self {
            Self::Term(term) => Some(vec![term.clone()]),
            Self::Word { matching_words, .. } => {
                (matching_words.len() <= MAX_MATCHING_WORDS).then(|| matching_words.clone())
            }
        }
    }
}

/// Splits the unspaced letters of a text into one group more than the typos that are allowed. Empty if typos may affect
/// all letters.
fn split_unspaced_groups(text: &str, max_typos: usize) -> Vec<Vec<String>> {
    let unspaced_letter = |piece: TextPiece<'_>| match piece {
        TextPiece::UnspacedLetter(letter) => Some(letter.to_string()),
        _ => None,
    };
    let letters: Vec<String> = split_pieces(text).filter_map(unspaced_letter).take(MAX_SEARCH_TERM_PARTS).collect();
    let count = max_typos + 1;
    if letters.len() < count {
        return Vec::new();
    }
    (0..count).map(|first| letters.iter().skip(first).step_by(count).cloned().collect()).collect()
}

/// Expression for all letters of a group.
fn all_unspaced(group: &[String]) -> String {
    all_of(group.iter().map(|letter| quote_term(letter)))
}

/// Quotes a term for FTS5. Terms contain no quotes.
fn quote_term(text: &str) -> String {
    format!("\"{text}\"")
}

fn any_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" OR "))
}

fn all_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" AND "))
}
