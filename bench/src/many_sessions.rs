//! Many sessions: a thousand concurrent runs on a slow model, and ten thousand idle sessions.

use std::path::Path;
use std::time::{Duration, Instant};

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};

use crate::load::WITH_AGENT_VARIABLE;
use crate::load::bench_host::BenchHost;
use crate::timing_sample::{TimingSample, print_ratio, print_row};
use crate::{BenchError, BenchResult};

/// Number of sessions with a concurrent run.
const BUSY_SESSIONS: usize = 1_000;
/// Latency of the model.
const MODEL_LATENCY: Duration = Duration::from_secs(1);
const BUSY_ROUNDS: usize = 3;
/// Number of idle sessions.
const IDLE_SESSIONS: usize = 10_000;
/// Number of concurrent turns while the idle sessions are created.
const CONCURRENT_TURNS: usize = 64;
const HOST_STARTS: usize = 15;

pub(crate) async fn run() -> BenchResult {
    bench_busy_sessions().await?;
    bench_idle_sessions().await
}

/// Starts a model whose replies are complete one second after the request.
fn slow_model() -> ScriptedModel {
    ScriptedModel::start_blocking_with(|_, _| {
        let barrier = ReplyBarrier::new();
        let release = barrier.clone();
        tokio::spawn(async move {
            tokio::time::sleep(MODEL_LATENCY).await;
            release.release();
        });
        ScriptedReply::text("here you are").with_barrier(&barrier)
    })
}

/// Measures a thousand concurrent runs.
async fn bench_busy_sessions() -> BenchResult {
    println!(
        "many: {BUSY_SESSIONS} sessions with one concurrent run each, model latency {} s",
        MODEL_LATENCY.as_secs()
    );
    let (mut alone, mut total, mut added) = (TimingSample::default(), TimingSample::default(), TimingSample::default());
    let mut memory = Vec::new();
    for _ in 0..BUSY_ROUNDS {
        let (folder, model) = (tempfile::tempdir()?, slow_model());
        let environment = [
            ("CAPSTAN_MODEL", "openai:scripted".to_owned()),
            ("CAPSTAN_API_KEY", "sk-0123456789abcdef".to_owned()),
            ("CAPSTAN_API_BASE", model.base_url()),
            (WITH_AGENT_VARIABLE, "1".to_owned()),
        ];
        let mut child = BenchHost::start_in(folder.path(), &environment).await?;
        child.run_one_turn_each(1, |time| alone.push(time.saturating_sub(MODEL_LATENCY))).await?;
        let before = child.memory_kb()?;
        let started_at = Instant::now();
        child.run_one_turn_each(BUSY_SESSIONS, |time| added.push(time.saturating_sub(MODEL_LATENCY))).await?;
        total.push(started_at.elapsed());
        memory.push((before, child.peak_memory_kb()?, child.memory_kb()?));
        child.shut_down().await?;
        if !model.violations().is_empty() {
            return Err(format!("invalid model requests: {:?}", model.violations()).into());
        }
    }
    println!(
        "  all replies after                  {:>10.2} s   (longest {:.2} s)",
        total.millis(0.5) / 1000.0,
        total.max_millis() / 1000.0
    );
    println!("  added to a run alone               {:>10.1} ms", alone.millis(0.5));
    println!(
        "  added to each of {BUSY_SESSIONS}             {:>10.1} ms  (p99 {:.1} ms, longest {:.1} ms)",
        added.millis(0.5),
        added.millis(0.99),
        added.max_millis()
    );
    for (before, peak, after) in memory {
        let each = peak.saturating_sub(before) * 1024 / BUSY_SESSIONS as u64;
        println!("  memory {before:>7} kB before, {peak:>7} kB peak ({each} bytes per run), {after:>7} kB after");
    }
    Ok(())
}

/// Measures ten thousand idle sessions.
async fn bench_idle_sessions() -> BenchResult {
    println!("many: {IDLE_SESSIONS} idle sessions, compared with an empty home");
    let (empty, full) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for (folder, sessions) in [(&empty, CONCURRENT_TURNS), (&full, IDLE_SESSIONS)] {
        let mut child = BenchHost::start_in(folder.path(), &[]).await?;
        child.run_turns_bounded(sessions, CONCURRENT_TURNS, IDLE_SESSIONS).await?;
        let kilobytes = child.memory_kb()?;
        println!("  memory after {IDLE_SESSIONS} turns in {sessions:>5} sessions {kilobytes:>8} kB");
        child.shut_down().await?;
    }
    let none = tempfile::tempdir()?;
    let (mut without, mut with) = (TimingSample::default(), TimingSample::default());
    let (mut memory_without, mut memory_with) = (Vec::new(), Vec::new());
    for _ in 0..HOST_STARTS {
        memory_without.push(measure_start(none.path(), &mut without).await?);
        memory_with.push(measure_start(full.path(), &mut with).await?);
    }
    print_row("start, no sessions", &without);
    print_row(&format!("start, {IDLE_SESSIONS} sessions"), &with);
    print_ratio(&format!("{IDLE_SESSIONS} sessions, to none"), with.ratio_to(&without), None);
    memory_without.sort_unstable();
    memory_with.sort_unstable();
    println!(
        "  memory after the start             {:>10} kB without, {} kB with",
        memory_without[HOST_STARTS / 2],
        memory_with[HOST_STARTS / 2]
    );
    Ok(())
}

/// Starts a host and returns its memory after one turn. The time is measured until the host is ready.
async fn measure_start(folder: &Path, times: &mut TimingSample) -> Result<u64, BenchError> {
    let started_at = Instant::now();
    let mut child = BenchHost::start_in(folder, &[]).await?;
    times.push(started_at.elapsed());
    child.run_one_turn_each(1, |_| {}).await?;
    let kilobytes = child.memory_kb()?;
    child.shut_down().await?;
    Ok(kilobytes)
}
