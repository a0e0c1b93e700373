//! Lifetime of a host and its runs, and the messages of failed runs.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_host::ResultLimits;
use capstan_host::testing::{TestEnvironment, TestHost};
use capstan_protocol::{Descriptor, Event, Outcome, PermissionSet, ResultBody, RunContext, RunnerCapabilities};
use capstan_tape::MemoryStore;
use futures::{StreamExt as _, stream};
use tokio::sync::Notify;

use super::api_runner::action_runner_plugin;
use super::support::results_plugin;

#[tokio::test]
async fn a_stopped_host_releases_its_store_and_every_run() {
    let store = Arc::new(MemoryStore::new());
    let weak_store = Arc::downgrade(&store);
    let host = TestEnvironment::with_store(store).host().start().await;
    host.serve(Event::message("cli", "local", "[[tool:tape.info]]")).await.unwrap();
    host.stop().await.unwrap();
    assert!(weak_store.upgrade().is_none(), "a finished turn keeps nothing alive");
}

#[tokio::test]
async fn x01_a_repeated_event_gets_its_first_outcome_and_has_no_second_effect() {
    let host = TestHost::builder().start().await;
    let event = Event::message("cli", "local", "hello");
    let first = host.serve(event.clone()).await.unwrap();
    let head = host.tapes().list().await.unwrap()[0].head;
    let again = host.serve(event).await.unwrap();
    assert!(again.is_duplicate && !first.is_duplicate);
    assert_eq!((again.run_id, again.outbounds), (first.run_id, first.outbounds));
    assert!(matches!(again.outcome, Some(Outcome::Replied { .. })));
    assert_eq!(host.tapes().list().await.unwrap()[0].head, head, "no entry was written");
}

/// Runner without effects outside the host that waits for a notification and completes.
struct IdleRunner(Arc<Notify>);

impl Runner for IdleRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = RunnerCapabilities { effects_through_host: true, ..RunnerCapabilities::default() };
        Descriptor { capabilities, ..Descriptor::new("builtin:agent", "idle") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let notify = Arc::clone(&self.0);
        stream::once(async move {
            notify.notified().await;
            ResultBody::RunCompleted { silent: true }.into()
        })
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn g10_an_idle_run_is_listed_as_open() {
    let notify = Arc::new(Notify::new());
    let conversation = TestHost::builder().agent(IdleRunner(Arc::clone(&notify))).start().await;
    let store = conversation.tapes().store().clone();
    let find_run = async {
        loop {
            match store.open_runs().collect().await.unwrap().pop() {
                Some(run) => break run.run_id,
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let find_and_release = async {
        let found = tokio::time::timeout(Duration::from_mins(1), find_run).await;
        notify.notify_one();
        found.expect("the run is listed")
    };
    let (served, found) = tokio::join!(conversation.send_message("hi"), find_and_release);
    assert_eq!(served.run_id, Some(found));
}

#[tokio::test]
async fn x05_the_error_of_a_failed_run_names_its_runner_or_the_reached_limit() {
    let panicking_runner = action_runner_plugin(PermissionSet::none(), |_, _| async { panic!("no more") });
    let served = TestHost::builder().agent_plugin(panicking_runner).start().await.send_message("go").await;
    assert_eq!(served.error.unwrap().public_message(), "the runner builtin:agent crashed");

    let message = || ResultBody::MessageCompleted { content: "again".into(), provider_meta: Default::default() };
    let delta = || ResultBody::MessageDelta { delta: "x".repeat(2048) };
    for (limit, set_limit, results) in [
        ("max_run_results", (|limits| limits.count = 3) as fn(&mut ResultLimits), vec![delta(); 4]),
        ("max_run_result_bytes", |limits| limits.total_bytes = 4096, vec![delta(); 4]),
        ("max_run_entries", |limits| limits.entries = 3, vec![message(); 4]),
    ] {
        let builder = TestHost::builder().options(|options| set_limit(&mut options.limits.results));
        let conversation = builder.agent_plugin(results_plugin(results)).start().await;
        let error = conversation.send_message("go").await.error.unwrap();
        assert_eq!(error.code(), "run-flooded");
        assert!(error.public_message().ends_with(&format!("(limit {limit})")), "{}", error.public_message());
    }
}
