//! Isolation and concurrency of sessions and workspaces.

use std::sync::Arc;

use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::protocol::{Event, Outcome};
use capstan::tape::{EntryKind, MemoryStore, TapeSlice};
use capstan::{Capstan, Host};
use tokio::sync::Barrier;

use super::support::{ClosurePlugin, TestConversation};

#[tokio::test]
async fn x04_two_events_of_one_session_have_sequential_turns() {
    let conversation = TestConversation::new(|builder| builder).await;
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
fn barrier_plugin(barrier: Arc<Barrier>) -> impl capstan::hooks::Plugin {
    ClosurePlugin("together", move |hooks: &mut capstan::hooks::HookRegistrar| {
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
    let (first_workspace, second_workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start_host = async |workspace: &tempfile::TempDir| -> Host {
        let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
        builder.store(store.clone()).plugin(barrier_plugin(barrier.clone())).start().await.unwrap()
    };
    let (first, second) = (start_host(&first_workspace).await, start_host(&second_workspace).await);
    let serve = async |host: &Host| host.serve(Event::message("cli", "local", "hi")).await.unwrap();
    // Each turn waits for the other in its model stage, so both end only if they run in parallel.
    let (a, b) = tokio::join!(serve(&first), serve(&second));
    assert!(a.error.is_none() && b.error.is_none());
    assert_eq!(first.tapes().list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn t13_different_sessions_of_one_host_run_their_turns_in_parallel() {
    let barrier = Arc::new(Barrier::new(2));
    let conversation = TestConversation::with_plugin(barrier_plugin(barrier)).await;
    let serve = async |chat: &str| conversation.host.serve(Event::message("cli", chat, "hi")).await.unwrap();
    let (a, b) = tokio::join!(serve("one"), serve("two"));
    assert!(a.error.is_none() && b.error.is_none());
}

#[tokio::test]
async fn x01_a_cancelled_run_keeps_its_message_and_has_an_outcome() {
    let (started_sender, started) = tokio::sync::oneshot::channel::<()>();
    let started_sender = Arc::new(std::sync::Mutex::new(Some(started_sender)));
    let plugin = ClosurePlugin("endless", move |hooks: &mut capstan::hooks::HookRegistrar| {
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
    let conversation = TestConversation::with_plugin(plugin).await;
    let cancel = async {
        started.await.unwrap();
        conversation.host.cancel();
    };
    let (served, ()) = tokio::join!(conversation.send_message("hi"), cancel);
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    let messages = TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::default() };
    let recorded = conversation.host.tapes().read(&conversation.tape().await, &messages).await.unwrap();
    assert_eq!(recorded.len(), 1, "the message is on the tape");
}
