//! The index against the rule it must keep: it finds what reading everything finds, in the same order.

mod texts;

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{
    Batch, DateRange, Draft, Entry, EntryDate, Fact, Kind, MemoryStore, NewTape, Order, Query, Scan, Search, Slice,
    Store, Tapes,
};
use proptest::prelude::*;
use rusqlite::{Connection, params_from_iter};
use serde_json::{Value, json};
use tempfile::TempDir;
use texts::{Wish, draft, wish};

use super::super::SqliteStore;
use super::super::schema::MIGRATIONS;
use super::super::slice::candidates_query;
use super::{Candidates, Searches};

/// A store that asks its index however little there is to read.
fn store(directory: &Path, few: usize) -> SqliteStore {
    let searches = Searches { few, chunk: 7, ..Searches::default() };
    SqliteStore { searches, ..SqliteStore::open(directory.join("capstan.db")).unwrap() }
}

fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn name(text: &str) -> TapeName {
    TapeName::parse(text).unwrap()
}

fn batch(tape: &TapeName, drafts: impl IntoIterator<Item = Draft>) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    for draft in drafts {
        batch.append(tape, draft);
    }
    batch
}

fn said(text: &str) -> Draft {
    Draft::new(Kind::Message, json!({"role": "user", "content": text}))
}

fn ids(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id.0).collect()
}

fn run<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}

async fn found(store: &SqliteStore, tape: &TapeName, text: &str) -> Vec<u64> {
    ids(&store.search(tape, &Slice::all(), &Search::new(text)).await.unwrap())
}

/// The same by reading everything.
async fn scanned(store: &dyn Store, tape: &TapeName, slice: &Slice, search: &Search) -> Vec<Entry> {
    let mut scan = Scan::new(search, slice);
    while let Some(page) = scan.page() {
        scan.look_at(store.read(tape, &page).await.unwrap());
    }
    scan.found()
}

