//! P14: a turn on a long tape compared with one on a short tape, with the same number of entries after the last anchor.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan::protocol::{Event, TapeName};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Entry, Fact, NewTape, Store, StoreError, TapeAddress, tape_name};
use capstan::{Capstan, Host, IncomingEvent};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::timing_sample::{TimingSample, print_ratio, print_row};
use crate::{BenchError, BenchResult};

const SHORT_TAPE_ENTRIES: u64 = 1_000;
const LONG_TAPE_ENTRIES: u64 = 1_000_000;
/// Number of entries after the anchor before the first turn.
const ENTRIES_AFTER_ANCHOR: u64 = 20;
/// Number of entries imported per commit.
const ENTRIES_PER_IMPORT: u64 = 10_000;
/// Number of turns after which both tapes get a new anchor, so that the context stays short.
const TURNS_PER_ANCHOR: usize = 10;
const LONG_TAPE_WARM_UP_TURNS: usize = 20;
const LONG_TAPE_TURNS: usize = 300;

/// Host with one tape of a given length.
struct TapeBench {
    host: Host,
    entries: u64,
    sample: TimingSample,
    _folder: TempDir,
}

impl TapeBench {
    async fn new(entries: u64) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir()?;
        let workspace = folder.path().canonicalize()?;
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join("capstan.db"))?);
        fill_tape(store.as_ref(), &workspace, entries).await?;
        let builder = Capstan::builder().home(&workspace).workspace(&workspace).set("model", "demo:");
        let host = builder.store(store).start().await?;
        Ok(Self { host, entries, sample: TimingSample::default(), _folder: folder })
    }

    /// Checks that the turns were made on the filled tape; otherwise the ratio would be 1 and meaningless.
    async fn check_head(&self) -> BenchResult {
        let tapes = self.host.tapes().list().await?;
        let heads: Vec<u64> = tapes.iter().map(|tape| tape.head.0).collect();
        println!("  the tape of {} entries now has {heads:?}", self.entries);
        let expected_head = self.entries + LONG_TAPE_TURNS as u64;
        if matches!(heads[..], [head] if head > expected_head) {
            Ok(())
        } else {
            Err("the turns were on another tape".into())
        }
    }

    async fn time_turn(&self, text: &str) -> Result<Duration, BenchError> {
        let event = Event::message("cli", "local", text);
        let started_at = Instant::now();
        let served = self.host.serve(IncomingEvent::trusted(event)).await?;
        let elapsed = started_at.elapsed();
        match served.error {
            Some(error) => Err(error.into()),
            None => Ok(elapsed),
        }
    }
}

/// Fills the tape of the session that the turns use.
async fn fill_tape(store: &dyn Store, workspace: &Path, count: u64) -> Result<(), StoreError> {
    let workspace = workspace.to_string_lossy().into_owned();
    let tape = tape_name(&TapeAddress { workspace: workspace.into(), session: "cli:local".into() });
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    store.commit(batch).await?;
    let mut next = 1;
    while next <= count {
        let last = count.min(next + ENTRIES_PER_IMPORT - 1);
        store.commit(import_batch(&tape, (next..=last).map(|id| sample_entry(id, count)).collect())).await?;
        next = last + 1;
    }
    Ok(())
}

fn import_batch(tape: &TapeName, entries: Vec<Entry>) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries });
    batch
}

/// Creates an entry as a turn writes it: anchors now and then, the last one near the end.
fn sample_entry(id: u64, count: u64) -> Entry {
    let is_anchor =
        id == 1 || id == count - ENTRIES_AFTER_ANCHOR || (id < count - ENTRIES_AFTER_ANCHOR && id.is_multiple_of(1000));
    let text = format!("message {id}: the capstan winds the rope, and the rope lifts the anchor from the ground");
    let (kind, payload) = match id % 2 {
        _ if is_anchor => ("anchor", json!({"name": "phase", "state": {"summary": "so far"}})),
        0 => ("message", json!({"role": "user", "content": text})),
        _ => ("message", json!({"role": "assistant", "content": text})),
    };
    let line = json!({"id": id, "kind": kind, "payload": payload, "meta": {}, "date": "2026-11-15T20:57:42+00:00"});
    parse_entry(line)
}

fn parse_entry(line: Value) -> Entry {
    serde_json::from_value(line).unwrap_or_else(|error| unreachable!("a valid entry: {error}"))
}

pub(crate) async fn run() -> BenchResult {
    println!(
        "long-tape: a turn (demo model) on a tape of {LONG_TAPE_ENTRIES} entries and on one of {SHORT_TAPE_ENTRIES}, {LONG_TAPE_TURNS} each, alternating"
    );
    let started_at = Instant::now();
    let mut benches = [TapeBench::new(SHORT_TAPE_ENTRIES).await?, TapeBench::new(LONG_TAPE_ENTRIES).await?];
    println!(
        "  databases in {}, filled in {:.1} s",
        std::env::temp_dir().display(),
        started_at.elapsed().as_secs_f64()
    );
    for number in 0..LONG_TAPE_WARM_UP_TURNS + LONG_TAPE_TURNS {
        // Alternate the order: the first one may pay for something that both need.
        if number % 2 == 0 {
            benches.reverse();
        }
        for bench in &mut benches {
            let elapsed = bench.time_turn("hello").await?;
            if number >= LONG_TAPE_WARM_UP_TURNS {
                bench.sample.push(elapsed);
            }
            if number % TURNS_PER_ANCHOR == 0 {
                bench.time_turn(",tape.handoff name=phase summary='so far'").await?;
            }
        }
    }
    for bench in &benches {
        bench.check_head().await?;
    }
    // The order was reversed an even number of times.
    let [short, long] = &benches;
    print_row("a turn on the short tape", &short.sample);
    print_row("a turn on the long tape", &long.sample);
    print_ratio("long to short", long.sample.ratio_to(&short.sample), Some(1.2));
    Ok(())
}

const _: () = assert!((LONG_TAPE_WARM_UP_TURNS + LONG_TAPE_TURNS).div_ceil(2).is_multiple_of(2));
