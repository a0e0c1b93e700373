//! The full text of a folder in memory, and what of it fits a question best.

use capstan_hooks::contracts::KnowledgePassage;

use super::passages::split_passages;
use super::tokenizer::{TermHash, tokenize};

/// How many different words of a question are looked for.
const MAX_QUERY_TERMS: usize = 64;
/// How soon a word that occurs again and again counts no more, and how much long passages are at a disadvantage: the
/// usual values of BM25.
const BM25_SATURATION: f64 = 1.2;
const BM25_LENGTH_WEIGHT: f64 = 0.75;

/// The text of one file.
#[derive(Debug, Default)]
pub(super) struct IndexedDocument {
    passages: Vec<IndexedPassage>,
}

#[derive(Debug)]
struct IndexedPassage {
    line: u64,
    text: Box<str>,
    /// How many terms it has.
    term_count: u32,
    /// How often it has each, in order.
    term_counts: Box<[(TermHash, u32)]>,
}

impl IndexedDocument {
    /// A file of this name with this text. It is found by the words of its name, too.
    pub(super) fn new(name: &str, text: &str) -> Self {
        let name = tokenize(name);
        let passage = |span: super::passages::PassageSpan| {
            let text = text[span.bytes].trim_end();
            let own = tokenize(text);
            let length = u32::try_from(own.len()).unwrap_or(u32::MAX);
            let mut all = own;
            all.extend(&name);
            all.sort_unstable();
            let counts = all.chunk_by(|a, b| a == b);
            let counts = counts.map(|same| (same[0], u32::try_from(same.len()).unwrap_or(u32::MAX))).collect();
            IndexedPassage { line: span.line, text: text.into(), term_count: length, term_counts: counts }
        };
        Self { passages: split_passages(text).into_iter().map(passage).collect() }
    }
}

impl IndexedPassage {
    fn count_term(&self, term: TermHash) -> u32 {
        self.term_counts.binary_search_by_key(&term, |(known, _)| *known).map_or(0, |place| self.term_counts[place].1)
    }
}

/// The passages that have words of the question, the best first: rare words count more than common ones. Of equal ones
/// the first file goes first.
pub(super) fn rank_passages(
    documents: &[(&str, &IndexedDocument)],
    question: &str,
    skip: usize,
    take: usize,
) -> Vec<KnowledgePassage> {
    let mut asked = Vec::new();
    for term in tokenize(question) {
        if asked.len() < MAX_QUERY_TERMS && !asked.contains(&term) {
            asked.push(term);
        }
    }
    let all = || documents.iter().flat_map(|(name, document)| document.passages.iter().map(move |one| (name, one)));
    let (mut total, mut length, mut having) = (0_u32, 0.0, vec![0_u32; asked.len()]);
    for (_, passage) in all() {
        total += 1;
        length += f64::from(passage.term_count);
        for (term, having) in asked.iter().zip(&mut having) {
            *having += u32::from(passage.count_term(*term) > 0);
        }
    }
    let average = (length / f64::from(total.max(1))).max(1.0);
    let weights: Vec<f64> =
        having.iter().map(|having| inverse_document_frequency(f64::from(*having), f64::from(total))).collect();
    let score = |passage: &IndexedPassage| {
        let relative = f64::from(passage.term_count) / average;
        let drag = BM25_SATURATION * (1.0 - BM25_LENGTH_WEIGHT + BM25_LENGTH_WEIGHT * relative);
        let counts = asked.iter().map(|term| f64::from(passage.count_term(*term)));
        counts
            .zip(&weights)
            .map(|(count, weight)| weight * count * (BM25_SATURATION + 1.0) / (count + drag))
            .sum::<f64>()
    };
    let scored = all().map(|(name, passage)| (score(passage), name, passage));
    let mut found: Vec<_> = scored.filter(|(score, ..)| *score > 0.0).collect();
    // It keeps the order of those that are equal.
    found.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let passage = |(score, name, passage): (f64, &&str, &IndexedPassage)| KnowledgePassage {
        source: (*name).to_owned(),
        line: Some(passage.line),
        text: passage.text.to_string(),
        score,
    };
    found.into_iter().skip(skip).take(take).map(passage).collect()
}

/// How much a word counts that so many of all passages have; always more than nothing.
fn inverse_document_frequency(having: f64, total: f64) -> f64 {
    ((total - having + 0.5) / (having + 0.5)).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::{IndexedDocument, rank_passages};

    /// The files that answer a question, the best first.
    fn ranked_files(files: &[(&str, &str)], question: &str) -> Vec<String> {
        let mut documents: Vec<_> =
            files.iter().map(|(name, text)| (*name, IndexedDocument::new(name, text))).collect();
        documents.sort_by_key(|(name, _)| *name);
        let documents: Vec<(&str, &IndexedDocument)> = documents.iter().map(|(name, one)| (*name, one)).collect();
        rank_passages(&documents, question, 0, 10).into_iter().map(|passage| passage.source).collect()
    }

    #[test]
    fn k04_what_has_more_of_the_question_comes_first() {
        let files = [
            ("a.md", "the rope of the ship"),
            ("b.md", "the capstan winds the anchor rope"),
            ("c.md", "nothing about it"),
        ];
        assert_eq!(ranked_files(&files, "Anchor rope?"), ["b.md", "a.md"]);
        assert_eq!(ranked_files(&files, "sail"), Vec::<String>::new());
        assert_eq!(ranked_files(&files, "?"), Vec::<String>::new());
        assert_eq!(ranked_files(&[], "rope"), Vec::<String>::new());
    }

    #[test]
    fn k04_a_rare_word_counts_more_than_a_common_one() {
        let files =
            [("a.md", "ship ship ship"), ("b.md", "a ship"), ("c.md", "a ship"), ("d.md", "a bosun, so to say")];
        assert_eq!(ranked_files(&files, "ship bosun")[0], "d.md");
    }

    #[test]
    fn k04_a_file_is_found_by_its_name_and_equal_ones_by_their_order() {
        let files = [("guide/backup.md", "Copy it."), ("z.md", "one rope"), ("b.md", "one rope")];
        assert_eq!(ranked_files(&files, "backup"), ["guide/backup.md"]);
        assert_eq!(ranked_files(&files, "rope"), ["b.md", "z.md"]);
    }

    #[test]
    fn k04_parts_of_an_answer_are_its_whole() {
        let parts: Vec<String> = (0..30).map(|n| format!("# Part {n}\nrope {}\n", "and more ".repeat(n))).collect();
        let text = parts.concat();
        let document = IndexedDocument::new("a.md", &text);
        let documents = [("a.md", &document)];
        let whole = rank_passages(&documents, "rope", 0, 100);
        assert_eq!(whole.len(), 30);
        let parts: Vec<_> = (0..4).flat_map(|part| rank_passages(&documents, "rope", part * 10, 10)).collect();
        assert_eq!(parts, whole);
        assert!(whole.is_sorted_by(|a, b| a.score >= b.score));
    }
}
