//! Many concurrent sessions: durable commits, and complete turns without a model over the stdio channel.

pub(crate) mod bench_host;
mod raw_sqlite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan::protocol::{ChatMessage, TapeName};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, EntryDraft, Fact, JournalStore as _, NewTape};

use crate::timing_sample::TimingSample;
use crate::{BenchError, BenchResult};
use bench_host::BenchHost;
pub(crate) use bench_host::{SERVE_COMMAND, WITH_AGENT_VARIABLE};

/// Duration and number of measurements, alternating between the subjects.
const LOAD_ROUND_DURATION: Duration = Duration::from_secs(2);
const LOAD_ROUNDS: usize = 5;
/// Number of concurrent writers.
const CONCURRENT_WRITERS: u32 = 64;
/// Numbers of concurrent sessions.
const SESSION_COUNTS: [usize; 4] = [1, 8, 64, 512];
/// Number of commits of a turn without tools.
const COMMITS_PER_TURN: f64 = 4.0;
/// Average number of rows per commit of a turn without tools: 17 in 4 commits.
const ROWS_PER_COMMIT: u32 = 4;
/// Target ratio of turns to the raw rate, commit for commit.
const TARGET_RATIO: f64 = 0.5;

/// Measures durable writes and turns per second.
pub(crate) async fn run() -> BenchResult {
    println!(
        "load: durable commits and turns without a model, {} s each, {LOAD_ROUNDS} alternating rounds",
        LOAD_ROUND_DURATION.as_secs()
    );
    let mut raw = RateSample::default();
    let mut raw_equal_rows = RateSample::default();
    let mut appends = RateSample::default();
    let mut turns: Vec<(RateSample, TimingSample)> = SESSION_COUNTS.iter().map(|_| Default::default()).collect();
    for _ in 0..LOAD_ROUNDS {
        raw.push(raw_sqlite::measure_transactions(CONCURRENT_WRITERS, 1, LOAD_ROUND_DURATION)?);
        raw_equal_rows.push(raw_sqlite::measure_transactions(
            CONCURRENT_WRITERS,
            ROWS_PER_COMMIT,
            LOAD_ROUND_DURATION,
        )?);
        appends.push(measure_store_appends().await?);
        for (sessions, (rates, times)) in SESSION_COUNTS.into_iter().zip(&mut turns) {
            let mut child = BenchHost::start().await?;
            rates.push(child.run_for(sessions, LOAD_ROUND_DURATION, times).await?);
            child.shut_down().await?;
        }
    }
    println!("  raw SQLite, 1 row each, {CONCURRENT_WRITERS} writers   {:>10.0} transactions/s", raw.median());
    println!(
        "  raw SQLite, {ROWS_PER_COMMIT} rows each, {CONCURRENT_WRITERS} writers  {:>10.0} transactions/s",
        raw_equal_rows.median()
    );
    println!("  store, one append each, {CONCURRENT_WRITERS} writers   {:>10.0} appends/s", appends.median());
    for (sessions, (rates, times)) in SESSION_COUNTS.into_iter().zip(&turns) {
        println!(
            "  stdio, {sessions:>3} sessions                  {:>10.0} turns/s   p50 {:.2} ms, p99 {:.2} ms",
            rates.median(),
            times.millis(0.5),
            times.millis(0.99)
        );
    }
    let at_64 = &turns[2].0;
    let ratios = at_64.relative_to(&raw_equal_rows);
    let ratio = ratios.median();
    let (min, max) = ratios.range();
    let verdict = if ratio >= TARGET_RATIO { "met" } else { "MISSED" };
    println!(
        "  turns at 64 to raw of {ROWS_PER_COMMIT} rows / {COMMITS_PER_TURN}   {ratio:>10.2}  ({min:.2} to {max:.2} in the rounds; \
         target: at least {TARGET_RATIO}, {verdict})"
    );
    // Transactions of one row are smaller than those of a turn, so this ratio includes the cost of the other rows.
    let ratio = at_64.relative_to(&raw).median();
    let verdict = if ratio >= TARGET_RATIO { "met" } else { "MISSED" };
    println!(
        "  turns at 64 to raw of 1 row / {COMMITS_PER_TURN}    {ratio:>10.2}  (target, read this way: at least {TARGET_RATIO}, {verdict})"
    );
    println!("  turns at 64 to appends / {COMMITS_PER_TURN}         {:>10.2}", at_64.relative_to(&appends).median());
    Ok(())
}

