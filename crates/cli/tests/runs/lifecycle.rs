//! What a host holds on to and for how long, and what it says of a run that failed.

use std::sync::Arc;

use capstan::Capstan;
use capstan::protocol::{Authority, Event, Outcome, ResultBody};
use capstan::tape::MemoryStore;

use super::driven::driven;
use super::support::{Conversation, runner};

#[tokio::test]
async fn a_host_that_is_dropped_lets_go_of_its_store_and_every_run() {
    let workspace = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let watched = Arc::downgrade(&store);
    let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path()).store(store);
    let host = builder.start().await.unwrap();
    host.serve(Event::message("cli", "local", "[[tool:help]]")).await.unwrap();
    host.stop().await.unwrap();
    assert!(watched.upgrade().is_none(), "a turn that is over keeps nothing alive");
}

#[tokio::test]
async fn x01_the_same_event_again_is_told_what_became_of_it_and_does_nothing_twice() {
    let workspace = tempfile::tempdir().unwrap();
    let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
    let host = builder.store(Arc::new(MemoryStore::new())).start().await.unwrap();
    let event = Event::message("cli", "local", "hello");
    let first = host.serve(event.clone()).await.unwrap();
    let head = host.tapes().list().await.unwrap()[0].head;
    let again = host.serve(event).await.unwrap();
    assert!(again.duplicate && !first.duplicate);
    assert_eq!((again.run_id, again.outbounds), (first.run_id, first.outbounds));
    assert!(matches!(again.outcome, Some(Outcome::Replied { .. })));
    assert_eq!(host.tapes().list().await.unwrap()[0].head, head, "nothing was written");
}

#[tokio::test]
async fn x05_a_run_that_failed_names_its_runner_and_the_limit_that_was_reached() {
    let crashes = driven(Authority::none(), |_, _| async { panic!("no more") });
    let served = Conversation::with(crashes).await.say("go").await;
    assert_eq!(served.error.unwrap().public(), "the runner builtin:agent crashed");

    let said = || ResultBody::MessageCompleted { content: "again".into(), provider_meta: Default::default() };
    let piece = || ResultBody::MessageDelta { delta: "x".repeat(2048) };
    for (limit, most, results) in [
        ("max_run_results", "3", vec![piece(); 4]),
        ("max_run_result_bytes", "4096", vec![piece(); 4]),
        ("max_run_entries", "3", vec![said(); 4]),
    ] {
        let conversation = Conversation::new(|builder| builder.set(limit, most).plugin(runner(results))).await;
        let error = conversation.say("go").await.error.unwrap();
        assert_eq!(error.code(), "run-flooded");
        assert!(error.public().ends_with(&format!(", which is {limit}")), "{}", error.public());
    }
}
