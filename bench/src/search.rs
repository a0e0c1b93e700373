//! A search over a long tape by the index against one that reads everything (P10).

use std::time::{Duration, Instant};

use capstan::protocol::TapeName;
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Draft, Entry, Fact, Kind, NewTape, Order, Scan, Search, Slice, Store, StoreError};
use serde_json::json;

use crate::Outcome;
use crate::sample::{Sample, print_ratio, print_row};

const ENTRIES: u64 = 100_000;
/// How many entries one commit writes.
const CHUNK: u64 = 10_000;
/// How many results are asked for, as the tool of an agent would.
const LIMIT: usize = 20;
/// How many commits are timed before any is made beside the index.
const COMMITS: usize = 300;
const WARM_UP: usize = 2;
const ROUNDS: usize = 15;

/// What is searched for.
const SEARCHES: [(&str, &str); 7] = [
    ("a rare word", "quixotic"),
    ("a rare word with a typo", "qiuxotic"),
    ("a part of a rare word", "uixot"),
    ("a rare Chinese word", "绞盘"),
    ("a word of 1 in 100 entries", "kraken"),
    ("a frequent word", "harbour"),
    ("a word that is not there", "zeppelin"),
];

/// Words of a conversation, so that most entries are unlike each other.
const WORDS: [&str; 40] = [
    "the", "capstan", "winds", "rope", "and", "lifts", "anchor", "from", "ground", "ship", "sails", "to", "harbour",
    "with", "cargo", "of", "grain", "timber", "iron", "while", "captain", "writes", "log", "crew", "sings", "wind",
    "turns", "north", "tide", "falls", "at", "noon", "a", "gull", "follows", "wake", "until", "night", "covers", "sea",
];

/// An entry as a turn might have written it: a sentence, and now and then ids and hashes that occur nowhere else.
fn draft(number: u64) -> Draft {
    // Any sequence will do that repeats itself late.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let words: Vec<&str> = (0..25).map(|_| WORDS[usize::try_from(next()).unwrap_or_default() % WORDS.len()]).collect();
    let mut text = words.join(" ");
    if number % 20_000 == 7 {
        text.push_str(" quixotic 起锚用的绞盘");
    }
    if number % 101 == 2 {
        text.push_str(" kraken");
    }
    match number % 4 {
        0 => Draft::event("model.call", json!({"run": format!("run-{:016x}", next() << 20), "step": number % 9})),
        1 => Draft::new(Kind::ToolResult, json!({"results": [text], "call_ids": [format!("call_{:010x}", next())]})),
        2 => Draft::new(Kind::Message, json!({"role": "user", "content": text})),
        _ => Draft::new(Kind::Message, json!({"role": "assistant", "content": text})),
    }
}

async fn fill(store: &dyn Store, tape: &TapeName) -> Result<(), StoreError> {
    for first in (0..ENTRIES).step_by(usize::try_from(CHUNK).unwrap_or(usize::MAX)) {
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
        for number in first..first + CHUNK {
            batch.append(tape, draft(number));
        }
        store.commit(batch).await?;
    }
    Ok(())
}

/// The search of a store without an index.
async fn scan(store: &dyn Store, tape: &TapeName, slice: &Slice, search: &Search) -> Result<Vec<Entry>, StoreError> {
    let mut scan = Scan::new(search, slice);
    while let Some(page) = scan.page() {
        scan.look_at(store.read(tape, &page).await?);
    }
    Ok(scan.found())
}

/// How long a small commit takes.
async fn commit(store: &dyn Store, tape: &TapeName) -> Result<Duration, StoreError> {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    batch.append(tape, draft(2));
    let begun = Instant::now();
    store.commit(batch).await?;
    Ok(begun.elapsed())
}

/// The first search, and how long a commit waits meanwhile.
async fn index(store: &dyn Store, tape: &TapeName, slice: &Slice) -> Outcome {
    let other = TapeName::parse("other")?;
    let (mut alone, mut meanwhile) = (Sample::default(), Sample::default());
    for _ in 0..COMMITS {
        alone.push(commit(store, &other).await?);
    }
    let begun = Instant::now();
    let search = Search::new("zeppelin");
    let mut indexing = std::pin::pin!(store.search(tape, slice, &search));
    let per_entry = loop {
        tokio::select! {
            found = &mut indexing => {
                found?;
                break begun.elapsed() / u32::try_from(ENTRIES)?;
            }
            waited = commit(store, &other) => meanwhile.push(waited?),
        }
    };
    println!("  the first search indexes: {:.1} µs for each entry", per_entry.as_secs_f64() * 1e6);
    print_row("a commit on another tape", &alone);
    print_row("a commit while it indexes", &meanwhile);
    println!("  the longest commit took {:.1} ms, and {:.1} ms while it indexes", alone.longest(), meanwhile.longest());
    Ok(())
}

pub(crate) async fn run() -> Outcome {
    println!("search: {LIMIT} newest of {ENTRIES} entries by the index and by reading, {ROUNDS} each, in turns");
    let folder = tempfile::tempdir()?;
    let (path, tape) = (folder.path().join("capstan.db"), TapeName::parse("t")?);
    // What a store has in its log comes into the file when it is closed.
    fill(&SqliteStore::open(&path)?, &tape).await?;
    let before = path.metadata()?.len();
    let store = SqliteStore::open(&path)?;
    let slice = Slice { order: Order::NewestFirst, limit: Some(LIMIT), ..Slice::all() };

    index(&store, &tape, &slice).await?;
    drop(store);
    println!("  the file grew from {} to {} MB", before / 1_000_000, path.metadata()?.len() / 1_000_000);
    let store = SqliteStore::open(&path)?;

    for (name, text) in SEARCHES {
        let search = Search::new(text);
        let (mut by_index, mut by_reading) = (Sample::default(), Sample::default());
        for round in 0..WARM_UP + ROUNDS {
            let begun = Instant::now();
            let found = store.search(&tape, &slice, &search).await?;
            let indexed = begun.elapsed();
            let begun = Instant::now();
            let expected = scan(&store, &tape, &slice, &search).await?;
            let read = begun.elapsed();
            if found != expected {
                return Err(format!("{text:?} was found otherwise by the index").into());
            }
            if round >= WARM_UP {
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
