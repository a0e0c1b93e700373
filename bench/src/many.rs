//! Many sessions: a thousand runs at the same time on a model that takes its time, and ten thousand sessions that are
//! known and idle.

use std::path::Path;
use std::time::{Duration, Instant};

use capstan_testing::{Gate, Reply, ScriptedModel};

use crate::Outcome;
use crate::load::WITH_AGENT;
use crate::load::child::Child;
use crate::sample::{Sample, print_ratio, print_row};

/// How many sessions have a run at the same time.
const BUSY: usize = 1_000;
/// How long the model takes.
const LATENCY: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;
/// How many sessions are known and idle.
const IDLE: usize = 10_000;
/// How many sessions talk at once, to make that many known.
const AT_ONCE: usize = 64;
const STARTS: usize = 15;

type Failed = Box<dyn std::error::Error>;

pub(crate) async fn run() -> Outcome {
    busy().await?;
    idle().await
}

/// A model whose answers are whole a second after they were asked for.
fn slow_model() -> ScriptedModel {
    ScriptedModel::start_blocking_with(|_, _| {
        let gate = Gate::new();
        let opens = gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LATENCY).await;
            opens.open();
        });
        Reply::text("here you are").held_at(&gate)
    })
}

/// A thousand runs at the same time.
async fn busy() -> Outcome {
    println!("many: {BUSY} sessions with a run each at the same time, the model takes {} s", LATENCY.as_secs());
    let (mut alone, mut whole, mut added) = (Sample::default(), Sample::default(), Sample::default());
    let mut memory = Vec::new();
    for _ in 0..ROUNDS {
        let (folder, model) = (tempfile::tempdir()?, slow_model());
        let environment = [
            ("CAPSTAN_MODEL", "openai:scripted".to_owned()),
            ("CAPSTAN_API_KEY", "sk-0123456789abcdef".to_owned()),
            ("CAPSTAN_API_BASE", model.base_url()),
            (WITH_AGENT, "1".to_owned()),
        ];
        let mut child = Child::start_in(folder.path(), &environment).await?;
        child.talk_once(1, |time| alone.push(time.saturating_sub(LATENCY))).await?;
        let before = child.memory()?;
        let begun = Instant::now();
        child.talk_once(BUSY, |time| added.push(time.saturating_sub(LATENCY))).await?;
        whole.push(begun.elapsed());
        memory.push((before, child.peak()?, child.memory()?));
        child.end().await?;
        if !model.violations().is_empty() {
            return Err(format!("the model was asked wrongly: {:?}", model.violations()).into());
        }
    }
    println!(
        "  all answered after                 {:>10.2} s   (longest {:.2} s)",
        whole.millis(0.5) / 1000.0,
        whole.longest() / 1000.0
    );
    println!("  added to a run alone               {:>10.1} ms", alone.millis(0.5));
    println!(
        "  added to each of {BUSY}             {:>10.1} ms  (p99 {:.1} ms, longest {:.1} ms)",
        added.millis(0.5),
        added.millis(0.99),
        added.longest()
    );
    for (before, peak, after) in memory {
        let each = peak.saturating_sub(before) * 1024 / BUSY as u64;
        println!("  memory {before:>7} kB before, {peak:>7} kB at most ({each} bytes a run), {after:>7} kB after");
    }
    Ok(())
}

/// Ten thousand sessions that are idle.
async fn idle() -> Outcome {
    println!("many: {IDLE} sessions that are known and idle, against a home without any");
    let (empty, full) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for (folder, sessions) in [(&empty, AT_ONCE), (&full, IDLE)] {
        let mut child = Child::start_in(folder.path(), &[]).await?;
        child.talk_all(sessions, AT_ONCE, IDLE).await?;
        let kilobytes = child.memory()?;
        println!("  memory after {IDLE} turns in {sessions:>5} sessions {kilobytes:>8} kB");
        child.end().await?;
    }
    let nothing = tempfile::tempdir()?;
    let (mut without, mut with) = (Sample::default(), Sample::default());
    let (mut little, mut much) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        little.push(start(nothing.path(), &mut without).await?);
        much.push(start(full.path(), &mut with).await?);
    }
    print_row("start, no sessions", &without);
    print_row(&format!("start, {IDLE} sessions"), &with);
    print_ratio(&format!("{IDLE} sessions, to none"), with.ratio_to(&without), None);
    little.sort_unstable();
    much.sort_unstable();
    println!(
        "  memory after the start             {:>10} kB without, {} kB with",
        little[STARTS / 2],
        much[STARTS / 2]
    );
    Ok(())
}

/// Starts a host, waits until it is ready and has answered once, and gives its memory. The time is until it is ready.
async fn start(folder: &Path, times: &mut Sample) -> Result<u64, Failed> {
    let begun = Instant::now();
    let mut child = Child::start_in(folder, &[]).await?;
    times.push(begun.elapsed());
    child.talk_once(1, |_| {}).await?;
    let kilobytes = child.memory()?;
    child.end().await?;
    Ok(kilobytes)
}