fn number(directory: &TempDir, sql: &str) -> i64 {
    let connection = Connection::open(directory.path().join("capstan.db")).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

const INDEXED: &str = "SELECT coalesce(sum(up_to), 0) FROM search_tapes";
const DATES: [&str; 4] =
    ["2020-01-01T00:00:00Z", "2020-01-01T23:59:59.999999Z", "2020-01-02T00:30:00+01:00", "someday"];

fn slice() -> impl Strategy<Value = Slice> {
    let id = || prop::option::weighted(0.3, (0..40_u64).prop_map(EntryId));
    let kinds = prop::sample::subsequence(vec![Kind::Message, Kind::Anchor, Kind::from("odd")], 0..3);
    let dated = prop::option::weighted(0.2, Just(DateRange::between("2020-01-01", "2020-01-01").unwrap()));
    let order = prop_oneof![Just(Order::OldestFirst), Just(Order::NewestFirst)];
    let anchor = prop::option::weighted(0.1, Just("ab".to_owned()));
    (id(), id(), kinds, anchor, dated, order, prop::option::weighted(0.4, 0..6_usize)).prop_map(
        |(after, up_to, kinds, anchor, dated, order, limit)| Slice { after, up_to, kinds, anchor, dated, order, limit },
    )
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let dated = (draft(), prop::sample::select(&DATES[..]));
    prop::collection::vec(
        dated.prop_map(|(draft, date)| Draft { date: Some(EntryDate::verbatim(date)), ..draft }),
        0..30,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn p10_the_index_finds_what_reading_everything_finds(
        first in drafts(),
        second in drafts(),
        wishes in prop::collection::vec((wish(), slice()), 40),
        few in prop_oneof![Just(0_usize), Just(5)],
    ) {
        let directory = place();
        let texts: Vec<Value> = first.iter().chain(&second).map(|draft| draft.payload.clone()).collect();
        run(async {
            let (store, tape) = (store(directory.path(), few), name("t"));
            store.commit(batch(&name("other"), first.clone())).await.unwrap();
            store.commit(batch(&tape, first)).await.unwrap();
            let (early, late) = wishes.split_at(wishes.len() / 2);
            for (wishes, more) in [(early, second), (late, Vec::new())] {
                for (wish, slice) in wishes {
                    let search = Search::new(&Wish::text(wish, &texts));
                    let found = store.search(&tape, slice, &search).await.unwrap();
                    let expected = scanned(&store, &tape, slice, &search).await;
                    prop_assert_eq!(ids(&found), ids(&expected), "{:?} in {:?}", search, slice);
                    prop_assert!(found == expected);
                }
                store.commit(batch(&tape, more)).await.unwrap();
            }
            Ok(())
        })?;
    }

    #[test]
    fn p10_forks_and_generations_are_searched_as_in_memory(
        old in drafts(), drafts in drafts(), forked in drafts(), wishes in prop::collection::vec(wish(), 20),
        at in 0..40_u64,
        newest_first in any::<bool>(),
    ) {
        let directory = place();
        let texts: Vec<Value> = drafts.iter().chain(&forked).map(|draft| draft.payload.clone()).collect();
        run(async {
            let all = [Arc::new(store(directory.path(), 0)) as Arc<dyn Store>, Arc::new(MemoryStore::new())].map(Tapes::new);
            for tapes in &all {
                tapes.commit(batch(&name("t"), old.clone())).await.unwrap();
                tapes.reset(&name("t"), false).await.unwrap();
                tapes.commit(batch(&name("t"), drafts.clone())).await.unwrap();
                tapes.fork(&name("t"), &name("f"), Some(EntryId(at))).await.unwrap();
                tapes.commit(batch(&name("f"), forked.clone())).await.unwrap();
            }
            for (number, wish) in wishes.iter().enumerate() {
                let order = if newest_first { Order::NewestFirst } else { Order::OldestFirst };
                let limit = Some(number).filter(|limit| limit % 2 == 1);
                let query = Query { order, limit, ..Query::search(wish.text(&texts)) };
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
async fn p10_the_suites_hold_with_the_index() {
    let directories: std::sync::Mutex<Vec<TempDir>> = std::sync::Mutex::default();
    let make = || {
        let directory = place();
        let store = Arc::new(store(directory.path(), 0));
        directories.lock().unwrap().push(directory);
        store as Arc<dyn Store>
    };
    crate::conformance::tapes_suite(async || Tapes::new(make())).await;
    crate::conformance::store_suite(async || make()).await;
}

#[tokio::test]
async fn p14_a_write_does_not_index_and_a_search_does() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    store.commit(batch(&tape, (0..50).map(|number| said(&format!("entry {number}"))))).await.unwrap();
    assert_eq!(number(&directory, INDEXED), 0);
    assert_eq!(found(&store, &tape, "entry 49").await, [50]);
    assert_eq!(number(&directory, INDEXED), 50);
    store.commit(batch(&tape, [said("one more")])).await.unwrap();
    assert_eq!(number(&directory, INDEXED), 50);
}

#[tokio::test]
async fn p10_the_index_finds_a_typo_in_a_word_with_punctuation() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    let other = (0..50).map(|number| said(&format!("entry {number} of fork and rs, src and toml")));
    store.commit(batch(&tape, other)).await.unwrap();
    store.commit(batch(&tape, [said("look at src/fork.rs and harbour-master and config.toml")])).await.unwrap();
    let typos =
        ["frok.rs", "src/frok.rs", "src/fork.sr", "harbour-mastre", "harbor-master", "confg.toml", "config.tmol"];
    for typo in typos {
        assert_eq!(found(&store, &tape, typo).await, [51], "{typo}");
    }
    assert_eq!(number(&directory, INDEXED), 51);
}

#[tokio::test]
async fn p10_a_short_tape_needs_no_index() {
    let directory = place();
    let (store, tape) = (SqliteStore::open(directory.path().join("capstan.db")).unwrap(), name("t"));
    store.commit(batch(&tape, (0..1000).map(|_| said("needle")))).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 1000);
    assert_eq!(number(&directory, INDEXED), 0);
    store.commit(batch(&tape, [said("needle")])).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 1001);
    assert_eq!(number(&directory, INDEXED), 1001);
}

#[tokio::test]
async fn p10_two_processes_share_the_index() {
    let directory = place();
    let stores = [store(directory.path(), 0), store(directory.path(), 0)];
    let tape = name("t");
    for (round, store) in stores.iter().cycle().take(6).enumerate() {
        store.commit(batch(&tape, (0..20).map(|_| said(&format!("round {round}"))))).await.unwrap();
        let (one, other) = tokio::join!(found(&stores[0], &tape, "round"), found(&stores[1], &tape, "round"));
        assert_eq!((one.len(), other.len()), (20 * (round + 1), 20 * (round + 1)));
    }
    assert_eq!(number(&directory, "SELECT count(*) FROM search_index('round')"), 120, "each entry is there once");
    assert_eq!(stores[0].verify().await.unwrap(), []);
}

#[tokio::test]
async fn p10_an_index_of_other_rules_is_made_anew() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    store.commit(batch(&tape, (0..20).map(|_| said("needle")))).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    let other = Connection::open(directory.path().join("capstan.db")).unwrap();
    let forget = "INSERT INTO search_index (search_index) VALUES ('delete-all'); DELETE FROM search_words;";
    other.execute_batch(&format!("{forget} UPDATE search_rules SET rules = 'of old'")).unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    assert_eq!(number(&directory, "SELECT count(*) FROM search_index('needle')"), 20);
}

#[tokio::test]
async fn p10_a_damaged_index_is_read_past_and_made_anew() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    store.commit(batch(&tape, (0..20).map(|_| said("needle")))).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    let vandal = Connection::open(directory.path().join("capstan.db")).unwrap();
    vandal.execute_batch("UPDATE search_index_data SET block = x'ff' WHERE id > 10").unwrap();
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    assert_eq!(number(&directory, INDEXED), 0, "it was emptied");
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    assert_eq!(number(&directory, INDEXED), 20);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn p10_a_snapshot_is_searched_and_writes_nothing() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    store.commit(batch(&tape, (0..20).map(|_| said("needle")))).await.unwrap();
    let searches = || Searches { few: 0, ..Searches::default() };
    let snapshot = || SqliteStore::snapshot(directory.path().join("capstan.db")).unwrap();
    let early = SqliteStore { searches: searches(), ..snapshot() };
    assert_eq!(found(&early, &tape, "needle").await.len(), 20);
    assert_eq!(number(&directory, INDEXED), 0);
    assert_eq!(found(&store, &tape, "needle").await.len(), 20);
    store.commit(batch(&tape, [said("needle")])).await.unwrap();
    let late = SqliteStore { searches: searches(), ..snapshot() };
    assert_eq!(found(&late, &tape, "nedle").await.len(), 21, "what the index has, and what it lacks");
    assert_eq!(found(&early, &tape, "needle").await.len(), 20, "it is as it was");
    assert_eq!(number(&directory, INDEXED), 20);
}

#[tokio::test]
async fn d09_what_was_handed_over_is_no_longer_found() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    store.commit(batch(&tape, [said("needle"), said("needle"), said("other")])).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await, [1, 2]);
    let mut given = Batch::new();
    given.push(Fact::HandedOver { tape: tape.clone(), up_to: EntryId(1) });
    store.commit(given).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await, [2]);
}

