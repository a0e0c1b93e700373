//! Commands during a turn: read-only ones run concurrently, every other one waits (T13).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::contracts::{FnTool, Tool, ToolContext};
use capstan_hooks::points::{BuildPrompt, ProvideTools, RunModel, RunModelStream};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{Event, JsonObject, ToolOutput};
use capstan_tape::{Batch, EntryDraft};
use capstan_testing::{ReplyBarrier, ScriptedReply};
use serde_json::json;

use crate::sessions::faulty_store::FaultyStore;
use crate::sessions::scripted_conversation::{ScriptedConversation, SubmittedMessage, hold_tool_reply};
use crate::sessions::support::{format_outcome, hold_tool_plugin};
use crate::sessions::test_channel::TestChannel;

#[tokio::test]
async fn t13_a_read_only_command_runs_concurrently_with_the_turn() {
    let barrier = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done"), ScriptedReply::text("two done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let info = conversation.send_message(",tape.info").await;
    assert!(conversation.outcome(&info).await.starts_with("replied: "), "while the tool runs");
    assert!(conversation.is_open(&one).await);
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    let two = conversation.send_message("two").await;
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    assert_eq!(
        conversation.requests()[2],
        ["user: one", "calls hold", "tool: held", "assistant: one done", "user: two"],
        "the command is in no view"
    );
    conversation.finish().await;
}

#[tokio::test]
async fn t13_tape_info_counts_the_entries_up_to_one_moment() {
    let store = FaultyStore::new();
    let environment = TestEnvironment::with_store(Arc::<FaultyStore>::clone(&store));
    let conversation = environment.host().start().await;
    conversation.send_message("hello").await;
    let tape = conversation.tape().await;
    let concurrent_batches = (0..20).map(|number| {
        let mut batch = Batch::new();
        batch.append(&tape, EntryDraft::event("mine", json!(number)));
        batch
    });
    store.write_after_reads(concurrent_batches.collect());
    let info = conversation.send_message(",tape.info").await.output;
    let number_after = |label: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{label}: {info}"));
        line.trim_start_matches('#').parse().unwrap()
    };
    assert_eq!((number_after("anchors: "), info.contains("last anchor: session/start")), (1, true), "{info}");
    let (last, since_anchor) = (number_after("last entry: "), number_after("entries since last anchor: "));
    assert_eq!(since_anchor, last - 1, "the only anchor is entry 1: {info}");
    conversation.stop().await.unwrap();
}

#[tokio::test]
async fn t13_a_command_is_never_steered_and_a_writing_command_waits() {
    let barrier = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let handoff = conversation.send_with_admission("steer", ",tape.handoff name=later").await;
    assert!(conversation.is_open(&handoff).await);
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert!(conversation.outcome(&handoff).await.starts_with("replied: "));
    assert_ne!(conversation.run_id(&handoff).await, conversation.run_id(&one).await);
    assert_eq!(conversation.requests()[1], ["user: one", "calls hold", "tool: held"]);
    conversation.finish().await;
}

#[tokio::test]
async fn t13_a_hook_cannot_make_a_message_run_concurrently_with_a_turn() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("beside", "two").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    assert_eq!(conversation.requests()[1], ["user: one", "assistant: one done", "user: two"], "one turn at a time");
    conversation.finish().await;
}

/// Plugin with a read-only tool `peek` that waits for the release of `barrier`, and the number of its starts.
fn peek_tool_plugin(barrier: &ReplyBarrier) -> (ClosurePlugin, Arc<AtomicUsize>) {
    let started: Arc<AtomicUsize> = Arc::default();
    let (barrier, tool_started) = (barrier.clone(), Arc::clone(&started));
    let peek = move |_: JsonObject, _: ToolContext| {
        let barrier = barrier.clone();
        tool_started.fetch_add(1, Ordering::SeqCst);
        async move {
            barrier.wait_for_release().await;
            Ok(ToolOutput::ok("seen"))
        }
    };
    let schema = json!({"type": "object", "properties": {}});
    let tool: Arc<dyn Tool> = Arc::new(FnTool::new("peek", "Reads.", schema, peek).with_read_only());
    let peek_plugin = ClosurePlugin::new("peek", move |hooks| {
        let tool = Arc::clone(&tool);
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    });
    (peek_plugin, started)
}

#[tokio::test]
async fn t13_eight_commands_run_concurrently_with_a_turn_and_the_next_one_waits() {
    let (turn, peek) = (ReplyBarrier::new(), ReplyBarrier::new());
    let (peek_plugin, started) = peek_tool_plugin(&peek);
    let conversation = ScriptedConversation::with_plugins(
        vec![hold_tool_reply("call_1"), ScriptedReply::text("one done")],
        vec![hold_tool_plugin(&turn), peek_plugin],
    )
    .await;
    let one = conversation.send_message("one").await;
    turn.reached().await;
    let mut commands: Vec<SubmittedMessage> = Vec::new();
    for _ in 0..9 {
        commands.push(conversation.send_message(",peek").await);
    }
    while started.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    peek.release();
    for command in &commands[..8] {
        assert_eq!(conversation.outcome(command).await, "replied: seen");
    }
    assert!(conversation.is_open(&commands[8]).await, "a queued command stays in the queue");
    assert_eq!(started.load(Ordering::SeqCst), 8);
    turn.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&commands[8]).await, "replied: seen");
    conversation.finish().await;
}

/// Checks that a read-only command ends during a turn in a host with `plugin`. Needs a paused clock, which advances only
/// when every task waits.
async fn runs_concurrently(plugin: ClosurePlugin) -> bool {
    let (barrier, desk, environment) =
        (ReplyBarrier::new(), Arc::new(TestChannel::with_waiting_callers("desk")), TestEnvironment::in_memory());
    let host = environment.host().channel(&desk).plugin(hold_tool_plugin(&barrier)).plugin(plugin).start().await;
    let [one, info] = ["[[tool:hold]]", ",tape.info"].map(|text| Event::message("desk", "1", text));
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    host.submit_and_wait(&info).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let has_ended = environment.outcome(&info).await.is_some();
    barrier.release();
    for event in [&one, &info] {
        assert!(format_outcome(&desk.wait_for_answer(&event.event_id).await.outcome).starts_with("replied: "));
    }
    host.stop().await.unwrap();
    environment.assert_settled().await;
    has_ended
}

#[tokio::test(start_paused = true)]
async fn t13_a_command_waits_if_a_plugin_may_change_its_meaning() {
    assert!(runs_concurrently(ClosurePlugin::new("harmless", |_| {})).await);
    let prompts = ClosurePlugin::new("prompts", |hooks| {
        hooks.on(BuildPrompt, || async { Ok(None) });
    });
    assert!(!runs_concurrently(prompts).await, "the plugin may change the prompt");
    let model = ClosurePlugin::new("model", |hooks| {
        hooks.on(RunModel, || async { Ok(None) });
    });
    assert!(!runs_concurrently(model).await, "the plugin may replace the model stage");
    let streams = ClosurePlugin::new("streams", |hooks| {
        hooks.on(RunModelStream, || async { Ok(None) });
    });
    assert!(!runs_concurrently(streams).await, "the plugin may replace the model stage with a stream");
}
