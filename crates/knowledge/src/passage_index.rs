//! Full-text index of passages in a temporary SQLite database.
//!
//! # Ranking
//!
//! Passages are ranked by BM25 with the usual parameters and the inverse document frequency `ln(1 + (N - n + 0.5) / (n + 0.5))`,
//! which is positive for every word. The built-in `bm25()` of FTS5 uses `ln((N - n + 0.5) / (n + 0.5))` and counts words that
//! half of the passages have for almost nothing: in a small folder a passage with two words of a query would come after
//! one with a single rare word. Term frequencies are therefore read from the index with `fts5vocab`.
//!
//! # Storage
//!
//! The database has no name: SQLite keeps it in a file that is already deleted, private to this process, and holds a bounded
//! part of it in memory. It has no journal, so after an error it is dropped as a whole.

use std::collections::HashMap;

use capstan_hooks::contracts::KnowledgePassage;
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use crate::passages::split_passages;
use crate::tokenizer::TermList;

/// Maximum number of different terms of a query.
const MAX_QUERY_TERMS: usize = 64;
/// BM25 parameter k1: saturation of repeated terms.
const BM25_SATURATION: f64 = 1.2;
/// BM25 parameter b: weight of the passage length.
const BM25_LENGTH_WEIGHT: f64 = 0.75;

const INDEX_SCHEMA: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA cache_size = -4096;
    CREATE TABLE passages (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL, term_count INTEGER NOT NULL);
    CREATE INDEX passages_by_file ON passages (file);
    CREATE TABLE passage_texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
    CREATE VIRTUAL TABLE passage_terms USING fts5 (
        terms, content = '', contentless_delete = 1, tokenize = 'ascii'
    );
    CREATE VIRTUAL TABLE term_instances USING fts5vocab (passage_terms, instance);
";

/// Full-text index of the passages of files.
pub(crate) struct PassageIndex {
    database: Connection,
    last_file: FileNumber,
    totals: PassageTotals,
}

/// Number of a file in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileNumber(i64);

/// Number of passages and of their terms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassageTotals {
    passages: u64,
    terms: u64,
}

/// Passage that has terms of a query.
struct PassageHit {
    passage: i64,
    file: FileNumber,
    score: f64,
}

impl PassageIndex {
    pub(crate) fn open() -> Result<Self> {
        let database = Connection::open("")?;
        database.execute_batch(INDEX_SCHEMA)?;
        Ok(Self { database, last_file: FileNumber(0), totals: PassageTotals::default() })
    }

