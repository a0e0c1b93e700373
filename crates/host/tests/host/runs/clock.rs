//! Clock jumps: neither the order of a session nor leases depend on the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use capstan_hooks::points::RunModel;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_host::{HostError, ServedEvent};
use capstan_protocol::Clock;
use capstan_protocol::{Event, Outcome, SessionId, Timestamp, WorkspaceId};
use capstan_tape::{Batch, Fact, NewTape, TapeAddress, tape_name};
use tokio::sync::Semaphore;

const DAY_IN_MILLIS: i64 = 24 * 60 * 60 * 1000;
const NOW_MILLIS: i64 = 20_000 * DAY_IN_MILLIS;

#[tokio::test]
async fn x04_a_session_stays_in_order_when_the_clock_jumps_back() {
    let now = Arc::new(AtomicI64::new(NOW_MILLIS));
    let clock_now = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_millis(clock_now.load(Ordering::Relaxed)));
    let builder = TestHost::builder().options(|options| {
        options.clock = clock;
        options.session_wait_timeout = Duration::ZERO;
    });
    let conversation = builder.start().await;
    for (text, time) in
        [("one", NOW_MILLIS), ("two", NOW_MILLIS - DAY_IN_MILLIS), ("three", NOW_MILLIS - DAY_IN_MILLIS + 1)]
    {
        now.store(time, Ordering::Relaxed);
        assert_replied(&conversation.send_message(text).await);
    }
    let ids: Vec<u64> = conversation.entries().await.iter().map(|entry| entry.id.0).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<u64>>());
    let user_lines: Vec<String> =
        conversation.view().await.into_iter().filter(|line| line.starts_with("user: ")).collect();
    let ends = ["one", "two", "three"].into_iter().zip(&user_lines);
    assert!(user_lines.len() == 3 && ends.clone().all(|(end, line)| line.ends_with(end)), "{user_lines:?}");
    let runs = conversation.tapes().store().run_page(None, 1).await.unwrap();
    assert_eq!(
        runs[0].started_at,
        Timestamp::from_millis(NOW_MILLIS - DAY_IN_MILLIS + 1),
        "the newest run is the one that started last"
    );
}

#[track_caller]
fn assert_replied(served: &ServedEvent) {
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
}

/// Starts a host with its own connection, a fixed clock and no wait for leases.
async fn start_host_at(environment: &TestEnvironment, now: i64, plugin: impl Plugin) -> TestHost {
    let builder = environment.host_with_own_connection().plugin(plugin);
    let builder = builder.options(|options| {
        options.session_wait_timeout = Duration::ZERO;
        options.clock = Clock::new(move || Timestamp::from_millis(now));
    });
    builder.start().await
}

fn noop_plugin() -> impl Plugin {
    ClosurePlugin::new("nothing", |_: &mut HookRegistrar| {})
}

#[tokio::test]
async fn x04_a_live_owner_keeps_its_lease_when_another_clock_differs() {
    let environment = TestEnvironment::on_disk();
    let (reached, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let signals = (Arc::clone(&reached), Arc::clone(&released));
    let blocking_plugin = ClosurePlugin::new("blocking", move |hooks: &mut HookRegistrar| {
        let (reached, released) = signals.clone();
        hooks.on(RunModel, move || {
            let (reached, released) = (Arc::clone(&reached), Arc::clone(&released));
            async move {
                reached.add_permits(1);
                let _permit = released.acquire().await?;
                Ok(Some("done".to_owned()))
            }
        });
    });
    let first = start_host_at(&environment, NOW_MILLIS, blocking_plugin).await;
    let contend = async {
        let _permit = reached.acquire().await.unwrap();
        for now in [NOW_MILLIS - 365 * DAY_IN_MILLIS, NOW_MILLIS + 365 * DAY_IN_MILLIS] {
            let contender = start_host_at(&environment, now, noop_plugin()).await;
            let busy = contender.serve(Event::message("cli", "local", "and I?")).await.unwrap_err();
            assert_eq!(busy, HostError::SessionBusy);
        }
        released.add_permits(1);
    };
    let (served, ()) = tokio::join!(first.send_message("one"), contend);
    assert_replied(&served);
    let next = start_host_at(&environment, NOW_MILLIS - 365 * DAY_IN_MILLIS, noop_plugin()).await;
    assert_replied(&next.send_message("now").await);
}

#[tokio::test]
async fn x04_a_dead_owner_loses_its_lease_before_it_expires() {
    let environment = TestEnvironment::on_disk();
    let workspace = WorkspaceId::new(environment.workspace().to_string_lossy());
    let tape = tape_name(&TapeAddress { workspace, session: SessionId::new("cli:local") });
    let (now, expires_at) = (Timestamp::from_millis(NOW_MILLIS), Timestamp::from_millis(NOW_MILLIS + DAY_IN_MILLIS));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    batch.push(Fact::TakeLease {
        tape: tape.clone(),
        owner: "host-dead/1".into(),
        now,
        expires_at,
        owner_liveness: None,
    });
    environment.store().commit(batch).await.unwrap();
    let host = start_host_at(&environment, NOW_MILLIS - 365 * DAY_IN_MILLIS, noop_plugin()).await;
    assert_replied(&host.send_message("still there?").await);
    let lease = host.tapes().store().lease(&tape).await.unwrap().unwrap();
    assert_eq!((lease.epoch.0, lease.owner), (2, None), "the lease was taken over and released");
}
