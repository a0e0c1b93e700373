//! What a host holds on to, and for how long.

use std::sync::Arc;

use capstan::Capstan;
use capstan::protocol::{Event, Outcome};
use capstan::tape::MemoryStore;

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
