//! Tool calls of one step: run in parallel where permitted, each result recorded on completion.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capstan_hooks::Plugin;
use capstan_hooks::contracts::{ToolContext, ToolEffect};
use capstan_host::testing::TestHost;
use capstan_protocol::{JsonObject, ToolOutput};
use capstan_tape::{Entry, EntryKind};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::json;
use tokio::sync::Barrier;

use super::support::{test_tool, tool_replies, tools_plugin};

fn tool_calls_reply(names: &[&str]) -> ScriptedReply {
    let ids: Vec<String> = (1..=names.len()).map(|number| format!("call_{number}")).collect();
    ScriptedReply::tool_calls(ids.iter().zip(names).map(|(id, name)| (id.as_str(), *name, json!({}))))
}

/// Ids of the calls that have results, in tape order.
fn answered_call_ids(entries: &[Entry]) -> Vec<String> {
    let results = entries.iter().filter(|entry| entry.kind == EntryKind::ToolResult);
    results.map(|entry| entry.payload["call_ids"][0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a10_read_only_calls_run_in_parallel() {
    let model =
        ScriptedModel::start(vec![tool_calls_reply(&["meet", "meet", "meet"]), ScriptedReply::text("done")]).await;
    let barrier = Arc::new(Barrier::new(3));
    let plugin = tools_plugin(move || {
        let barrier = Arc::clone(&barrier);
        let meet = test_tool("meet", move |_, _| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok(ToolOutput::ok("met"))
            }
        });
        vec![meet.with_read_only()]
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    assert_eq!(conversation.send_message("go").await.output, "done");
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: met", "call_2: met", "call_3: met"]);
}

/// Two tools: `quick` returns at once, `slow` waits for the release of `barrier`.
fn slow_and_quick_tools(barrier: &ReplyBarrier) -> impl Plugin + use<> {
    let barrier = barrier.clone();
    tools_plugin(move || {
        let barrier = barrier.clone();
        let slow = test_tool("slow", move |_, _| {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(ToolOutput::ok("slow"))
            }
        });
        let quick = test_tool("quick", |_, _| async { Ok(ToolOutput::ok("quick")) });
        vec![
            slow.with_effect(|_, _| ToolEffect::Writes("slow".to_owned())),
            quick.with_effect(|_, _| ToolEffect::Writes("quick".to_owned())),
        ]
    })
}

#[tokio::test]
async fn a10_calls_with_equal_ids_get_their_own_results_in_any_order() {
    for id in ["x", ""] {
        let calls = ScriptedReply::tool_calls([(id, "slow", json!({})), (id, "quick", json!({}))]);
        let model = ScriptedModel::start(vec![calls, ScriptedReply::text("done")]).await;
        let barrier = ReplyBarrier::new();
        let conversation =
            TestHost::builder().scripted_model(&model).plugin(slow_and_quick_tools(&barrier)).start().await;
        let (served, ()) = tokio::join!(conversation.send_message("go"), async {
            barrier.reached().await;
            while answered_call_ids(&conversation.entries().await).is_empty() {
                tokio::task::yield_now().await;
            }
            barrier.release();
        });
        assert_eq!(served.output, "done");
        let results: Vec<String> = tool_replies(&model.requests()[1]);
        let results: Vec<&str> = results.iter().map(|reply| reply.split_once(": ").unwrap().1).collect();
        assert_eq!(results, ["slow", "quick"]);
        let ids = answered_call_ids(&conversation.entries().await);
        assert_ne!(ids[0], ids[1], "the tape distinguishes the calls");
    }
}

#[tokio::test]
async fn a10_results_are_recorded_on_completion_and_sent_in_call_order() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["slow", "quick"]), ScriptedReply::text("done")]).await;
    let barrier = ReplyBarrier::new();
    let conversation = TestHost::builder().scripted_model(&model).plugin(slow_and_quick_tools(&barrier)).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        barrier.reached().await;
        while answered_call_ids(&conversation.entries().await) != ["call_2"] {
            tokio::task::yield_now().await;
        }
        barrier.release();
    });
    assert_eq!(served.output, "done");
    assert_eq!(answered_call_ids(&conversation.entries().await), ["call_2", "call_1"]);
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: slow", "call_2: quick"]);
}

/// Tool that returns the number of calls on the tape while it runs.
fn counting_tool(name: &'static str, conversation: &Arc<OnceLock<TestHost>>) -> capstan_hooks::contracts::FnTool {
    let conversation = Arc::clone(conversation);
    test_tool(name, move |_, _| {
        let conversation = Arc::clone(&conversation);
        async move {
            let entries = conversation.get().unwrap().entries().await;
            let calls = entries.iter().filter(|entry| entry.kind == EntryKind::ToolCall).count();
            Ok(ToolOutput::ok(format!("{calls} recorded")))
        }
    })
}

