//! A clock that jumps: neither order nor leases depend on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use capstan::hooks::points::RunModel;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{Event, Outcome, SessionId, Timestamp, WorkspaceId};
use capstan::store::SqliteStore;
use capstan::tape::{Batch, Fact, JournalStore as _, NewTape, TapeAddress, tape_name};
use capstan::{Capstan, Host, HostError, ServedEvent};
use capstan_protocol::Clock;
use tokio::sync::Semaphore;

use super::support::{ClosurePlugin, TestConversation};

const DAY_IN_MILLIS: i64 = 24 * 60 * 60 * 1000;
const NOW_MILLIS: i64 = 20_000 * DAY_IN_MILLIS;

#[tokio::test]
async fn x04_a_session_goes_on_in_order_when_the_clock_jumps_back() {
    let now = Arc::new(AtomicI64::new(NOW_MILLIS));
    let hands = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_millis(hands.load(Ordering::Relaxed)));
    let conversation = TestConversation::new(|builder| builder.clock(clock).set("session_wait_seconds", "0")).await;
    for (text, time) in
        [("one", NOW_MILLIS), ("two", NOW_MILLIS - DAY_IN_MILLIS), ("three", NOW_MILLIS - DAY_IN_MILLIS + 1)]
    {
        now.store(time, Ordering::Relaxed);
        assert_replied(&conversation.send_message(text).await);
    }
    let ids: Vec<u64> = conversation.entries().await.iter().map(|entry| entry.id.0).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<u64>>());
    let asked: Vec<String> = conversation.view().await.into_iter().filter(|line| line.starts_with("user: ")).collect();
    let ends = ["one", "two", "three"].into_iter().zip(&asked);
    assert!(asked.len() == 3 && ends.clone().all(|(end, line)| line.ends_with(end)), "{asked:?}");
    let runs = conversation.host.tapes().store().run_page(None, 1).await.unwrap();
    assert_eq!(
        runs[0].started_at,
        Timestamp::from_millis(NOW_MILLIS - DAY_IN_MILLIS + 1),
        "the newest run is the one that began last"
    );
}

#[track_caller]
fn assert_replied(served: &ServedEvent) {
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
}

/// A host of a home that several have, whose clock stands still, and which waits for no lease.
async fn start_host_at(home: &Path, now: i64, plugin: impl Plugin) -> Host {
    let builder = Capstan::builder().home(home).workspace(home).set("session_wait_seconds", "0");
    builder.clock(Clock::new(move || Timestamp::from_millis(now))).plugin(plugin).start().await.unwrap()
}

fn noop_plugin() -> impl Plugin {
    ClosurePlugin("nothing", |_: &mut HookRegistrar| {})
}

async fn serve_text(host: &Host, text: &str) -> ServedEvent {
    host.serve(Event::message("cli", "local", text)).await.unwrap()
}

#[tokio::test]
async fn x04_a_live_owner_keeps_its_lease_whatever_the_clock_of_another_says() {
    let home = tempfile::tempdir().unwrap();
    let (reached, opened) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gate = (Arc::clone(&reached), Arc::clone(&opened));
    let at_the_gate = ClosurePlugin("gate", move |hooks: &mut HookRegistrar| {
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
    let first = start_host_at(home.path(), NOW_MILLIS, at_the_gate).await;
    let later = async {
        let _reached = reached.acquire().await.unwrap();
        for now in [NOW_MILLIS - 365 * DAY_IN_MILLIS, NOW_MILLIS + 365 * DAY_IN_MILLIS] {
            let later = start_host_at(home.path(), now, noop_plugin()).await;
            let busy = later.serve(Event::message("cli", "local", "and I?")).await.unwrap_err();
            assert_eq!(busy, HostError::SessionBusy);
        }
        opened.add_permits(1);
    };
    let (served, ()) = tokio::join!(serve_text(&first, "one"), later);
    assert_replied(&served);
    assert_replied(
        &serve_text(&start_host_at(home.path(), NOW_MILLIS - 365 * DAY_IN_MILLIS, noop_plugin()).await, "now").await,
    );
}

#[tokio::test]
async fn x04_a_dead_owner_has_no_lease_though_by_the_clock_it_still_has() {
    let home = tempfile::tempdir().unwrap();
    let workspace = WorkspaceId::new(home.path().canonicalize().unwrap().to_string_lossy());
    let tape = tape_name(&TapeAddress { workspace, session: SessionId::new("cli:local") });
    let (now, until) = (Timestamp::from_millis(NOW_MILLIS), Timestamp::from_millis(NOW_MILLIS + DAY_IN_MILLIS));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(tape.clone())));
    batch.push(Fact::TakeLease {
        tape: tape.clone(),
        owner: "host-dead/1".into(),
        now,
        expires_at: until,
        owner_liveness: None,
    });
    SqliteStore::open(home.path().join("capstan.db")).unwrap().commit(batch).await.unwrap();
    let host = start_host_at(home.path(), NOW_MILLIS - 365 * DAY_IN_MILLIS, noop_plugin()).await;
    assert_replied(&serve_text(&host, "still there?").await);
    let lease = host.tapes().store().lease(&tape).await.unwrap().unwrap();
    assert_eq!((lease.epoch.0, lease.owner), (2, None), "it was taken over, and given back");
}
