//! A clock that jumps: neither order nor leases depend on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use capstan::hooks::points::RunModel;
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{Event, Outcome, SessionId, Timestamp, WorkspaceId};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Fact, NewTape, Store as _, TapeAddress, tape_name};
use capstan::{Capstan, Host, HostError, Served};
use capstan_host::Clock;
use tokio::sync::Semaphore;

use super::support::{Conversation, Registers};

const DAY: i64 = 24 * 60 * 60 * 1000;
const NOW: i64 = 20_000 * DAY;

#[tokio::test]
async fn x04_a_session_goes_on_in_order_when_the_clock_jumps_back() {
    let now = Arc::new(AtomicI64::new(NOW));
    let hands = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_millis(hands.load(Ordering::Relaxed)));
    let conversation = Conversation::new(|builder| builder.clock(clock).set("session_wait_seconds", "0")).await;
    for (text, time) in [("one", NOW), ("two", NOW - DAY), ("three", NOW - DAY + 1)] {
        now.store(time, Ordering::Relaxed);
        assert_replied(&conversation.say(text).await);
    }
    let ids: Vec<u64> = conversation.entries().await.iter().map(|entry| entry.id.0).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<u64>>());
    let asked: Vec<String> = conversation.view().await.into_iter().filter(|line| line.starts_with("user: ")).collect();
    let ends = ["one", "two", "three"].into_iter().zip(&asked);
    assert!(asked.len() == 3 && ends.clone().all(|(end, line)| line.ends_with(end)), "{asked:?}");
    let runs = conversation.host.tapes().store().runs(1).await.unwrap();
    assert_eq!(runs[0].started_at, Timestamp::from_millis(NOW - DAY + 1), "the newest run is the one that began last");
}

#[track_caller]
fn assert_replied(served: &Served) {
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
}

/// A host of a home that several have, whose clock stands still, and which waits for no lease.
async fn host(home: &Path, now: i64, plugin: impl Plugin) -> Host {
    let builder = Capstan::builder().home(home).workspace(home).set("session_wait_seconds", "0");
    builder.clock(Clock::new(move || Timestamp::from_millis(now))).plugin(plugin).start().await.unwrap()
}

fn nothing() -> impl Plugin {
    Registers("nothing", |_: &mut Registrar| {})
}

async fn say(host: &Host, text: &str) -> Served {
    host.serve(Event::message("cli", "local", text)).await.unwrap()
}

#[tokio::test]
async fn x04_a_live_owner_keeps_its_lease_whatever_the_clock_of_another_says() {
    let home = tempfile::tempdir().unwrap();
    let (reached, opened) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gate = (Arc::clone(&reached), Arc::clone(&opened));
    let at_the_gate = Registers("gate", move |hooks: &mut Registrar| {
        let (reached, opened) = gate.clone();
        hooks.on(RunModel, move || {
            let (reached, opened) = (Arc::clone(&reached), Arc::clone(&opened));
            async move {
                reached.add_permits(1);
                let _opened = opened.acquire().await?;
                Ok(Some("done".to_owned()))
            }
        });
    });
    let first = host(home.path(), NOW, at_the_gate).await;
    let later = async {
        let _reached = reached.acquire().await.unwrap();
        for now in [NOW - 365 * DAY, NOW + 365 * DAY] {
            let later = host(home.path(), now, nothing()).await;
            let busy = later.serve(Event::message("cli", "local", "and I?")).await.unwrap_err();
            assert_eq!(busy, HostError::SessionBusy);
        }
        opened.add_permits(1);
    };
    let (served, ()) = tokio::join!(say(&first, "one"), later);
    assert_replied(&served);
    assert_replied(&say(&host(home.path(), NOW - 365 * DAY, nothing()).await, "now").await);
}

#[tokio::test]
async fn x04_a_dead_owner_has_no_lease_though_by_the_clock_it_still_has() {
    let home = tempfile::tempdir().unwrap();
    let workspace = WorkspaceId::new(home.path().canonicalize().unwrap().to_string_lossy());
    let tape = tape_name(&TapeAddress { workspace, session: SessionId::new("cli:local") });
    let (now, until) = (Timestamp::from_millis(NOW), Timestamp::from_millis(NOW + DAY));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    batch.push(Fact::TakeLease { tape: tape.clone(), owner: "host-dead/1".into(), now, until, judged: None });
    SqliteStore::open(home.path().join("capstan.db")).unwrap().commit(batch).await.unwrap();
    let host = host(home.path(), NOW - 365 * DAY, nothing()).await;
    assert_replied(&say(&host, "still there?").await);
    let lease = host.tapes().store().lease(&tape).await.unwrap().unwrap();
    assert_eq!((lease.epoch.0, lease.owner), (2, None), "it was taken over, and given back");
}
