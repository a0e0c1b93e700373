//! P10: a search over a long tape by index compared with a scan.

use std::time::{Duration, Instant};

use capstan::protocol::TapeName;
use capstan::store::SqliteStore;
use capstan::tape::{
    Batch, Entry, EntryDraft, EntryKind, EntryOrder, Fact, JournalStore as _, NewTape, SearchScan, Store, StoreError,
    TapeEventKind, TapeSlice, TextSearch,
};
use serde_json::json;

use crate::BenchResult;
use crate::timing_sample::{TimingSample, print_ratio, print_row};

const SEARCH_TAPE_ENTRIES: u64 = 100_000;
/// Number of entries per commit.
const ENTRIES_PER_COMMIT: u64 = 10_000;
/// Number of results, as an agent's tool requests them.
const SEARCH_RESULT_LIMIT: usize = 20;
/// Number of commits timed before indexing starts.
const TIMED_COMMITS: usize = 300;
const SEARCH_WARM_UP_ROUNDS: usize = 2;
const SEARCH_ROUNDS: usize = 15;

/// Search cases with their texts.
const SEARCH_CASES: [(&str, &str); 7] = [
    ("a rare word", "quixotic"),
    ("a rare word with a typo", "qiuxotic"),
    ("a part of a rare word", "uixot"),
    ("a rare Chinese word", "绞盘"),
    ("a word of 1 in 100 entries", "kraken"),
    ("a frequent word", "harbour"),
    ("a missing word", "zeppelin"),
];

/// Words of a conversation, so that most entries differ.
const VOCABULARY: [&str; 40] = [
    "the", "capstan", "winds", "rope", "and", "lifts", "anchor", "from", "ground", "ship", "sails", "to", "harbour",
    "with", "cargo", "of", "grain", "timber", "iron", "while", "captain", "writes", "log", "crew", "sings", "wind",
    "turns", "north", "tide", "falls", "at", "noon", "a", "gull", "follows", "wake", "until", "night", "covers", "sea",
];

/// Creates an entry as a turn writes it: a sentence, and now and then ids and hashes that occur nowhere else.
fn sample_draft(number: u64) -> EntryDraft {
    // Any sequence with a long period will do.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let words: Vec<&str> =
        (0..25).map(|_| VOCABULARY[usize::try_from(next()).unwrap_or_default() % VOCABULARY.len()]).collect();
    let mut text = words.join(" ");
    if number % 20_000 == 7 {
        text.push_str(" quixotic 起锚用的绞盘");
    }
    if number % 101 == 2 {
        text.push_str(" kraken");
    }
    match number % 4 {
        0 => EntryDraft::event(
            TapeEventKind::ModelCall.name(),
            json!({"run": format!("run-{:016x}", next() << 20), "step": number % 9}),
        ),
        1 => EntryDraft::new(
            EntryKind::ToolResult,
            json!({"results": [text], "call_ids": [format!("call_{:010x}", next())]}),
        ),
        2 => EntryDraft::new(EntryKind::Message, json!({"role": "user", "content": text})),
        _ => EntryDraft::new(EntryKind::Message, json!({"role": "assistant", "content": text})),
    }
}

async fn fill_search_tape(store: &dyn Store, tape: &TapeName) -> Result<(), StoreError> {
    for first in (0..SEARCH_TAPE_ENTRIES).step_by(usize::try_from(ENTRIES_PER_COMMIT).unwrap_or(usize::MAX)) {
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
        for number in first..first + ENTRIES_PER_COMMIT {
            batch.append(tape, sample_draft(number));
        }
        store.commit(batch).await?;
    }
    Ok(())
}

/// Searches like a store without an index.
async fn search_by_scan(
    store: &dyn Store,
    tape: &TapeName,
    slice: &TapeSlice,
    search: &TextSearch,
) -> Result<Vec<Entry>, StoreError> {
    let mut scan = SearchScan::new(search, slice);
    while let Some(page) = scan.next_page() {
        scan.push_page(store.read(tape, &page).await?);
    }
    Ok(scan.matches())
}

/// Measures a small commit.
async fn time_commit(store: &dyn Store, tape: &TapeName) -> Result<Duration, StoreError> {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    batch.append(tape, sample_draft(2));
    let started_at = Instant::now();
    store.commit(batch).await?;
    Ok(started_at.elapsed())
}

/// Measures the first search, and the commits made during it.
async fn bench_indexing(store: &dyn Store, tape: &TapeName, slice: &TapeSlice) -> BenchResult {
    let other = TapeName::parse("other")?;
    let (mut before_indexing, mut during_indexing) = (TimingSample::default(), TimingSample::default());
    for _ in 0..TIMED_COMMITS {
        before_indexing.push(time_commit(store, &other).await?);
    }
    let started_at = Instant::now();
    let search = TextSearch::new("zeppelin");
    let mut indexing = std::pin::pin!(store.search(tape, slice, &search));
    let per_entry = loop {
        tokio::select! {
            found = &mut indexing => {
                found?;
                break started_at.elapsed() / u32::try_from(SEARCH_TAPE_ENTRIES)?;
            }
            elapsed = time_commit(store, &other) => during_indexing.push(elapsed?),
        }
    };
    println!("  the first search indexes: {:.1} µs per entry", per_entry.as_secs_f64() * 1e6);
    print_row("a commit on another tape", &before_indexing);
    print_row("a commit while it indexes", &during_indexing);
    println!(
        "  the longest commit took {:.1} ms, and {:.1} ms while it indexes",
        before_indexing.max_millis(),
        during_indexing.max_millis()
    );
    Ok(())
}

pub(crate) async fn run() -> BenchResult {
    println!(
        "search: {SEARCH_RESULT_LIMIT} newest of {SEARCH_TAPE_ENTRIES} entries by index and by scan, {SEARCH_ROUNDS} each, alternating"
    );
    let folder = tempfile::tempdir()?;
    let (path, tape) = (folder.path().join("capstan.db"), TapeName::parse("t")?);
    // The WAL is merged into the file when the store is closed.
    fill_search_tape(&SqliteStore::open(&path)?, &tape).await?;
    let size_before = path.metadata()?.len();
    let store = SqliteStore::open(&path)?;
    let slice = TapeSlice { order: EntryOrder::NewestFirst, limit: Some(SEARCH_RESULT_LIMIT), ..TapeSlice::all() };

    bench_indexing(&store, &tape, &slice).await?;
    drop(store);
    println!("  the file grew from {} to {} MB", size_before / 1_000_000, path.metadata()?.len() / 1_000_000);
    let store = SqliteStore::open(&path)?;

    for (name, text) in SEARCH_CASES {
        let search = TextSearch::new(text);
        let (mut by_index, mut by_scan) = (TimingSample::default(), TimingSample::default());
        for round in 0..SEARCH_WARM_UP_ROUNDS + SEARCH_ROUNDS {
            let started_at = Instant::now();
            let found = store.search(&tape, &slice, &search).await?;
            let indexed = started_at.elapsed();
            let started_at = Instant::now();
            let expected = search_by_scan(&store, &tape, &slice, &search).await?;
            let scanned = started_at.elapsed();
            if found != expected {
                return Err(format!("index and scan differ for {text:?}").into());
            }
            if round >= SEARCH_WARM_UP_ROUNDS {
                by_index.push(indexed);
                by_scan.push(scanned);
            }
        }
        print_row(&format!("{name}, index"), &by_index);
        print_row(&format!("{name}, scan"), &by_scan);
        print_ratio("scan to index", by_scan.ratio_to(&by_index), None);
    }
    Ok(())
}
