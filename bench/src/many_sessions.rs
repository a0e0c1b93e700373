//! Many sessions: a thousand runs at the same time on a model that takes its time, and ten thousand sessions that are
//! known and idle.

use std::path::Path;
use std::time::{Duration, Instant};

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};

use crate::BenchResult;
use crate::load::WITH_AGENT_VARIABLE;
use crate::load::bench_host::BenchHost;
use crate::timing_sample::{TimingSample, print_ratio, print_row};

/// How many sessions have a run at the same time.
const BUSY_SESSIONS: usize = 1_000;
/// How long the model takes.
const MODEL_LATENCY: Duration = Duration::from_secs(1);
const BUSY_ROUNDS: usize = 3;
/// How many sessions are known and idle.
const IDLE_SESSIONS: usize = 10_000;
/// How many sessions talk at once, to make that many known.
const CONCURRENT_TURNS: usize = 64;
const HOST_STARTS: usize = 15;

type ManySessionsError = Box<dyn std::error::Error>;

pub(crate) async fn run() -> BenchResult {
    bench_busy_sessions().await?;
    bench_idle_sessions().await
}

/// A model whose answers are whole a second after they were asked for.
fn slow_model() -> ScriptedModel {
    ScriptedModel::start_blocking_with(|_, _| {
        let gate = ReplyBarrier::new();
        let opens = gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(MODEL_LATENCY).await;
            opens.release();
        });
        ScriptedReply::text("here you are").with_barrier(&gate)
    })
}

/// A thousand runs at the same time.
async fn bench_busy_sessions() -> BenchResult {
    println!(
        "many: {BUSY_SESSIONS} sessions with a run each at the same time, the model takes {} s",
        MODEL_LATENCY.as_secs()
    );
    let (mut alone, mut whole, mut added) = (TimingSample::default(), TimingSample::default(), TimingSample::default());
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
        let begun = Instant::now();
        child.run_one_turn_each(BUSY_SESSIONS, |time| added.push(time.saturating_sub(MODEL_LATENCY))).await?;
        whole.push(begun.elapsed());
        memory.push((before, child.peak_memory_kb()?, child.memory_kb()?));
        child.shut_down().await?;
        if !model.violations().is_empty() {
            return Err(format!("the model was asked wrongly: {:?}", model.violations()).into());
        }
    }
    println!(
        "  all answered after                 {:>10.2} s   (longest {:.2} s)",
        whole.millis(0.5) / 1000.0,
        whole.max_millis() / 1000.0
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
        println!("  memory {before:>7} kB before, {peak:>7} kB at most ({each} bytes a run), {after:>7} kB after");
    }
    Ok(())
}

/// Ten thousand sessions that are idle.
async fn bench_idle_sessions() -> BenchResult {
    println!("many: {IDLE_SESSIONS} sessions that are known and idle, against a home without any");
    let (empty, full) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for (folder, sessions) in [(&empty, CONCURRENT_TURNS), (&full, IDLE_SESSIONS)] {
        let mut child = BenchHost::start_in(folder.path(), &[]).await?;
        child.run_turns_bounded(sessions, CONCURRENT_TURNS, IDLE_SESSIONS).await?;
        let kilobytes = child.memory_kb()?;
        println!("  memory after {IDLE_SESSIONS} turns in {sessions:>5} sessions {kilobytes:>8} kB");
        child.shut_down().await?;
    }
    let nothing = tempfile::tempdir()?;
    let (mut without, mut with) = (TimingSample::default(), TimingSample::default());
    let (mut little, mut much) = (Vec::new(), Vec::new());
    for _ in 0..HOST_STARTS {
        little.push(measure_start(nothing.path(), &mut without).await?);
        much.push(measure_start(full.path(), &mut with).await?);
    }
    print_row("start, no sessions", &without);
    print_row(&format!("start, {IDLE_SESSIONS} sessions"), &with);
    print_ratio(&format!("{IDLE_SESSIONS} sessions, to none"), with.ratio_to(&without), None);
    little.sort_unstable();
    much.sort_unstable();
    println!(
        "  memory after the start             {:>10} kB without, {} kB with",
        little[HOST_STARTS / 2],
        much[HOST_STARTS / 2]
    );
    Ok(())
}

/// Starts a host, waits until it is ready and has answered once, and gives its memory. The time is until it is ready.
async fn measure_start(folder: &Path, times: &mut TimingSample) -> Result<u64, ManySessionsError> {
    let begun = Instant::now();
    let mut child = BenchHost::start_in(folder, &[]).await?;
    times.push(begun.elapsed());
    child.run_one_turn_each(1, |_| {}).await?;
    let kilobytes = child.memory_kb()?;
    child.shut_down().await?;
    Ok(kilobytes)
}
