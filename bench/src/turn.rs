//! Complete turn without a model: acceptance, hooks, run, outcome, delivery.

use std::sync::Arc;
use std::time::Instant;

use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::Event;
use capstan::store::SqliteStore;
use capstan::tape::{MemoryStore, Store};
use capstan::{Capstan, Host};

use crate::BenchResult;
use crate::timing_sample::{TimingSample, print_ratio, print_row};

const TURN_WARM_UP_ROUNDS: usize = 20;
const TURN_ROUNDS: usize = 300;

/// Plugin that replies without a model.
pub(crate) struct EchoPlugin;

impl Plugin for EchoPlugin {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text())) });
        Ok(())
    }
}

async fn echo_host(folder: &std::path::Path, store: Arc<dyn Store>) -> Result<Host, capstan::CommandError> {
    let builder = Capstan::builder().home(folder).workspace(folder).set("model", "demo:");
    builder.store(store).plugin(EchoPlugin).start().await
}

pub(crate) async fn run() -> BenchResult {
    println!("turn: a complete turn without a model, {TURN_ROUNDS} each, alternating");
    let folder = tempfile::tempdir()?;
    println!("  database in {}", folder.path().display());
    let sqlite = SqliteStore::open(folder.path().join("capstan.db"))?;
    let hosts = [
        echo_host(folder.path(), Arc::new(MemoryStore::new())).await?,
        echo_host(folder.path(), Arc::new(sqlite)).await?,
    ];
    let mut samples = [TimingSample::default(), TimingSample::default()];
    for number in 0..TURN_WARM_UP_ROUNDS + TURN_ROUNDS {
        for (host, sample) in hosts.iter().zip(&mut samples) {
            let event = Event::message("cli", "local", "hello");
            let started_at = Instant::now();
            let served = host.serve(event).await?;
            let elapsed = started_at.elapsed();
            if let Some(error) = served.error {
                return Err(error.into());
            }
            if number >= TURN_WARM_UP_ROUNDS {
                sample.push(elapsed);
            }
        }
    }
    print_row("in memory", &samples[0]);
    print_row("on SQLite", &samples[1]);
    print_ratio("SQLite to memory", samples[1].ratio_to(&samples[0]), None);
    Ok(())
}