#[tokio::test]
async fn p10_ids_that_do_not_fit_the_index_are_read() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    let entry = |id: u64| -> Entry {
        serde_json::from_value(json!({"id": id, "kind": "message", "payload": "needle", "date": "2020-01-01"})).unwrap()
    };
    let mut import = batch(&tape, []);
    let entries = [1, 2, 1 << 39, 1 << 40, 1 << 60].map(entry).to_vec();
    import.push(Fact::Import { tape: tape.clone(), entries });
    store.commit(import).await.unwrap();
    assert_eq!(found(&store, &tape, "needle").await, [1, 2, 1 << 39, 1 << 40, 1 << 60]);
    let newest = Slice { order: Order::NewestFirst, limit: Some(3), up_to: Some(EntryId(1 << 50)), ..Slice::all() };
    let newest = store.search(&tape, &newest, &Search::new("nedle")).await.unwrap();
    assert_eq!(ids(&newest), [1 << 40, 1 << 39, 2]);
}

#[tokio::test]
async fn p14_text_in_a_large_payload_is_found() {
    let directory = place();
    let (store, tape) = (store(directory.path(), 0), name("t"));
    let words: Vec<String> = (0..40_000).map(|number| format!("word{number}")).collect();
    let picture = "iVBORw0KGgo".repeat(10_000);
    store
        .commit(batch(&tape, [said(&words.join(" ")), said("small"), said(&format!("{picture} needle"))]))
        .await
        .unwrap();
    assert_eq!(found(&store, &tape, "word39999").await, [1]);
    assert_eq!(found(&store, &tape, "nedle").await, [3]);
    assert_eq!(found(&store, &tape, "GgoiVBORw").await, [3], "a part of what is no word");
    assert_eq!(found(&store, &tape, "small").await, [2]);
    assert!(number(&directory, "SELECT count(*) FROM search_words") < 10, "and the index stays small");
}

#[test]
fn p10_candidates_come_in_order_from_the_index() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&MIGRATIONS.concat()).unwrap();
    let kinds = vec![Kind::Message, Kind::Anchor];
    let slice = Slice { kinds, order: Order::NewestFirst, ..Slice::after(EntryId(7)) };
    let meant = Candidates { offset: 1 << 40, first: 1 << 40, last: 1 << 41, expression: "\"a\"" };
    let (sql, values) = candidates_query(&name("t"), &slice, &meant);
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
    let [index, entries] = steps.as_slice() else { panic!("nothing is sorted: {steps:?}") };
    assert!(index.starts_with("SCAN search_index VIRTUAL TABLE"), "{index}");
    assert_eq!(entries, "SEARCH entries USING INDEX sqlite_autoindex_entries_1 (tape=? AND id=?)");
}
