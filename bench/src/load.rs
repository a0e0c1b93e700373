//! Many sessions at once: durable commits, and whole turns without a model.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan::protocol::{ChatMessage, Event, TapeName};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Draft, Fact, NewTape, Store};
use capstan::{Capstan, Host};

use crate::Outcome;
use crate::turn::Echo;

const FOR: Duration = Duration::from_secs(3);

pub(crate) async fn run() -> Outcome {
    let appends = appends(64).await?;
    println!("appends at 64: {appends:.0}/s");
    for sessions in [1, 8, 64, 512] {
        let rate = turns(sessions).await?;
        println!("turns at {sessions}: {rate:.0}/s; to appends/4: {:.2}", rate / (appends / 4.0));
    }
    Ok(())
}

async fn appends(writers: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db"))?);
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let tape = TapeName::parse(&format!("t{writer}")).unwrap();
            let mut batch = Batch::new();
            batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
            store.commit(batch).await.unwrap();
            let mut count = 0_u32;
            while begun.elapsed() < FOR {
                let mut batch = Batch::new();
                batch.append(&tape, Draft::message(&ChatMessage::user("hello")));
                store.commit(batch).await.unwrap();
                count += 1;
            }
            count
        });
    }
    let mut total = 0;
    while let Some(count) = tasks.join_next().await {
        total += count?;
    }
    Ok(f64::from(total) / begun.elapsed().as_secs_f64())
}

async fn host(folder: &Path) -> Result<Host, capstan::Failure> {
    Capstan::builder().home(folder).workspace(folder).set("model", "demo:").plugin(Echo).start().await
}

async fn turns(sessions: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let host = host(folder.path()).await?;
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for session in 0..sessions {
        let host = host.clone();
        tasks.spawn(async move {
            let mut count = 0_u32;
            while begun.elapsed() < FOR {
                let event = Event::message("cli", format!("s{session}"), "hello");
                host.serve(event).await.unwrap();
                count += 1;
            }
            count
        });
    }
    let mut total = 0;
    while let Some(count) = tasks.join_next().await {
        total += count?;
    }
    let rate = f64::from(total) / begun.elapsed().as_secs_f64();
    host.stop().await?;
    Ok(rate)
}
