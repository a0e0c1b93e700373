//! A search as an expression of the index. What it finds may be meant: the rule of the search decides.

mod compound;

use capstan_tape::{SearchTerm, TextSearch};

use self::compound::CompoundAlternatives;
use super::terms::{INCOMPLETE_ENTRY_TERM, TextPiece, split_pieces, symbol_term};

/// How many words may stand for a needle. One that is a part of more says little, and each costs.
const MAX_MATCHING_WORDS: usize = 300;
/// How many needles, and parts of each, are asked for. To leave some out finds more, never less.
const MAX_SEARCH_TERM_PARTS: usize = 32;

/// The expression of a search, to be completed with the words of the index.
pub(super) struct MatchExpression<'a> {
    alternatives: Vec<SearchTermAlternatives<'a>>,
}

/// How a needle may be found: as a part of the text, as a word with typos, or as several that stand together.
struct SearchTermAlternatives<'a> {
    search_term: &'a SearchTerm,
    /// The whole needle, part by part: all must be there.
    parts: Vec<SearchTermPart<'a>>,
    /// Words that are near.
    near_words: Vec<String>,
    /// Signs, any group of which may be there: with so many typos one of the groups is whole.
    unspaced_groups: Vec<Vec<String>>,
    /// The words of a needle with punctuation.
    compound: Option<CompoundAlternatives<'a>>,
}

enum SearchTermPart<'a> {
    /// This term.
    Term(String),
    /// A word, or some part of it where the needle begins or ends within a word.
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

    /// Offers a word of the index. Every one must be offered.
    pub(super) fn offer_word(&mut self, word: &str) {
        self.alternatives.iter_mut().for_each(|needle| needle.offer_word(word));
    }

    /// The expression; nothing when it would say nothing.
    pub(super) fn build(&self) -> Option<String> {
        let needles: Vec<String> = self.alternatives.iter().filter_map(SearchTermAlternatives::build).collect();
        (!needles.is_empty()).then(|| needles.join(" AND "))
    }
}

impl<'a> SearchTermAlternatives<'a> {
    fn for_search_term(needle: &'a SearchTerm) -> Self {
        let all: Vec<TextPiece<'a>> = split_pieces(needle.as_str()).collect();
        let mut parts = Vec::new();
        for (at, piece) in all.iter().enumerate().take(MAX_SEARCH_TERM_PARTS) {
            parts.extend(match (*piece, at.checked_sub(1).map(|before| all[before])) {
                (TextPiece::Word(text), _) => {
                    let (may_begin_before, may_end_after) = (at == 0, at + 1 == all.len());
                    Some(SearchTermPart::Word { text, may_begin_before, may_end_after, matching_words: Vec::new() })
                }
                (TextPiece::UnspacedLetter(sign), Some(TextPiece::UnspacedLetter(before))) => {
                    Some(SearchTermPart::Term(String::from_iter([before, sign])))
                }
                // Two signs are asked for as a pair.
                (TextPiece::UnspacedLetter(_), _) if matches!(all.get(at + 1), Some(TextPiece::UnspacedLetter(_))) => {
                    None
                }
                (TextPiece::UnspacedLetter(sign), _) => Some(SearchTermPart::Term(sign.into())),
                (TextPiece::Symbol(c), _) => Some(SearchTermPart::Term(symbol_term(c).into())),
                (TextPiece::Whitespace, _) => None,
            });
        }
        let groups = if needle.max_typos() == 0 {
            Vec::new()
        } else {
            split_unspaced_groups(needle.as_str(), needle.max_typos())
        };
        Self {
            search_term: needle,
            parts,
            near_words: Vec::new(),
            unspaced_groups: groups,
            compound: needle.compound().map(CompoundAlternatives::for_compound),
        }
    }

    fn offer_word(&mut self, word: &str) {
        for part in &mut self.parts {
            part.offer_word(word);
        }
        if self.near_words.len() <= MAX_MATCHING_WORDS && self.search_term.matches_word(word) {
            self.near_words.push(word.to_owned());
        }
        if let Some(together) = &mut self.compound {
            together.offer_word(word);
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
        let Self::Word { text, may_begin_before, may_end_after, matching_words: found } = self else { return };
        let fits = match (*may_begin_before, *may_end_after) {
            (true, true) => word.contains(*text),
            (true, false) => word.ends_with(*text),
            (false, true) => word.starts_with(*text),
            (false, false) => word == *text,
        };
        if fits && found.len() <= MAX_MATCHING_WORDS {
            found.push(word.to_owned());
        }
    }

    /// Any of these must be there; nothing when they are too many to ask for.
    fn terms(&self) -> Option<Vec<String>> {
        match self {
            Self::Term(term) => Some(vec![term.clone()]),
            Self::Word { matching_words: found, .. } => (found.len() <= MAX_MATCHING_WORDS).then(|| found.clone()),
        }
    }
}

/// The signs of a text in one group more than there may be typos; nothing where typos may have hit them all.
fn split_unspaced_groups(text: &str, typos: usize) -> Vec<Vec<String>> {
    let sign =
        |piece: TextPiece<'_>| if let TextPiece::UnspacedLetter(sign) = piece { Some(sign.to_string()) } else { None };
    let signs: Vec<String> = split_pieces(text).filter_map(sign).take(MAX_SEARCH_TERM_PARTS).collect();
    let count = typos + 1;
    if signs.len() < count {
        return Vec::new();
    }
    (0..count).map(|first| signs.iter().skip(first).step_by(count).cloned().collect()).collect()
}

/// All signs of a group.
fn all_unspaced(group: &[String]) -> String {
    all_of(group.iter().map(|sign| quote_term(sign)))
}

/// A term has neither quotes nor anything else that the index would take for its own language.
fn quote_term(text: &str) -> String {
    format!("\"{text}\"")
}

fn any_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" OR "))
}

fn all_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" AND "))
}
