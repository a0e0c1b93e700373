//! Index search against a scan of all entries: both find the same entries in the same order.

mod strategies;

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{
    Batch, DateRange, Entry, EntryDate, EntryDraft, EntryKind, EntryOrder, Fact, JournalStore as _, MemoryStore,
    NewTape, Query, SearchScan, Store, TapeRepository, TapeSlice, TextSearch,
};
use proptest::prelude::*;
use rusqlite::{Connection, params_from_iter};
use serde_json::{Value, json};
use strategies::{SearchSample, draft_strategy, search_sample_strategy};
use tempfile::TempDir;

use super::super::SqliteStore;
use super::super::schema::MIGRATIONS;
use super::super::slice_query::candidates_query;
use super::{CandidateRows, SearchEngine};

/// Opens a store that uses its index for more entries than the threshold.
fn open_store(directory: &Path, scan_threshold: usize) -> SqliteStore {
    let search_engine = SearchEngine { scan_threshold, chunk_entries: 7, ..SearchEngine::default() };
    SqliteStore { search_engine, ..SqliteStore::open(directory.join("capstan.db")).unwrap() }
}

fn temp_directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn name(text: &str) -> TapeName {
    TapeName::parse(text).unwrap()
}

fn append_batch(tape: &TapeName, drafts: impl IntoIterator<Item = EntryDraft>) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

fn user_draft(text: &str) -> EntryDraft {
    EntryDraft::new(EntryKind::Message, json!({"role": "user", "content": text}))
}

fn ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.0).collect()
}

fn block_on<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}

async fn search_ids(store: &SqliteStore, tape: &TapeName, text: &str) -> Vec<u64> {
    ids(&store.search(tape, &TapeSlice::all(), &TextSearch::new(text)).await.unwrap())
}

/// Searches by scanning all entries.
async fn scan_all(store: &dyn Store, tape: &TapeName, slice: &TapeSlice, search: &TextSearch) -> Vec<Entry> {
    let mut scan = SearchScan::new(search, slice);
    while let Some(page) = scan.next_page() {
        scan.push_page(store.read(tape, &page).await.unwrap());
    }
    scan.matches()
}

