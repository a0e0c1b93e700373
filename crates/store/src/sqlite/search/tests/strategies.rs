//! Random texts and searches: few letters, so that words are within the typo distance, and every kind of character.

use capstan_tape::{EntryDraft, EntryKind};
use proptest::prelude::*;
use serde_json::{Value, json};

const SAMPLE_LETTERS: [char; 30] = [
    'a', 'b', 'c', 'd', 'A', 'Σ', 'σ', 'İ', 'é', '1', '2', '你', '好', '世', 'か', 'ก', 'า', '้', 'မ', 'र', '्', '한',
    '-', '.', '"', '*', '🐋', '\u{301}', '\u{e0ff}', '\0',
];

fn letter_strategy() -> impl Strategy<Value = char> {
    prop_oneof![6 => prop::sample::select(&SAMPLE_LETTERS[..4]), 2 => prop::sample::select(&SAMPLE_LETTERS[11..14]), 2 => prop::sample::select(&SAMPLE_LETTERS[..])]
}

/// Words, most of them in one script.
fn word_strategy() -> impl Strategy<Value = String> {
    let of = |letters: &'static [char], end| prop::collection::vec(prop::sample::select(letters), 1..end);
    let letters = prop_oneof![
        3 => of(&SAMPLE_LETTERS[..4], 12),
        3 => of(&SAMPLE_LETTERS[11..14], 12),
        1 => of(&SAMPLE_LETTERS[15..18], 8),
        5 => prop::collection::vec(letter_strategy(), 1..12),
        1 => prop::collection::vec(prop::sample::select(&SAMPLE_LETTERS[..4]), 60..80),
    ];
    letters.prop_map(String::from_iter)
}

/// Words with punctuation between them.
fn compound_strategy() -> impl Strategy<Value = String> {
    let letters = prop_oneof![
        4 => prop::sample::select(&SAMPLE_LETTERS[..4]),
        1 => prop::sample::select(&SAMPLE_LETTERS[9..14]),
    ];
    let part = prop::collection::vec(letters, 1..6).prop_map(String::from_iter);
    let separator = prop::sample::select(vec!["-", ".", "\u{301}", "..", "้"]);
    (prop::collection::vec(part, 1..4), separator).prop_map(|(parts, separator)| parts.join(separator))
}

fn text_strategy() -> impl Strategy<Value = String> {
    let word = prop_oneof![2 => word_strategy(), 1 => compound_strategy()];
    (prop::collection::vec(word, 0..6), prop::sample::select(vec![" ", "\u{3000}", "\n", ", "]))
        .prop_map(|(words, separator)| words.join(separator))
}

pub(super) fn draft_strategy() -> impl Strategy<Value = EntryDraft> {
    prop_oneof![
        4 => text_strategy().prop_map(|text| EntryDraft::new(EntryKind::Message, json!({"role": "user", "content": text}))),
        1 => (text_strategy(), any::<i32>()).prop_map(|(text, number)| EntryDraft::new(EntryKind::from("odd"), json!([text, number, null]))),
        1 => text_strategy().prop_map(|text| EntryDraft::new(EntryKind::Anchor, json!({"name": "ab", "state": {"a": text}}))),
    ]
}

/// Random search for an excerpt of a text with typos.
#[derive(Debug, Clone)]
pub(super) struct SearchSample {
    extra_words: String,
    /// Text, position and length of the excerpt; without a length, the next whole word with its punctuation.
    excerpt: Option<(usize, usize, Option<usize>)>,
    typos: Vec<(usize, char, u8)>,
}

pub(super) fn search_sample_strategy() -> impl Strategy<Value = SearchSample> {
    let two = (word_strategy(), word_strategy()).prop_map(|(a, b)| format!("{a} {b}"));
    let words = prop_oneof![3 => Just(String::new()), 1 => word_strategy(), 1 => compound_strategy(), 1 => two];
    let excerpt = prop::option::weighted(0.8, (any::<usize>(), any::<usize>(), prop::option::of(1..12_usize)));
    let typos = prop::collection::vec((any::<usize>(), letter_strategy(), 0..4_u8), 0..4);
    (words, excerpt, typos).prop_map(|(extra_words, excerpt, typos)| SearchSample { extra_words, excerpt, typos })
}

impl SearchSample {
    /// Text to search for in these payloads.
    pub(super) fn to_text(&self, payloads: &[Value]) -> String {
        let mut letters: Vec<char> = match self.excerpt {
            Some((which, from, length)) if !payloads.is_empty() => {
                let text = payloads[which % payloads.len()].to_string();
                let letters: Vec<char> = text.chars().filter(|c| !"{}[]:,\\".contains(*c)).collect();
                let rest = letters.iter().skip(from % letters.len().max(1)).copied();
                let is_separator = |c: &char| c.is_whitespace() || *c == '"';
                match length {
                    Some(length) => rest.take(length).collect(),
                    None => rest.skip_while(|c| !is_separator(c)).skip(1).take_while(|c| !is_separator(c)).collect(),
                }
            }
            _ => Vec::new(),
        };
        for (at, letter, kind) in &self.typos {
            let at = at % (letters.len() + 1);
            match kind {
                0 => letters.insert(at, *letter),
                1 if at < letters.len() => letters[at] = *letter,
                2 if at < letters.len() => drop(letters.remove(at)),
                3 if at + 1 < letters.len() => letters.swap(at, at + 1),
                _ => {}
            }
        }
        format!("{} {}", String::from_iter(letters), self.extra_words)
    }
}
