//! A search as an expression of the index. What it finds may be meant: the rule of the search decides.

mod together;

use capstan_tape::{Needle, Search};

use self::together::Together;
use super::terms::{INCOMPLETE, Piece, pieces, symbol};

/// How many words may stand for a needle. One that is a part of more says little, and each costs.
const MOST_WORDS: usize = 300;
/// How many needles, and parts of each, are asked for. To leave some out finds more, never less.
const MOST_PARTS: usize = 32;

/// The expression of a search, to be completed with the words of the index.
pub(super) struct Expression<'a> {
    needles: Vec<Alternatives<'a>>,
}

/// How a needle may be found: as a part of the text, as a word with typos, or as several that stand together.
struct Alternatives<'a> {
    needle: &'a Needle,
    /// The whole needle, part by part: all must be there.
    parts: Vec<Part<'a>>,
    /// Words that are near.
    near: Vec<String>,
    /// Signs, any group of which may be there: with so many typos one of the groups is whole.
    groups: Vec<Vec<String>>,
    /// The words of a needle with punctuation.
    together: Option<Together<'a>>,
}

enum Part<'a> {
    /// This term.
    Term(String),
    /// A word, or some part of it where the needle begins or ends within a word.
    Word { text: &'a str, may_begin_before: bool, may_end_after: bool, found: Vec<String> },
}

impl<'a> Expression<'a> {
    pub(super) fn of(search: &'a Search) -> Self {
        Self { needles: search.needles().iter().take(MOST_PARTS).map(Alternatives::of).collect() }
    }

    /// Offers a word of the index. Every one must be offered.
    pub(super) fn offer(&mut self, word: &str) {
        self.needles.iter_mut().for_each(|needle| needle.offer(word));
    }

    /// The expression; nothing when it would say nothing.
    pub(super) fn complete(&self) -> Option<String> {
        let needles: Vec<String> = self.needles.iter().filter_map(Alternatives::complete).collect();
        (!needles.is_empty()).then(|| needles.join(" AND "))
    }
}

impl<'a> Alternatives<'a> {
    fn of(needle: &'a Needle) -> Self {
        let all: Vec<Piece<'a>> = pieces(needle.as_str()).collect();
        let mut parts = Vec::new();
        for (at, piece) in all.iter().enumerate().take(MOST_PARTS) {
            parts.extend(match (*piece, at.checked_sub(1).map(|before| all[before])) {
                (Piece::Word(text), _) => {
                    let (may_begin_before, may_end_after) = (at == 0, at + 1 == all.len());
                    Some(Part::Word { text, may_begin_before, may_end_after, found: Vec::new() })
                }
                (Piece::Sign(sign), Some(Piece::Sign(before))) => Some(Part::Term(String::from_iter([before, sign]))),
                // Two signs are asked for as a pair.
                (Piece::Sign(_), _) if matches!(all.get(at + 1), Some(Piece::Sign(_))) => None,
                (Piece::Sign(sign), _) => Some(Part::Term(sign.into())),
                (Piece::Symbol(c), _) => Some(Part::Term(symbol(c).into())),
                (Piece::Gap, _) => None,
            });
        }
        let groups = if needle.typos() == 0 { Vec::new() } else { groups(needle.as_str(), needle.typos()) };
        Self { needle, parts, near: Vec::new(), groups, together: needle.compound().map(Together::of) }
    }

    fn offer(&mut self, word: &str) {
        for part in &mut self.parts {
            part.offer(word);
        }
        if self.near.len() <= MOST_WORDS && self.needle.is_near(word) {
            self.near.push(word.to_owned());
        }
        if let Some(together) = &mut self.together {
            together.offer(word);
        }
    }

    fn complete(&self) -> Option<String> {
        if self.near.len() > MOST_WORDS || self.together.as_ref().is_some_and(Together::says_nothing) {
            return None;
        }
        let parts: Vec<Vec<String>> = self.parts.iter().filter_map(Part::terms).collect();
        if parts.is_empty() {
            return None;
        }
        let mut alternatives = vec![term(&INCOMPLETE.to_string())];
        if parts.iter().all(|terms| !terms.is_empty()) {
            alternatives.push(all_of(parts.iter().map(|terms| any_of(terms.iter().map(|text| term(text))))));
        }
        alternatives.extend(self.near.iter().map(|word| term(word)));
        alternatives.extend(self.groups.iter().map(|group| signs(group)));
        alternatives.extend(self.together.as_ref().and_then(Together::complete));
        Some(any_of(alternatives))
    }
}

impl Part<'_> {
    fn offer(&mut self, word: &str) {
        let Self::Word { text, may_begin_before, may_end_after, found } = self else { return };
        let fits = match (*may_begin_before, *may_end_after) {
            (true, true) => word.contains(*text),
            (true, false) => word.ends_with(*text),
            (false, true) => word.starts_with(*text),
            (false, false) => word == *text,
        };
        if fits && found.len() <= MOST_WORDS {
            found.push(word.to_owned());
        }
    }

    /// Any of these must be there; nothing when they are too many to ask for.
    fn terms(&self) -> Option<Vec<String>> {
        match self {
            Self::Term(term) => Some(vec![term.clone()]),
            Self::Word { found, .. } => (found.len() <= MOST_WORDS).then(|| found.clone()),
        }
    }
}

/// The signs of a text in one group more than there may be typos; nothing where typos may have hit them all.
fn groups(text: &str, typos: usize) -> Vec<Vec<String>> {
    let sign = |piece: Piece<'_>| if let Piece::Sign(sign) = piece { Some(sign.to_string()) } else { None };
    let signs: Vec<String> = pieces(text).filter_map(sign).take(MOST_PARTS).collect();
    let count = typos + 1;
    if signs.len() < count {
        return Vec::new();
    }
    (0..count).map(|first| signs.iter().skip(first).step_by(count).cloned().collect()).collect()
}

/// All signs of a group.
fn signs(group: &[String]) -> String {
    all_of(group.iter().map(|sign| term(sign)))
}

/// A term has neither quotes nor anything else that the index would take for its own language.
fn term(text: &str) -> String {
    format!("\"{text}\"")
}

fn any_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" OR "))
}

fn all_of(terms: impl IntoIterator<Item = String>) -> String {
    format!("({})", terms.into_iter().collect::<Vec<_>>().join(" AND "))
}