fn query_number(directory: &TempDir, sql: &str) -> i64 {
    let connection = Connection::open(directory.path().join("capstan.db")).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

const INDEXED_ENTRIES_SQL: &str = "SELECT coalesce(sum(up_to), 0) FROM search_tapes";
const DRAFT_DATES: [&str; 4] =
    ["2020-01-01T00:00:00Z", "2020-01-01T23:59:59.999999Z", "2020-01-02T00:30:00+01:00", "someday"];

fn slice_strategy() -> impl Strategy<Value = TapeSlice> {
    let id = || prop::option::weighted(0.3, (0..40_u64).prop_map(EntryId));
    let kinds = prop::sample::subsequence(vec![EntryKind::Message, EntryKind::Anchor, EntryKind::from("odd")], 0..3);
    let date_range = prop::option::weighted(0.2, Just(DateRange::between("2020-01-01", "2020-01-01").unwrap()));
    let order = prop_oneof![Just(EntryOrder::OldestFirst), Just(EntryOrder::NewestFirst)];
    let anchor = prop::option::weighted(0.1, Just("ab".to_owned()));
    (id(), id(), kinds, anchor, date_range, order, prop::option::weighted(0.4, 0..6_usize)).prop_map(
        |(after, up_to, kinds, anchor, date_range, order, limit)| TapeSlice {
            after,
            up_to,
            kinds,
            anchor,
            date_range,
            order,
            limit,
        },
    )
}

fn drafts_strategy() -> impl Strategy<Value = Vec<EntryDraft>> {
    let dated = (draft_strategy(), prop::sample::select(&DRAFT_DATES[..]));
    prop::collection::vec(
        dated.prop_map(|(draft, date)| EntryDraft { date: Some(EntryDate::verbatim(date)), ..draft }),
        0..30,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn p10_index_search_finds_the_same_entries_as_a_scan(
        first in drafts_strategy(),
        second in drafts_strategy(),
        samples in prop::collection::vec((search_sample_strategy(), slice_strategy()), 40),
        scan_threshold in prop_oneof![Just(0_usize), Just(5)],
    ) {
        let directory = temp_directory();
        let texts: Vec<Value> = first.iter().chain(&second).map(|draft| draft.payload.clone()).collect();
        block_on(async {
            let (store, tape) = (open_store(directory.path(), scan_threshold), name("t"));
            store.commit(append_batch(&name("other"), first.clone())).await.unwrap();
            store.commit(append_batch(&tape, first)).await.unwrap();
            let (early, late) = samples.split_at(samples.len() / 2);
            for (samples, more) in [(early, second), (late, Vec::new())] {
                for (sample, slice) in samples {
                    let search = TextSearch::new(&SearchSample::to_text(sample, &texts));
                    let found = store.search(&tape, slice, &search).await.unwrap();
                    let expected = scan_all(&store, &tape, slice, &search).await;
                    prop_assert_eq!(ids(&found), ids(&expected), "{:?} in {:?}", search, slice);
                    prop_assert!(found == expected);
                }
                store.commit(append_batch(&tape, more)).await.unwrap();
            }
            Ok(())
        })?;
    }

    #[test]
    fn p10_forks_and_generations_are_searched_as_in_memory(
        old in drafts_strategy(), drafts in drafts_strategy(), forked in drafts_strategy(), samples in prop::collection::vec(search_sample_strategy(), 20),
        at in 0..40_u64,
        newest_first in any::<bool>(),
    ) {
        let directory = temp_directory();
        let texts: Vec<Value> = drafts.iter().chain(&forked).map(|draft| draft.payload.clone()).collect();
        block_on(async {
            let all = [Arc::new(open_store(directory.path(), 0)) as Arc<dyn Store>, Arc::new(MemoryStore::new())].map(TapeRepository::new);
            for tapes in &all {
                tapes.commit(append_batch(&name("t"), old.clone())).await.unwrap();
                tapes.reset(&name("t"), false).await.unwrap();
                tapes.commit(append_batch(&name("t"), drafts.clone())).await.unwrap();
                tapes.fork(&name("t"), &name("f"), Some(EntryId(at))).await.unwrap();
                tapes.commit(append_batch(&name("f"), forked.clone())).await.unwrap();
            }
            for (number, sample) in samples.iter().enumerate() {
                let order = if newest_first { EntryOrder::NewestFirst } else { EntryOrder::OldestFirst };
                let limit = Some(number).filter(|limit| limit % 2 == 1);
                let query = Query { order, limit, ..Query::search(sample.to_text(&texts)) };
                let tape = name(if number % 3 == 0 { "t" } else { "f" });
                let [found, expected] = &all;
                let found = ids(&found.query(&tape, &query).await.unwrap());
                prop_assert_eq!(found, ids(&expected.query(&tape, &query).await.unwrap()), "{:?}", query);
            }
            Ok(())
        })?;
    }
}

#[cfg(feature = "conformance")]
#[tokio::test]
async fn p10_conformance_suites_pass_with_the_index() {
    let directories: std::sync::Mutex<Vec<TempDir>> = std::sync::Mutex::default();
    let make = || {
        let directory = temp_directory();
        let store = Arc::new(open_store(directory.path(), 0));
        directories.lock().unwrap().push(directory);
        store as Arc<dyn Store>
    };
    crate::conformance::tapes_suite(async || TapeRepository::new(make())).await;
    crate::conformance::store_suite(async || make()).await;
}

#[tokio::test]
async fn p14_searches_update_the_index_and_writes_do_not() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    store.commit(append_batch(&tape, (0..50).map(|number| user_draft(&format!("entry {number}"))))).await.unwrap();
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 0);
    assert_eq!(search_ids(&store, &tape, "entry 49").await, [50]);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 50);
    store.commit(append_batch(&tape, [user_draft("one more")])).await.unwrap();
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 50);
}