/// Measures the growth of a host's memory over many turns.
pub(crate) async fn run_memory() -> BenchResult {
    const MEMORY_TURNS: usize = 100_000;
    const TURNS_PER_READING: usize = 10_000;
    println!("memory: {MEMORY_TURNS} turns without a model in 64 sessions over the stdio channel");
    let mut child = BenchHost::start().await?;
    let mut readings = Vec::new();
    for turns in (TURNS_PER_READING..=MEMORY_TURNS).step_by(TURNS_PER_READING) {
        child.run_turns(64, TURNS_PER_READING).await?;
        let kilobytes = child.memory_kb()?;
        println!("  after {turns:>6} turns {kilobytes:>8} kB");
        readings.push(kilobytes);
    }
    child.shut_down().await?;
    // The first half fills caches of limited size; the second shows unbounded growth.
    let (middle, last) = (readings[readings.len() / 2 - 1], readings[readings.len() - 1]);
    #[expect(clippy::cast_precision_loss, reason = "kilobytes of a process")]
    let slope = (last as f64 - middle as f64) * 1024.0 / (MEMORY_TURNS / 2) as f64;
    println!("  second half: {slope:.0} bytes per turn");
    Ok(())
}

/// Measures the memory of a host during bursts of many sessions, and after them when it is idle.
pub(crate) async fn run_bursts() -> BenchResult {
    const BURST_TURNS: usize = 200_000;
    const BURST_SESSIONS: usize = 1_000;
    const TURNS_PER_BURST: usize = 20_000;
    /// The first few seconds without work; the host returns memory when its sessions have passivated.
    const IDLE_DURATION: Duration = Duration::from_secs(15);
    const MAX_BUSY_KB: u64 = 120 * 1024;
    const MAX_IDLE_KB: u64 = 60 * 1024;
    println!(
        "bursts: {BURST_TURNS} turns without a model, {BURST_SESSIONS} sessions at a time, over the stdio channel"
    );
    let mut child = BenchHost::start().await?;
    for turns in (TURNS_PER_BURST..=BURST_TURNS).step_by(TURNS_PER_BURST) {
        child.run_turns(BURST_SESSIONS, TURNS_PER_BURST).await?;
        let (now, threads) = (child.memory_kb()?, child.thread_count()?);
        println!("  after {turns:>6} turns {now:>8} kB, {threads} threads");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    tokio::time::sleep(IDLE_DURATION).await;
    let (peak, idle, threads) = (child.peak_memory_kb()?, child.memory_kb()?, child.thread_count()?);
    let verdict = |is_met: bool| if is_met { "met" } else { "MISSED" };
    println!("  peak {peak} kB (target: below {MAX_BUSY_KB}, {})", verdict(peak < MAX_BUSY_KB));
    println!("  idle {idle} kB, {threads} threads (target: below {MAX_IDLE_KB}, {})", verdict(idle < MAX_IDLE_KB));
    child.shut_down().await
}

/// Rates per second.
#[derive(Default)]
struct RateSample(Vec<f64>);

impl RateSample {
    fn push(&mut self, rate: f64) {
        self.0.push(rate);
    }

    /// Returns the turns of each round relative to four commits of the same round.
    fn relative_to(&self, rates: &Self) -> Self {
        Self(self.0.iter().zip(&rates.0).map(|(turns, rate)| turns / (rate / COMMITS_PER_TURN)).collect())
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

async fn measure_store_appends() -> Result<f64, BenchError> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db"))?);
    let started_at = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..CONCURRENT_WRITERS {
        let store = Arc::clone(&store);
        let tape = TapeName::parse(format!("t{writer}"))?;
        writers.spawn(async move {
            let mut batch = Batch::new();
            batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
            store.commit(batch).await?;
            let mut count = 0_u32;
            while started_at.elapsed() < LOAD_ROUND_DURATION {
                let mut batch = Batch::new();
                batch.append(&tape, EntryDraft::message(&ChatMessage::user("hello")));
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
    Ok(f64::from(total) / started_at.elapsed().as_secs_f64())
}
