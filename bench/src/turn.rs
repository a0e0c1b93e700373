//! A whole turn without a model: acceptance, hooks, run, outcome, delivery.

use std::sync::Arc;
use std::time::Instant;

use capstan::hooks::args::Prompt;
use capstan::hooks::points::RunModel;
use capstan::hooks::{BoxError, Plugin, Registrar};
use capstan::protocol::Event;
use capstan::store::SqliteStore;
use capstan::tape::{MemoryStore, Store};
use capstan::{Capstan, Host};

use crate::Outcome;
use crate::sample::{Sample, print_ratio, print_row};

const WARM_UP: usize = 20;
const TURNS: usize = 300;

/// Answers without a model.
pub(crate) struct Echo;

impl Plugin for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        hooks.on(RunModel, |prompt: Prompt| async move { Ok(Some(prompt.text())) });
        Ok(())
    }
}

async fn host(folder: &std::path::Path, store: Arc<dyn Store>) -> Result<Host, capstan::Failure> {
    let builder = Capstan::builder().home(folder).workspace(folder).set("model", "demo:");
    builder.store(store).plugin(Echo).start().await
}

pub(crate) async fn run() -> Outcome {
    println!("turn: a whole turn without a model, {TURNS} each, in turns");
    let folder = tempfile::tempdir()?;
    println!("  database in {}", folder.path().display());
    let sqlite = SqliteStore::open(folder.path().join("capstan.db"))?;
    let hosts =
        [host(folder.path(), Arc::new(MemoryStore::new())).await?, host(folder.path(), Arc::new(sqlite)).await?];
    let mut samples = [Sample::default(), Sample::default()];
    for number in 0..WARM_UP + TURNS {
        for (host, sample) in hosts.iter().zip(&mut samples) {
            let event = Event::message("cli", "local", "hello");
            let begun = Instant::now();
            let served = host.serve(event).await?;
            let elapsed = begun.elapsed();
            if let Some(error) = served.error {
                return Err(error.into());
            }
            if number >= WARM_UP {
                sample.push(elapsed);
            }
        }
    }
    print_row("in memory", &samples[0]);
    print_row("on SQLite", &samples[1]);
    print_ratio("SQLite to memory", samples[1].ratio_to(&samples[0]), None);
    Ok(())
}