#[tokio::test]
async fn p10_index_search_finds_typos_in_words_with_punctuation() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    let other = (0..50).map(|number| user_draft(&format!("entry {number} of fork and rs, src and toml")));
    store.commit(append_batch(&tape, other)).await.unwrap();
    store
        .commit(append_batch(&tape, [user_draft("look at src/fork.rs and harbour-master and config.toml")]))
        .await
        .unwrap();
    let typos =
        ["frok.rs", "src/frok.rs", "src/fork.sr", "harbour-mastre", "harbor-master", "confg.toml", "config.tmol"];
    for typo in typos {
        assert_eq!(search_ids(&store, &tape, typo).await, [51], "{typo}");
    }
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 51);
}

#[tokio::test]
async fn p10_short_tape_is_not_indexed() {
    let directory = temp_directory();
    let (store, tape) = (SqliteStore::open(directory.path().join("capstan.db")).unwrap(), name("t"));
    store.commit(append_batch(&tape, (0..1000).map(|_| user_draft("needle")))).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 1000);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 0);
    store.commit(append_batch(&tape, [user_draft("needle")])).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 1001);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 1001);
}

#[tokio::test]
async fn p10_two_processes_share_the_index() {
    let directory = temp_directory();
    let stores = [open_store(directory.path(), 0), open_store(directory.path(), 0)];
    let tape = name("t");
    for (round, store) in stores.iter().cycle().take(6).enumerate() {
        store.commit(append_batch(&tape, (0..20).map(|_| user_draft(&format!("round {round}"))))).await.unwrap();
        let (one, other) = tokio::join!(search_ids(&stores[0], &tape, "round"), search_ids(&stores[1], &tape, "round"));
        assert_eq!((one.len(), other.len()), (20 * (round + 1), 20 * (round + 1)));
    }
    assert_eq!(
        query_number(&directory, "SELECT count(*) FROM search_index('round')"),
        120,
        "each entry is indexed once"
    );
    assert_eq!(stores[0].verify().await.unwrap(), []);
}

#[tokio::test]
async fn p10_index_with_other_rules_is_rebuilt() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    store.commit(append_batch(&tape, (0..20).map(|_| user_draft("needle")))).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    let other = Connection::open(directory.path().join("capstan.db")).unwrap();
    let clear = "INSERT INTO search_index (search_index) VALUES ('delete-all'); DELETE FROM search_words;";
    other.execute_batch(&format!("{clear} UPDATE search_rules SET rules = 'old'")).unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    assert_eq!(query_number(&directory, "SELECT count(*) FROM search_index('needle')"), 20);
}

#[tokio::test]
async fn p10_damaged_index_is_bypassed_and_rebuilt() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    store.commit(append_batch(&tape, (0..20).map(|_| user_draft("needle")))).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    let other = Connection::open(directory.path().join("capstan.db")).unwrap();
    other.execute_batch("UPDATE search_index_data SET block = x'ff' WHERE id > 10").unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 0, "the index was cleared");
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 20);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn p10_search_in_a_snapshot_writes_nothing() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    store.commit(append_batch(&tape, (0..20).map(|_| user_draft("needle")))).await.unwrap();
    let search_engine = || SearchEngine { scan_threshold: 0, ..SearchEngine::default() };
    let snapshot = || SqliteStore::open_snapshot(directory.path().join("capstan.db")).unwrap();
    let early = SqliteStore { search_engine: search_engine(), ..snapshot() };
    assert_eq!(search_ids(&early, &tape, "needle").await.len(), 20);
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 0);
    assert_eq!(search_ids(&store, &tape, "needle").await.len(), 20);
    store.commit(append_batch(&tape, [user_draft("needle")])).await.unwrap();
    let late = SqliteStore { search_engine: search_engine(), ..snapshot() };
    assert_eq!(search_ids(&late, &tape, "nedle").await.len(), 21, "indexed entries and unindexed ones");
    assert_eq!(search_ids(&early, &tape, "needle").await.len(), 20, "the snapshot does not change");
    assert_eq!(query_number(&directory, INDEXED_ENTRIES_SQL), 20);
}

