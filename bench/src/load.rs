//! Many sessions at once: durable commits, and whole turns without a model over the stdio channel.

pub(crate) mod child;
mod raw;

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan::protocol::{ChatMessage, TapeName};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Draft, Fact, NewTape, Store};

use crate::Outcome;
use crate::sample::Sample;
use child::Child;
pub(crate) use child::{SERVE, WITH_AGENT};

/// How long each thing is measured, and how often, in turns.
const EACH: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
/// How many write at once where one number is wanted.
const WRITERS: u32 = 64;
/// The numbers of sessions that talk at once.
const SESSIONS: [usize; 4] = [1, 8, 64, 512];
/// How many commits a turn without tools makes.
const COMMITS: f64 = 4.0;
/// How many rows a commit of a turn without tools writes, on average: 17 in 4 commits.
const ROWS: u32 = 4;
/// What part of the raw rate turns must reach, commit for commit.
const TARGET: f64 = 0.5;

/// Durable writes and turns a second.
pub(crate) async fn run() -> Outcome {
    println!("load: durable commits and turns without a model, {} s each, {ROUNDS} rounds in turns", EACH.as_secs());
    let mut raw = Rates::default();
    let mut alike = Rates::default();
    let mut appends = Rates::default();
    let mut turns: Vec<(Rates, Sample)> = SESSIONS.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        raw.push(raw::transactions(WRITERS, 1, EACH)?);
        alike.push(raw::transactions(WRITERS, ROWS, EACH)?);
        appends.push(store_appends().await?);
        for (sessions, (rates, times)) in SESSIONS.into_iter().zip(&mut turns) {
            let mut child = Child::start().await?;
            rates.push(child.talk(sessions, EACH, times).await?);
            child.end().await?;
        }
    }
    println!("  raw SQLite, 1 row each, {WRITERS} writers   {:>10.0} transactions/s", raw.median());
    println!("  raw SQLite, {ROWS} rows each, {WRITERS} writers  {:>10.0} transactions/s", alike.median());
    println!("  store, one append each, {WRITERS} writers   {:>10.0} appends/s", appends.median());
    for (sessions, (rates, times)) in SESSIONS.into_iter().zip(&turns) {
        println!(
            "  stdio, {sessions:>3} sessions                  {:>10.0} turns/s   p50 {:.2} ms, p99 {:.2} ms",
            rates.median(),
            times.millis(0.5),
            times.millis(0.99)
        );
    }
    let at_64 = &turns[2].0;
    let ratios = at_64.to(&alike);
    let ratio = ratios.median();
    let (least, most) = ratios.range();
    let judged = if ratio >= TARGET { "met" } else { "MISSED" };
    println!(
        "  turns at 64 to raw of {ROWS} rows / {COMMITS}   {ratio:>10.2}  ({least:.2} to {most:.2} in the rounds; \
         target: at least {TARGET}, {judged})"
    );
    // Smaller transactions than a turn has: what a row more costs is in these.
    let ratio = at_64.to(&raw).median();
    let judged = if ratio >= TARGET { "met" } else { "MISSED" };
    println!(
        "  turns at 64 to raw of 1 row / {COMMITS}    {ratio:>10.2}  (target, read so: at least {TARGET}, {judged})"
    );
    println!("  turns at 64 to appends / {COMMITS}         {:>10.2}", at_64.to(&appends).median());
    Ok(())
}

/// How the memory of a host grows over many turns.
pub(crate) async fn memory() -> Outcome {
    const TURNS: usize = 100_000;
    const EVERY: usize = 10_000;
    println!("memory: {TURNS} turns without a model in 64 sessions over the stdio channel");
    let mut child = Child::start().await?;
    let mut readings = Vec::new();
    for turns in (EVERY..=TURNS).step_by(EVERY) {
        child.talk_for(64, EVERY).await?;
        let kilobytes = child.memory()?;
        println!("  after {turns:>6} turns {kilobytes:>8} kB");
        readings.push(kilobytes);
    }
    child.end().await?;
    // The first half fills caches, which have a size; the second says whether something grows for ever.
    let (middle, last) = (readings[readings.len() / 2 - 1], readings[readings.len() - 1]);
    #[expect(clippy::cast_precision_loss, reason = "kilobytes of a process")]
    let slope = (last as f64 - middle as f64) * 1024.0 / (TURNS / 2) as f64;
    println!("  second half: {slope:.0} bytes a turn");
    Ok(())
}

/// Figures a second, of which the middle one counts.
#[derive(Default)]
struct Rates(Vec<f64>);

impl Rates {
    fn push(&mut self, rate: f64) {
        self.0.push(rate);
    }

    /// Turns of each round to what four commits of the same round would give.
    fn to(&self, rates: &Self) -> Self {
        Self(self.0.iter().zip(&rates.0).map(|(turns, rate)| turns / (rate / COMMITS)).collect())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut rates = self.0.clone();
        rates.sort_by(f64::total_cmp);
        rates
    }

    fn median(&self) -> f64 {
        self.sorted().get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn range(&self) -> (f64, f64) {
        let rates = self.sorted();
        (rates.first().copied().unwrap_or_default(), rates.last().copied().unwrap_or_default())
    }
}

async fn store_appends() -> Result<f64, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db"))?);
    let begun = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        let tape = TapeName::parse(format!("t{writer}"))?;
        writers.spawn(async move {
            let mut batch = Batch::new();
            batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
            store.commit(batch).await?;
            let mut count = 0_u32;
            while begun.elapsed() < EACH {
                let mut batch = Batch::new();
                batch.append(&tape, Draft::message(&ChatMessage::user("hello")));
                store.commit(batch).await?;
                count += 1;
            }
            Ok::<_, capstan::tape::StoreError>(count)
        });
    }
    let mut total = 0;
    while let Some(count) = writers.join_next().await {
        total += count??;
    }
    Ok(f64::from(total) / begun.elapsed().as_secs_f64())
}
