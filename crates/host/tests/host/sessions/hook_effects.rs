//! Effects of hooks through their handle (H12): durable with the end of the turn, once, and with the name of the plugin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_hooks::args::MaybeInboundEvent;
use capstan_hooks::points::{BuildPrompt, LoadState, OnError, RunModel, SaveState};
use capstan_hooks::{HookHandle, HookPermission, HookRegistrar, InboundEvent};
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{Event, JsonObject, OutboundKind, Outcome};
use capstan_tape::{EntryKind, WindowStart};
use serde_json::json;
use tokio::sync::Notify;

use crate::sessions::test_channel::TestChannel;

fn phone_channel() -> Arc<TestChannel> {
    Arc::new(TestChannel::new("phone"))
}

fn all_permissions() -> [HookPermission; 4] {
    [HookPermission::ReadTape, HookPermission::WriteNote, HookPermission::WriteAnchor, HookPermission::Send]
}

/// Plugin that notes, anchors and sends in `save_state`.
fn diary_plugin() -> ClosurePlugin {
    ClosurePlugin::new("diary", |hooks: &mut HookRegistrar| {
        hooks.on(SaveState, |handle: HookHandle| async move {
            handle.note("diary.mood", json!({"mood": "calm"}))?;
            handle.anchor("diary/day", JsonObject::from_iter([("day".to_owned(), json!(1))]))?;
            handle.send("phone", "ops", "a page is written")?;
            Ok(Some(()))
        });
    })
}

#[tokio::test]
async fn h12_a_hook_notes_anchors_and_sends_with_the_end_of_the_turn() {
    let phone = phone_channel();
    let plugin = diary_plugin().with_permissions(all_permissions());
    let host = TestHost::builder().plugin(plugin).channel(&phone).start().await;
    let served = host.send_message("hello").await;
    assert_eq!(served.error, None);
    phone.wait_until_sent(1).await;
    assert_eq!(phone.sent(), ["ops: a page is written"]);
    assert_eq!(phone.sent_messages()[0].message.chat_id.as_str(), "ops");
    assert!(matches!(served.outcome, Some(Outcome::Replied { text }) if !text.contains("a page")), "not the reply");
    let entries = host.entries().await;
    let by_diary: Vec<(&EntryKind, Option<&str>)> = entries
        .iter()
        .filter(|entry| entry.meta.get("plugin") == Some(&json!("diary")))
        .map(|entry| (&entry.kind, entry.name()))
        .collect();
    assert_eq!(
        by_diary,
        [
            (&EntryKind::Event, Some("diary.mood")),
            (&EntryKind::Anchor, Some("diary/day")),
            (&EntryKind::Event, Some("handoff")),
            (&EntryKind::Event, Some("outbound")),
        ]
    );
    assert_eq!(
        host.view().await,
        ["assistant: [anchor created: diary/day]: {\"day\":1}"],
        "the next turn starts there"
    );
}

#[tokio::test]
async fn h12_a_hook_without_permissions_fails_the_turn_and_writes_nothing() {
    let phone = phone_channel();
    let host = TestHost::builder().plugin(diary_plugin()).channel(&phone).start().await;
    let served = host.send_message("hello").await;
    assert_eq!(served.error.unwrap().code(), "hook-failed");
    assert!(host.event_data("diary.mood").await.is_empty());
    assert!(phone.sent().is_empty());
}

#[tokio::test]
async fn h12_an_observer_of_errors_sends_elsewhere_and_notes() {
    let phone = phone_channel();
    let plugin = ClosurePlugin::new("pager", |hooks: &mut HookRegistrar| {
        hooks.on(RunModel, || async { Err("no model".into()) });
        hooks.on(OnError, |handle: HookHandle, message: MaybeInboundEvent| async move {
            assert!(message.0.is_some());
            handle.note("pager.called", json!({}))?;
            handle.send("phone", "ops", "a turn failed")?;
            Ok(Some(()))
        });
    });
    let plugin = plugin.with_permissions([HookPermission::WriteNote, HookPermission::SendTo("phone".into())]);
    let host = TestHost::builder().plugin(plugin).channel(&phone).start().await;
    assert!(host.send_message("hello").await.error.is_some());
    phone.wait_until_sent(1).await;
    assert_eq!(phone.sent(), ["ops: a turn failed"]);
    assert_eq!(phone.sent_messages()[0].message.kind, OutboundKind::Notice);
    assert_eq!(host.event_data("pager.called").await.len(), 1);
}

#[tokio::test]
async fn h12_x03_a_crash_before_the_end_of_a_turn_neither_loses_nor_repeats_a_message() {
    let environment = TestEnvironment::in_memory();
    let (phone, reached, hangs) = (phone_channel(), Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
    let plugin = || {
        let (reached, hangs) = (Arc::clone(&reached), Arc::clone(&hangs));
        let plugin = ClosurePlugin::new("once", move |hooks: &mut HookRegistrar| {
            let (reached, hangs) = (Arc::clone(&reached), Arc::clone(&hangs));
            hooks.on(SaveState, move |handle: HookHandle| {
                let (reached, hangs) = (Arc::clone(&reached), Arc::clone(&hangs));
                async move {
                    handle.send("phone", "ops", "saved")?;
                    if hangs.swap(false, Ordering::SeqCst) {
                        reached.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Ok(Some(()))
                }
            });
        });
        plugin.with_permissions([HookPermission::Send])
    };
    let event = Event::message("cli", "local", "hello");
    let first = environment.host().plugin(plugin()).channel(&phone).start().await;
    let serving = first.serve_in_background(event.clone());
    reached.notified().await;
    first.abort().await.unwrap();
    serving.abort();
    assert!(phone.sent().is_empty(), "nothing is sent before the end of the turn");
    let second = environment.host().plugin(plugin()).channel(&phone).start().await;
    environment.wait_until_settled(&event).await;
    phone.wait_until_sent(1).await;
    second.stop().await.unwrap();
    assert_eq!(phone.sent(), ["ops: saved"]);
}

#[tokio::test]
async fn h12_a_hook_reads_the_tape_of_its_session_only_with_permission() {
    let plugin = ClosurePlugin::new("reader", |hooks: &mut HookRegistrar| {
        hooks.on(BuildPrompt, |handle: HookHandle, message: InboundEvent| async move {
            let read = handle.tape()?.window(WindowStart::LastAnchor).await?.messages().len();
            Ok(Some(format!("{} after {read}", message.input.plain_text()).into()))
        });
        hooks.on(RunModel, |prompt: capstan_hooks::args::PromptContent| async move { Ok(Some(prompt.text())) });
    });
    let host = TestHost::builder().plugin(plugin.with_permissions([HookPermission::ReadTape])).start().await;
    assert_eq!(host.send_message("one").await.output, "one after 1");
    assert_eq!(host.send_message("two").await.output, "two after 3");
}

#[tokio::test]
async fn h12_effects_of_load_state_are_written_after_the_run() {
    let plugin = ClosurePlugin::new("early", |hooks: &mut HookRegistrar| {
        hooks.on(LoadState, |handle: HookHandle| async move {
            handle.anchor("early/anchor", JsonObject::new())?;
            Ok(None)
        });
    });
    let host = TestHost::builder().plugin(plugin.with_permissions([HookPermission::WriteAnchor])).start().await;
    assert!(host.send_message("hello").await.output.contains("You said: hello"), "the model has read the message");
    assert_eq!(host.view().await.len(), 1);
}