    /// Runs changes of the index in one transaction. After an error the index must not be used any more.
    pub(crate) fn update<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.database.execute_batch("BEGIN")?;
        let done = change(self)?;
        self.database.execute_batch("COMMIT")?;
        Ok(done)
    }

    /// Adds the passages of a file. The words of its name count for each of them.
    pub(crate) fn add_file(&mut self, name: &str, text: &str) -> Result<(FileNumber, PassageTotals)> {
        self.last_file.0 += 1;
        let name_terms = TermList::tokenize(name);
        let mut totals = PassageTotals::default();
        let mut add_passage =
            self.database.prepare_cached("INSERT INTO passages (file, line, term_count) VALUES (?1, ?2, ?3)")?;
        let mut add_text = self.database.prepare_cached("INSERT INTO passage_texts (id, text) VALUES (?1, ?2)")?;
        let mut add_terms = self.database.prepare_cached("INSERT INTO passage_terms (rowid, terms) VALUES (?1, ?2)")?;
        for span in split_passages(text) {
            let passage = text[span.bytes].trim_end();
            let terms = TermList::tokenize(passage);
            let line = i64::try_from(span.line).unwrap_or(i64::MAX);
            let id = add_passage.insert(params![self.last_file.0, line, terms.count()])?;
            add_text.insert(params![id, passage])?;
            add_terms.insert(params![id, format!("{} {}", terms.as_str(), name_terms.as_str())])?;
            totals.passages += 1;
            totals.terms += u64::from(terms.count());
        }
        self.totals.passages += totals.passages;
        self.totals.terms += totals.terms;
        Ok((self.last_file, totals))
    }

    /// Removes the passages of a file, with the totals that [`Self::add_file`] returned for it.
    pub(crate) fn remove_file(&mut self, file: FileNumber, totals: PassageTotals) -> Result<()> {
        for delete in [
            "DELETE FROM passage_terms WHERE rowid IN (SELECT id FROM passages WHERE file = ?1)",
            "DELETE FROM passage_texts WHERE id IN (SELECT id FROM passages WHERE file = ?1)",
            "DELETE FROM passages WHERE file = ?1",
        ] {
            self.database.prepare_cached(delete)?.execute([file.0])?;
        }
        self.totals.passages = self.totals.passages.saturating_sub(totals.passages);
        self.totals.terms = self.totals.terms.saturating_sub(totals.terms);
        Ok(())
    }

    /// Passages of `files` that have terms of a query, the best first, without the first `offset` of them. Passages with
    /// equal scores are in the order of `files`, and within a file in the order of the text.
    pub(crate) fn rank<'a>(
        &self,
        files: impl Iterator<Item = (FileNumber, &'a str)>,
        query: &str,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<KnowledgePassage>> {
        let names: HashMap<FileNumber, (usize, &str)> =
            files.enumerate().map(|(order, (file, name))| (file, (order, name))).collect();
        let order = |hit: &PassageHit| names.get(&hit.file).map(|(order, _)| *order);
        let mut hits = self.score(query)?;
        hits.retain(|hit| names.contains_key(&hit.file));
        hits.sort_unstable_by(|one, other| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then_with(|| order(one).cmp(&order(other))).then_with(|| one.passage.cmp(&other.passage))
        });
        hits.iter()
            .skip(offset)
            .take(limit)
            .map(|hit| {
                let source = names.get(&hit.file).map_or("", |(_, name)| name);
                self.load_passage(hit, source)
            })
            .filter_map(Result::transpose)
            .collect()
    }

    fn load_passage(&self, hit: &PassageHit, source: &str) -> Result<Option<KnowledgePassage>> {
        let query = "SELECT line, text FROM passages JOIN passage_texts USING (id) WHERE id = ?1";
        let mut query = self.database.prepare_cached(query)?;
        query
            .query_row([hit.passage], |row| {
                let line: i64 = row.get(0)?;
                let line = Some(u64::try_from(line).unwrap_or_default());
                Ok(KnowledgePassage { source: source.to_owned(), line, text: row.get(1)?, score: hit.score })
            })
            .optional()
    }

    /// Scores all passages that have at least one term of a query.
    fn score(&self, query: &str) -> Result<Vec<PassageHit>> {
        let query = TermList::tokenize(query);
        let mut terms: Vec<&str> = Vec::new();
        for term in query.iter() {
            if terms.len() < MAX_QUERY_TERMS && !terms.contains(&term) {
                terms.push(term);
            }
        }
        let passage_count = to_f64(self.totals.passages);
        let average_length = (to_f64(self.totals.terms) / passage_count.max(1.0)).max(1.0);
        let mut hits: HashMap<i64, PassageHit> = HashMap::new();
        for term in terms {
            let frequencies = self.term_frequencies(term)?;
            let weight = inverse_document_frequency(to_f64(frequencies.len() as u64), passage_count);
            for TermFrequency { passage, file, length, count } in frequencies {
                let relative = f64::from(length) / average_length;
                let drag = BM25_SATURATION * (1.0 - BM25_LENGTH_WEIGHT + BM25_LENGTH_WEIGHT * relative);
                let count = f64::from(count);
                let score = weight * count * (BM25_SATURATION + 1.0) / (count + drag);
                hits.entry(passage).or_insert(PassageHit { passage, file, score: 0.0 }).score += score;
            }
        }
        Ok(hits.into_values().collect())
    }

    fn term_frequencies(&self, term: &str) -> Result<Vec<TermFrequency>> {
        let query = "SELECT id, file, term_count, count(*) FROM term_instances JOIN passages ON id = doc WHERE term = ?1 GROUP BY id";
        let mut query = self.database.prepare_cached(query)?;
        let rows = query.query_map([term], |row| {
            let (passage, file) = (row.get(0)?, FileNumber(row.get(1)?));
            Ok(TermFrequency { passage, file, length: row.get(2)?, count: row.get(3)? })
        })?;
        rows.collect()
    }
}

