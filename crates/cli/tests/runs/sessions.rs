//! Sessions and workspaces: what they share, and what they do not.

use std::sync::Arc;

use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::protocol::{Event, Outcome};
use capstan::tape::{EntryKind, MemoryStore, TapeSlice};
use capstan::{Capstan, Host};
use tokio::sync::Barrier;

use super::support::{ClosurePlugin, TestConversation};

#[tokio::test]
async fn x04_two_events_of_one_session_have_one_turn_after_the_other() {
    let conversation = TestConversation::new(|builder| builder).await;
    let (first, second) = tokio::join!(conversation.send_message("one"), conversation.send_message("two"));
    for served in [first, second] {
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    }
    let entries = conversation.entries().await;
    let runs: Vec<&str> =
        entries.iter().filter(|entry| entry.kind == EntryKind::Message).filter_map(|e| e.run_id()).collect();
    assert_eq!(runs.len(), 4);
    assert!(runs[0] == runs[1] && runs[2] == runs[3] && runs[1] != runs[2], "turns do not mix: {runs:?}");
}

/// Answers when both of two turns have come as far.
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
async fn p05_the_same_session_of_two_workspaces_is_two_and_neither_waits_for_the_other() {
    let (store, barrier) = (Arc::new(MemoryStore::new()), Arc::new(Barrier::new(2)));
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = async |workspace: &tempfile::TempDir| -> Host {
        let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
        builder.store(store.clone()).plugin(barrier_plugin(barrier.clone())).start().await.unwrap()
    };
    let (first, second) = (host(&here).await, host(&there).await);
    let say = async |host: &Host| host.serve(Event::message("cli", "local", "hi")).await.unwrap();
    // Each turn waits for the other in its model stage, so they can only both end if both run at once.
    let (a, b) = tokio::join!(say(&first), say(&second));
    assert!(a.error.is_none() && b.error.is_none());
    assert_eq!(first.tapes().list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn t13_different_sessions_of_one_host_have_their_turns_at_once() {
    let barrier = Arc::new(Barrier::new(2));
    let conversation = TestConversation::with_plugin(barrier_plugin(barrier)).await;
    let say = async |chat: &str| conversation.host.serve(Event::message("cli", chat, "hi")).await.unwrap();
    let (a, b) = tokio::join!(say("one"), say("two"));
    assert!(a.error.is_none() && b.error.is_none());
}

#[tokio::test]
async fn x01_a_cancelled_run_keeps_what_it_was_told_and_has_an_outcome() {
    let (tell_begun, begun) = tokio::sync::oneshot::channel::<()>();
    let tell_begun = Arc::new(std::sync::Mutex::new(Some(tell_begun)));
    let plugin = ClosurePlugin("endless", move |hooks: &mut capstan::hooks::HookRegistrar| {
        let tell_begun = Arc::clone(&tell_begun);
        hooks.on(RunModel, move || {
            let tell_begun = tell_begun.lock().unwrap().take();
            async move {
                if let Some(tell_begun) = tell_begun {
                    tell_begun.send(()).unwrap();
                }
                std::future::pending().await
            }
        });
    });
    let conversation = TestConversation::with_plugin(plugin).await;
    let cancel = async {
        begun.await.unwrap();
        conversation.host.cancel();
    };
    let (served, ()) = tokio::join!(conversation.send_message("hi"), cancel);
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    let messages = TapeSlice { kinds: vec![EntryKind::Message], ..TapeSlice::default() };
    let kept = conversation.host.tapes().read(&conversation.tape().await, &messages).await.unwrap();
    assert_eq!(kept.len(), 1, "the message stands on the tape");
}
