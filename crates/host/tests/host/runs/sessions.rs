//! Isolation and concurrency of sessions and workspaces.

use std::sync::Arc;

use capstan_hooks::args::PromptContent;
use capstan_hooks::points::RunModel;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{Event, Outcome};
use capstan_tape::{EntryKind, MemoryStore, TapeSlice};
use tokio::sync::Barrier;

#[tokio::test]
async fn x04_two_events_of_one_session_have_sequential_turns() {
    let conversation = TestHost::builder().start().await;
    let (first, second) = tokio::join!(conversation.send_message("one"), conversation.send_message("two"));
    for served in [first, second] {
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    }
    let entries = conversation.entries().await;
    let runs: Vec<&str> =
        entries.iter().filter(|entry| entry.kind == EntryKind::Message).filter_map(|entry| entry.run_id()).collect();
    assert_eq!(runs.len(), 4);
    assert!(runs[0] == runs[1] && runs[2] == runs[3] && runs[1] != runs[2], "turns do not interleave: {runs:?}");
}

/// Plugin whose model stage replies once all parties of `barrier` have reached it.
fn barrier_plugin(barrier: Arc<Barrier>) -> impl capstan_hooks::Plugin {
    ClosurePlugin::new("together", move |hooks: &mut capstan_hooks::HookRegistrar| {
        let barrier = Arc::clone(&barrier);
        hooks.on(RunModel, move |prompt: PromptContent| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok(Some(prompt.text()))
            }
        });
    })
}

#[tokio::test]
async fn p05_equal_sessions_of_two_workspaces_are_separate_and_run_in_parallel() {
    let (store, barrier) = (Arc::new(MemoryStore::new()), Arc::new(Barrier::new(2)));
    // Each environment has a workspace of its own.
    let start_host = async || -> TestHost {
        let environment = TestEnvironment::with_store(store.clone());
        environment.host().plugin(barrier_plugin(barrier.clone())).start().await
    };
    let (first, second) = (start_host().await, start_host().await);
    let serve = async |host: &TestHost| host.serve(Event::message("cli", "local", "hi")).await.unwrap();
    // Each turn waits for the other in its model stage, so both end only if they run in parallel.
    let (a, b) = tokio::join!(serve(&first), serve(&second));
    assert!(a.error.is_none() && b.error.is_none());
    assert_eq!(first.tapes().list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn t13_different_sessions_of_one_host_run_their_turns_in_parallel() {
    let barrier = Arc::new(Barrier::new(2));
    let conversation = TestHost::builder().plugin(barrier_plugin(barrier)).start().await;
    let serve = async |chat: &str| conversation.serve(Event::message("cli", chat, "hi")).await.unwrap();
    let (a, b) = tokio::join!(serve("one"), serve("two"));
    assert!(a.error.is_none() && b.error.is_none());
}

#[tokio::test]
async fn x01_a_cancelled_run_keeps_its_message_and_has_an_outcome() {
    let (started_sender, started) = tokio::sync::oneshot::channel::<()>();
    let started_sender = Arc::new(std::sync::Mutex::new(Some(started_sender)));
    let plugin = ClosurePlugin::new("endless", move |hooks: &mut capstan_hooks::HookRegistrar| {
        let started_sender = Arc::clone(&started_sender);
        hooks.on(RunModel, move || {
            let started_sender = started_sender.lock().unwrap().take();
            async move {
                if let Some(started_sender) = started_sender {
                    started_sender.send(()).unwrap();
                }
                std::future::pending().await
            }
        });
    });
    let conversation = TestHost::builder().plugin(plugin).start().await;
    let cancel = async {
        started.await.unwrap();
        conversation.cancel_all_runs();
    };
    let (served, ()) = tokio::join!(conversation.send_message("hi"), cancel);
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    let messages = TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::default() };
    let recorded = conversation.tapes().read(&conversation.tape().await, &messages).await.unwrap();
    assert_eq!(recorded.len(), 1, "the message is on the tape");
}
