use std::sync::Arc;

use capstan_hooks::contracts::Gateway as _;
use capstan_protocol::Event;
use capstan_tape::{MemoryStore, Store};

use crate::{Host, test_host};

#[tokio::test(flavor = "multi_thread")]
async fn t13_many_turns_of_many_sessions_leave_no_session_line_chat_or_run_behind() {
    let store = Arc::new(MemoryStore::new());
    let host = Host::start(test_host::hooks(), store.clone(), test_host::settings()).await.unwrap();
    let events = |turn: usize| (0..200).map(move |chat| Event::message("phone", chat.to_string(), turn.to_string()));
    for turn in 0..5 {
        let turns = events(turn).map(|event| host.serve(event));
        for served in futures::future::join_all(turns).await {
            assert!(served.unwrap().outcome.is_some());
        }
        // The same again, from sources that do not wait.
        for accepted in futures::future::join_all(events(turn).map(|event| host.submit(event.into()))).await {
            accepted.unwrap();
        }
    }
    while !store.in_flight(None).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let engine = Arc::clone(&host.engine);
    host.stop().await.unwrap();
    assert_eq!(engine.lines.count(), 0);
    assert_eq!(engine.outbox.count(), 0);
    assert!(engine.services.runs.is_empty());
    assert_eq!(engine.tasks.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn t13_a_session_falls_asleep_when_it_has_nothing_to_do() {
    let host = Host::start(test_host::hooks(), Arc::new(MemoryStore::new()), test_host::settings()).await.unwrap();
    for chat in 0..50 {
        host.serve(Event::message("phone", chat.to_string(), "hello")).await.unwrap();
    }
    // Time passes only when every task waits.
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert_eq!((host.engine.sessions.count(), host.engine.lines.count(), host.engine.outbox.count()), (0, 0, 0));
    assert!(host.engine.services.runs.is_empty());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c02_however_often_it_is_let_listen_one_task_looks_for_what_was_left() {
    let host = Host::start(test_host::hooks(), Arc::new(MemoryStore::new()), test_host::settings()).await.unwrap();
    host.listen(&["phone".into()]).await;
    let tasks = host.engine.tasks.len();
    host.listen(&["phone".into()]).await;
    assert_eq!(host.engine.tasks.len(), tasks);
    host.stop().await.unwrap();
}