#[tokio::test]
async fn x02_a_call_is_recorded_before_it_is_made_unless_it_is_read_only() {
    let replies = vec![
        tool_calls_reply(&["reader"]),
        tool_calls_reply(&["writer"]),
        tool_calls_reply(&["reader"]),
        ScriptedReply::text("done"),
    ];
    let model = ScriptedModel::start(replies).await;
    let conversation_cell = Arc::new(OnceLock::new());
    let tool_cell = Arc::clone(&conversation_cell);
    let plugin = tools_plugin(move || {
        vec![counting_tool("reader", &tool_cell).with_read_only(), counting_tool("writer", &tool_cell)]
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    let conversation = conversation_cell.get_or_init(|| conversation);
    assert_eq!(conversation.send_message("go").await.output, "done");
    let results: Vec<_> = model.requests()[1..].iter().map(|request| tool_replies(request).pop().unwrap()).collect();
    assert_eq!(results, ["call_1: 0 recorded", "call_1_2: 2 recorded", "call_1_3: 2 recorded"]);
    assert_eq!(answered_call_ids(&conversation.entries().await).len(), 3, "all calls are recorded in the end");
}

#[tokio::test]
async fn a10_effects_on_the_same_resource_keep_the_models_order() {
    let model =
        ScriptedModel::start(vec![tool_calls_reply(&["first", "second", "look"]), ScriptedReply::text("done")]).await;
    let count = Arc::new(AtomicUsize::new(0));
    let plugin = tools_plugin(move || {
        let counting = |name: &str| {
            let count = Arc::clone(&count);
            test_tool(name, move |_, _| {
                let count = Arc::clone(&count);
                async move {
                    // Without ordering, two calls would return the same number.
                    let before = count.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    count.store(before + 1, Ordering::SeqCst);
                    Ok(ToolOutput::ok(format!("number {before}")))
                }
            })
        };
        let writes_count = |_: &JsonObject, _: &Path| ToolEffect::Writes("the count".to_owned());
        vec![
            counting("first").with_effect(writes_count),
            counting("second").with_effect(writes_count),
            counting("look").with_read_only(),
        ]
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    conversation.send_message("go").await;
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: number 0", "call_2: number 1", "call_3: number 2"]);
}

#[tokio::test]
async fn p13_a_run_cancelled_between_two_results_leaves_a_valid_tape() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["hang", "quick"])]).await;
    let barrier = ReplyBarrier::new();
    let tool_barrier = barrier.clone();
    let plugin = tools_plugin(move || {
        let tool_barrier = tool_barrier.clone();
        let hang = test_tool("hang", move |_, _| {
            let tool_barrier = tool_barrier.clone();
            async move {
                tool_barrier.wait_for_release().await;
                Ok(ToolOutput::ok("never"))
            }
        });
        let quick = test_tool("quick", |_, _| async { Ok(ToolOutput::ok("quick")) });
        vec![
            hang.with_effect(|_, _| ToolEffect::Writes("hang".to_owned())),
            quick.with_effect(|_, _| ToolEffect::Writes("quick".to_owned())),
        ]
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        barrier.reached().await;
        while answered_call_ids(&conversation.entries().await).is_empty() {
            tokio::task::yield_now().await;
        }
        conversation.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    let view = conversation.view().await;
    let results: Vec<&str> = view.iter().map(String::as_str).filter(|line| line.starts_with("tool ")).collect();
    let unknown = "tool call_1: [No result: the call was interrupted and its outcome is unknown.]";
    assert_eq!(results, [unknown, "tool call_2: quick"]);
}

#[tokio::test]
async fn a10_a_tool_that_times_out_is_ended_and_the_model_is_notified() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["hang"]), ScriptedReply::text("sorry")]).await;
    let cancellations = Arc::new(AtomicUsize::new(0));
    let observed = Arc::clone(&cancellations);
    let plugin = tools_plugin(move || {
        let observed = Arc::clone(&observed);
        vec![test_tool("hang", move |_, context: ToolContext| {
            let observed = Arc::clone(&observed);
            async move {
                // Tasks that a tool has spawned observe its cancellation token.
                tokio::spawn(async move {
                    context.cancel_token.cancelled().await;
                    observed.fetch_add(1, Ordering::SeqCst);
                });
                std::future::pending().await
            }
        })]
    });
    let conversation = TestHost::builder()
        .scripted_model(&model)
        .options(|options| options.limits.tool_timeout = Duration::from_secs(1))
        .plugin(plugin)
        .start()
        .await;
    assert_eq!(conversation.send_message("go").await.output, "sorry");
    let reply = "call_1: the tool did not answer within 1 seconds and was ended; what it did is not known";
    assert_eq!(tool_replies(&model.requests()[1]), [reply]);
    while cancellations.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}