#[tokio::test]
async fn d09_replicated_entries_are_no_longer_found() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    store.commit(append_batch(&tape, [user_draft("needle"), user_draft("needle"), user_draft("other")])).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await, [1, 2]);
    let mut replicated = Batch::new();
    replicated.push(Fact::MarkReplicated { tape: tape.clone(), up_to: EntryId(1) });
    store.commit(replicated).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await, [2]);
}

#[tokio::test]
async fn p10_entries_with_ids_too_large_for_the_index_are_scanned() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    let entry = |id: u64| -> Entry {
        serde_json::from_value(json!({"id": id, "kind": "message", "payload": "needle", "date": "2020-01-01"})).unwrap()
    };
    let mut import = append_batch(&tape, []);
    let entries = [1, 2, 1 << 39, 1 << 40, 1 << 60].map(entry).to_vec();
    import.push(Fact::ImportEntries { tape: tape.clone(), entries });
    store.commit(import).await.unwrap();
    assert_eq!(search_ids(&store, &tape, "needle").await, [1, 2, 1 << 39, 1 << 40, 1 << 60]);
    let newest =
        TapeSlice { order: EntryOrder::NewestFirst, limit: Some(3), up_to: Some(EntryId(1 << 50)), ..TapeSlice::all() };
    let newest = store.search(&tape, &newest, &TextSearch::new("nedle")).await.unwrap();
    assert_eq!(ids(&newest), [1 << 40, 1 << 39, 2]);
}

#[tokio::test]
async fn p14_text_in_a_large_payload_is_found() {
    let directory = temp_directory();
    let (store, tape) = (open_store(directory.path(), 0), name("t"));
    let words: Vec<String> = (0..40_000).map(|number| format!("word{number}")).collect();
    let image = "iVBORw0KGgo".repeat(10_000);
    store
        .commit(append_batch(
            &tape,
            [user_draft(&words.join(" ")), user_draft("small"), user_draft(&format!("{image} needle"))],
        ))
        .await
        .unwrap();
    assert_eq!(search_ids(&store, &tape, "word39999").await, [1]);
    assert_eq!(search_ids(&store, &tape, "nedle").await, [3]);
    assert_eq!(search_ids(&store, &tape, "GgoiVBORw").await, [3], "a part of an unindexed word");
    assert_eq!(search_ids(&store, &tape, "small").await, [2]);
    assert!(query_number(&directory, "SELECT count(*) FROM search_words") < 10, "the index stays small");
}

#[test]
fn p10_candidates_are_read_in_order_without_sorting() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&MIGRATIONS.concat()).unwrap();
    let kinds = vec![EntryKind::Message, EntryKind::Anchor];
    let slice = TapeSlice { kinds, order: EntryOrder::NewestFirst, ..TapeSlice::after(EntryId(7)) };
    let candidates =
        CandidateRows { rowid_offset: 1 << 40, first_rowid: 1 << 40, last_rowid: 1 << 41, expression: "\"a\"" };
    let (sql, values) = candidates_query(&name("t"), &slice, &candidates);
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    let [index, entries] = steps.as_slice() else { panic!("unexpected steps: {steps:?}") };
    assert!(index.starts_with("SCAN search_index VIRTUAL TABLE"), "{index}");
    assert_eq!(entries, "SEARCH entries USING INDEX sqlite_autoindex_entries_1 (tape=? AND id=?)");
}
