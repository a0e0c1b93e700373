//! Commands while a turn is going on: those that only look run beside it, every other one waits its turn (T13).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{FnTool, Tool, ToolContext};
use capstan::hooks::points::{BuildPrompt, ProvideTools, RunModel, RunModelStream};
use capstan::protocol::{Event, JsonObject, ToolOutput};
use capstan_testing::{ReplyBarrier, ScriptedReply};
use serde_json::json;

use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome, hold_tool_plugin, submit};
use crate::scripted_conversation::{ScriptedConversation, SubmittedMessage, hold_tool_reply};
use crate::test_channel::TestChannel;

#[tokio::test]
async fn t13_a_command_that_only_looks_runs_beside_the_turn() {
    let gate = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done"), ScriptedReply::text("two done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let info = talk.send_message(",tape.info").await;
    assert!(talk.outcome(&info).await.starts_with("replied: "), "while the tool is at work");
    assert!(talk.is_open(&one).await);
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    let two = talk.send_message("two").await;
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(
        talk.requests()[2],
        ["user: one", "calls hold", "tool: held", "assistant: one done", "user: two"],
        "no view shows it"
    );
    talk.finish().await;
}

#[tokio::test]
async fn t13_a_command_is_never_steered_and_one_that_changes_something_waits() {
    let gate = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let handoff = talk.send_with_admission("steer", ",tape.handoff name=later").await;
    assert!(talk.is_open(&handoff).await);
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert!(talk.outcome(&handoff).await.starts_with("replied: "));
    assert_ne!(talk.run_id(&handoff).await, talk.run_id(&one).await);
    assert_eq!(talk.requests()[1], ["user: one", "calls hold", "tool: held"]);
    talk.finish().await;
}

#[tokio::test]
async fn t13_only_commands_run_beside_a_turn_whatever_a_hook_says() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("beside", "two").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two"], "one turn at a time");
    talk.finish().await;
}

/// A plugin with a tool `peek`, which only looks, for as long as a gate is closed; the number says how often it began.
fn peek_tool_plugin(gate: &ReplyBarrier) -> (Box<dyn Plugin>, Arc<AtomicUsize>) {
    let begun: Arc<AtomicUsize> = Arc::default();
    let (gate, counted) = (gate.clone(), Arc::clone(&begun));
    let peek = move |_: JsonObject, _: ToolContext| {
        let gate = gate.clone();
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            gate.wait_for_release().await;
            Ok(ToolOutput::ok("seen"))
        }
    };
    let schema = json!({"type": "object", "properties": {}});
    let tool: Arc<dyn Tool> = Arc::new(FnTool::new("peek", "Looks.", schema, peek).with_read_only());
    let peeks = boxed_plugin("peek", move |hooks| {
        let tool = Arc::clone(&tool);
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    });
    (peeks, begun)
}

#[tokio::test]
async fn t13_eight_commands_run_beside_a_turn_and_the_next_one_waits() {
    let (turn, look) = (ReplyBarrier::new(), ReplyBarrier::new());
    let (peeks, begun) = peek_tool_plugin(&look);
    let talk = ScriptedConversation::with_plugins(
        vec![hold_tool_reply("call_1"), ScriptedReply::text("one done")],
        vec![hold_tool_plugin(&turn), peeks],
    )
    .await;
    let one = talk.send_message("one").await;
    turn.reached().await;
    let mut said: Vec<SubmittedMessage> = Vec::new();
    for _ in 0..9 {
        said.push(talk.send_message(",peek").await);
    }
    while begun.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    look.release();
    for said in &said[..8] {
        assert_eq!(talk.outcome(said).await, "replied: seen");
    }
    assert!(talk.is_open(&said[8]).await, "it waits its turn, though there is room now");
    assert_eq!(begun.load(Ordering::SeqCst), 8);
    turn.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&said[8]).await, "replied: seen");
    talk.finish().await;
}

/// Whether a command that only looks runs beside a turn where there is this plugin. On paused time, which passes only
/// when every task waits.
async fn runs_concurrently(replaces: Box<dyn Plugin>) -> bool {
    let (gate, desk, house) =
        (ReplyBarrier::new(), Arc::new(TestChannel::with_waiting_callers("desk")), HostFixture::in_memory());
    let host = house.host_builder().channel(&desk).plugin(hold_tool_plugin(&gate)).plugin(replaces).start().await;
    let [one, info] = ["[[tool:hold]]", ",tape.info"].map(|text| Event::message("desk", "1", text));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &info).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let has_ended = house.outcome(&info).await.is_some();
    gate.release();
    for event in [&one, &info] {
        assert!(format_outcome(&desk.wait_for_answer(&event.event_id).await.outcome).starts_with("replied: "));
    }
    host.stop().await.unwrap();
    house.assert_settled().await;
    has_ended
}

#[tokio::test(start_paused = true)]
async fn t13_where_a_plugin_may_take_a_command_for_something_else_it_waits_its_turn() {
    assert!(runs_concurrently(boxed_plugin("harmless", |_| {})).await);
    let prompts = boxed_plugin("prompts", |hooks| {
        hooks.on(BuildPrompt, || async { Ok(None) });
    });
    assert!(!runs_concurrently(prompts).await, "the prompt may be another");
    let stands_in = boxed_plugin("stands-in", |hooks| {
        hooks.on(RunModel, || async { Ok(None) });
    });
    assert!(!runs_concurrently(stands_in).await, "the model stage may be another");
    let streams = boxed_plugin("streams", |hooks| {
        hooks.on(RunModelStream, || async { Ok(None) });
    });
    assert!(!runs_concurrently(streams).await, "and so it may with a stream");
}
