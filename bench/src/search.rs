//! A search over a long tape by the index against one that reads everything (P10).

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
/// How many entries one commit writes.
const ENTRIES_PER_COMMIT: u64 = 10_000;
/// How many results are asked for, as the tool of an agent would.
const SEARCH_RESULT_LIMIT: usize = 20;
/// How many commits are timed before any is made beside the index.
const TIMED_COMMITS: usize = 300;
const SEARCH_WARM_UP_ROUNDS: usize = 2;
const SEARCH_ROUNDS: usize = 15;

/// What is searched for.
const SEARCH_CASES: [(&str, &str); 7] = [
    ("a rare word", "quixotic"),
    ("a rare word with a typo", "qiuxotic"),
    ("a part of a rare word", "uixot"),
    ("a rare Chinese word", "绞盘"),
    ("a word of 1 in 100 entries", "kraken"),
    ("a frequent word", "harbour"),
    ("a word that is not there", "zeppelin"),
];

/// Words of a conversation, so that most entries are unlike each other.
const VOCABULARY: [&str; 40] = [
    "the", "capstan", "winds", "rope", "and", "lifts", "anchor", "from", "ground", "ship", "sails", "to", "harbour",
    "with", "cargo", "of", "grain", "timber", "iron", "while", "captain", "writes", "log", "crew", "sings", "wind",
    "turns", "north", "tide", "falls", "at", "noon", "a", "gull", "follows", "wake", "until", "night", "covers", "sea",
];

/// An entry as a turn might have written it: a sentence, and now and then ids and hashes that occur nowhere else.
fn sample_draft(number: u64) -> EntryDraft {
    // Any sequence will do that repeats itself late.
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
        batch.push(Fact::EnsureTape(NewTape::with_name(tape.clone())));
        for number in first..first + ENTRIES_PER_COMMIT {
            batch.append(tape, sample_draft(number));
        }
        store.commit(batch).await?;
    }
    Ok(())
}

/// The search of a store without an index.
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

/// How long a small commit takes.
async fn time_commit(store: &dyn Store, tape: &TapeName) -> Result<Duration, StoreError> {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(tape.clone())));
    batch.append(tape, sample_draft(2));
    let begun = Instant::now();
    store.commit(batch).await?;
    Ok(begun.elapsed())
}

/// The first search, and how long a commit waits meanwhile.
async fn bench_indexing(store: &dyn Store, tape: &TapeName, slice: &TapeSlice) -> BenchResult {
    let other = TapeName::parse("other")?;
    let (mut alone, mut meanwhile) = (TimingSample::default(), TimingSample::default());
    for _ in 0..TIMED_COMMITS {
        alone.push(time_commit(store, &other).await?);
    }
    let begun = Instant::now();
    let search = TextSearch::new("zeppelin");
    let mut indexing = std::pin::pin!(store.search(tape, slice, &search));
    let per_entry = loop {
        tokio::select! {
            found = &mut indexing => {
                found?;
                break begun.elapsed() / u32::try_from(SEARCH_TAPE_ENTRIES)?;
            }
            waited = time_commit(store, &other) => meanwhile.push(waited?),
        }
    };
    println!("  the first search indexes: {:.1} µs for each entry", per_entry.as_secs_f64() * 1e6);
    print_row("a commit on another tape", &alone);
    print_row("a commit while it indexes", &meanwhile);
    println!(
        "  the longest commit took {:.1} ms, and {:.1} ms while it indexes",
        alone.max_millis(),
        meanwhile.max_millis()
    );
    Ok(())
}

pub(crate) async fn run() -> BenchResult {
    println!(
        "search: {SEARCH_RESULT_LIMIT} newest of {SEARCH_TAPE_ENTRIES} entries by the index and by reading, {SEARCH_ROUNDS} each, in turns"
    );
    let folder = tempfile::tempdir()?;
    let (path, tape) = (folder.path().join("capstan.db"), TapeName::parse("t")?);
    // What a store has in its log comes into the file when it is closed.
    fill_search_tape(&SqliteStore::open(&path)?, &tape).await?;
    let before = path.metadata()?.len();
    let store = SqliteStore::open(&path)?;
    let slice = TapeSlice { order: EntryOrder::NewestFirst, limit: Some(SEARCH_RESULT_LIMIT), ..TapeSlice::all() };

    bench_indexing(&store, &tape, &slice).await?;
    drop(store);
    println!("  the file grew from {} to {} MB", before / 1_000_000, path.metadata()?.len() / 1_000_000);
    let store = SqliteStore::open(&path)?;

    for (name, text) in SEARCH_CASES {
        let search = TextSearch::new(text);
        let (mut by_index, mut by_reading) = (TimingSample::default(), TimingSample::default());
        for round in 0..SEARCH_WARM_UP_ROUNDS + SEARCH_ROUNDS {
            let begun = Instant::now();
            let found = store.search(&tape, &slice, &search).await?;
            let indexed = begun.elapsed();
            let begun = Instant::now();
            let expected = search_by_scan(&store, &tape, &slice, &search).await?;
            let read = begun.elapsed();
            if found != expected {
                return Err(format!("{text:?} was found otherwise by the index").into());
            }
            if round >= SEARCH_WARM_UP_ROUNDS {
                by_index.push(indexed);
                by_reading.push(read);
            }
        }
        print_row(&format!("{name}, index"), &by_index);
        print_row(&format!("{name}, reading"), &by_reading);
        print_ratio("reading to index", by_reading.ratio_to(&by_index), None);
    }
    Ok(())
}