/// Occurrences of a term in a passage of `length` terms.
struct TermFrequency {
    passage: i64,
    file: FileNumber,
    length: u32,
    count: u32,
}

/// Weight of a term that `having` of all passages have; always positive.
fn inverse_document_frequency(having: f64, total: f64) -> f64 {
    ((total - having + 0.5) / (having + 0.5)).ln_1p()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a folder are far below 2^52")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::KnowledgePassage;

    use super::{FileNumber, PassageIndex, PassageTotals};

    /// Index of some files.
    struct IndexedFiles {
        index: PassageIndex,
        files: Vec<(FileNumber, PassageTotals, String)>,
    }

    impl IndexedFiles {
        fn new(files: &[(&str, &str)]) -> Self {
            let mut index = PassageIndex::open().unwrap();
            let mut files = files.to_vec();
            files.sort_unstable();
            let files = files.iter().map(|(name, text)| {
                let (file, totals) = index.add_file(name, text).unwrap();
                (file, totals, (*name).to_owned())
            });
            let files = files.collect();
            Self { index, files }
        }

        fn rank(&self, query: &str, offset: usize, limit: usize) -> Vec<KnowledgePassage> {
            let names = self.files.iter().map(|(file, _, name)| (*file, name.as_str()));
            self.index.rank(names, query, offset, limit).unwrap()
        }

        fn sources(&self, query: &str) -> Vec<String> {
            self.rank(query, 0, 10).into_iter().map(|passage| passage.source).collect()
        }
    }

    #[test]
    fn g11_passage_with_more_of_the_query_comes_first() {
        let files = IndexedFiles::new(&[
            ("a.md", "the rope of the ship"),
            ("b.md", "the capstan winds the anchor rope"),
            ("c.md", "nothing about it"),
        ]);
        assert_eq!(files.sources("Anchor rope?"), ["b.md", "a.md"]);
        assert_eq!(files.sources("sail"), Vec::<String>::new());
        assert_eq!(files.sources("?"), Vec::<String>::new());
        assert_eq!(IndexedFiles::new(&[]).sources("rope"), Vec::<String>::new());
    }

    #[test]
    fn g11_a_rare_word_counts_more_than_a_common_one() {
        let files =
            [("a.md", "ship ship ship"), ("b.md", "a ship"), ("c.md", "a ship"), ("d.md", "a bosun, so to say")];
        assert_eq!(IndexedFiles::new(&files).sources("ship bosun")[0], "d.md");
    }

    #[test]
    fn g11_a_file_is_found_by_its_name_and_equal_ones_by_their_order() {
        let files = IndexedFiles::new(&[("guide/backup.md", "Copy it."), ("z.md", "one rope"), ("b.md", "one rope")]);
        assert_eq!(files.sources("backup"), ["guide/backup.md"]);
        assert_eq!(files.sources("rope"), ["b.md", "z.md"]);
    }

    #[test]
    fn g11_parts_of_an_answer_are_its_whole() {
        let parts: Vec<String> = (0..30).map(|n| format!("# Part {n}\nrope {}\n", "and more ".repeat(n))).collect();
        let files = IndexedFiles::new(&[("a.md", &parts.concat())]);
        let whole = files.rank("rope", 0, 100);
        assert_eq!(whole.len(), 30);
        let parts: Vec<_> = (0..4).flat_map(|part| files.rank("rope", part * 10, 10)).collect();
        assert_eq!(parts, whole);
        assert!(whole.is_sorted_by(|a, b| a.score >= b.score));
    }

    #[test]
    fn g11_a_removed_file_counts_for_nothing() {
        let mut files = IndexedFiles::new(&[("a.md", "one rope"), ("b.md", "one rope and a sail")]);
        let (file, totals, _) = files.files.remove(1);
        files.index.update(|index| index.remove_file(file, totals)).unwrap();
        let alone = IndexedFiles::new(&[("a.md", "one rope")]);
        assert_eq!(
            files.rank("rope sail", 0, 10),
            alone.rank("rope sail", 0, 10),
            "scores as if it had never been there"
        );
    }
}
