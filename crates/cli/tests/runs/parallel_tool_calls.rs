//! The tool calls of one step: together where they may be, and each result on record when it is there.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{ToolContext, ToolEffect};
use capstan::protocol::{JsonObject, ToolOutput};
use capstan::tape::{Entry, EntryKind};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::json;
use tokio::sync::Barrier;

use super::support::{TestConversation, test_tool, tool_replies, tools_plugin, with_scripted_model};

fn tool_calls_reply(names: &[&str]) -> ScriptedReply {
    let ids: Vec<String> = (1..=names.len()).map(|number| format!("call_{number}")).collect();
    ScriptedReply::tool_calls(ids.iter().zip(names).map(|(id, name)| (id.as_str(), *name, json!({}))))
}

/// The ids of the calls that have results, in the order of the tape.
fn answered_call_ids(entries: &[Entry]) -> Vec<String> {
    let results = entries.iter().filter(|entry| entry.kind == EntryKind::ToolResult);
    results.map(|entry| entry.payload["call_ids"][0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a10_calls_that_only_look_are_made_at_the_same_time() {
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
    let conversation = TestConversation::with_scripted_model(&model, plugin).await;
    assert_eq!(conversation.send_message("go").await.output, "done");
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: met", "call_2: met", "call_3: met"]);
}

/// Two tools: one answers at once, the other when it may pass.
fn slow_and_quick_tools(gate: &ReplyBarrier) -> impl Plugin + use<> {
    let gate = gate.clone();
    tools_plugin(move || {
        let gate = gate.clone();
        let slow = test_tool("slow", move |_, _| {
            let gate = gate.clone();
            async move {
                gate.wait_for_release().await;
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
async fn a10_calls_with_one_id_get_their_own_results_whichever_comes_first() {
    for id in ["x", ""] {
        let calls = ScriptedReply::tool_calls([(id, "slow", json!({})), (id, "quick", json!({}))]);
        let model = ScriptedModel::start(vec![calls, ScriptedReply::text("done")]).await;
        let gate = ReplyBarrier::new();
        let conversation = TestConversation::with_scripted_model(&model, slow_and_quick_tools(&gate)).await;
        let (served, ()) = tokio::join!(conversation.send_message("go"), async {
            gate.reached().await;
            while answered_call_ids(&conversation.entries().await).is_empty() {
                tokio::task::yield_now().await;
            }
            gate.release();
        });
        assert_eq!(served.output, "done");
        let results: Vec<String> = tool_replies(&model.requests()[1]);
        let results: Vec<&str> = results.iter().map(|told| told.split_once(": ").unwrap().1).collect();
        assert_eq!(results, ["slow", "quick"]);
        let ids = answered_call_ids(&conversation.entries().await);
        assert_ne!(ids[0], ids[1], "also on the tape");
    }
}

#[tokio::test]
async fn a10_a_result_is_on_record_when_it_is_there_and_the_model_gets_them_in_the_order_of_its_calls() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["slow", "quick"]), ScriptedReply::text("done")]).await;
    let gate = ReplyBarrier::new();
    let conversation = TestConversation::with_scripted_model(&model, slow_and_quick_tools(&gate)).await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        gate.reached().await;
        while answered_call_ids(&conversation.entries().await) != ["call_2"] {
            tokio::task::yield_now().await;
        }
        gate.release();
    });
    assert_eq!(served.output, "done");
    assert_eq!(answered_call_ids(&conversation.entries().await), ["call_2", "call_1"]);
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: slow", "call_2: quick"]);
}

/// A tool that says how many calls are on the tape while it is at work.
fn counting_tool(
    name: &'static str,
    conversation: &Arc<OnceLock<TestConversation>>,
) -> capstan::hooks::contracts::FnTool {
    let conversation = Arc::clone(conversation);
    test_tool(name, move |_, _| {
        let conversation = Arc::clone(&conversation);
        async move {
            let entries = conversation.get().unwrap().entries().await;
            let calls = entries.iter().filter(|entry| entry.kind == EntryKind::ToolCall).count();
            Ok(ToolOutput::ok(format!("{calls} on record")))
        }
    })
}

#[tokio::test]
async fn x02_a_call_is_on_record_before_it_is_made_unless_it_only_looks() {
    let replies = vec![
        tool_calls_reply(&["looks"]),
        tool_calls_reply(&["does"]),
        tool_calls_reply(&["looks"]),
        ScriptedReply::text("done"),
    ];
    let model = ScriptedModel::start(replies).await;
    let itself = Arc::new(OnceLock::new());
    let known = Arc::clone(&itself);
    let plugin =
        tools_plugin(move || vec![counting_tool("looks", &known).with_read_only(), counting_tool("does", &known)]);
    let started = TestConversation::with_scripted_model(&model, plugin).await;
    let conversation = itself.get_or_init(|| started);
    assert_eq!(conversation.send_message("go").await.output, "done");
    let told: Vec<_> = model.requests()[1..].iter().map(|request| tool_replies(request).pop().unwrap()).collect();
    assert_eq!(told, ["call_1: 0 on record", "call_1_2: 2 on record", "call_1_3: 2 on record"]);
    assert_eq!(answered_call_ids(&conversation.entries().await).len(), 3, "in the end all of them are");
}

#[tokio::test]
async fn a10_effects_on_the_same_thing_keep_the_models_order() {
    let model =
        ScriptedModel::start(vec![tool_calls_reply(&["first", "second", "look"]), ScriptedReply::text("done")]).await;
    let count = Arc::new(AtomicUsize::new(0));
    let plugin = tools_plugin(move || {
        let counting = |name: &str| {
            let count = Arc::clone(&count);
            test_tool(name, move |_, _| {
                let count = Arc::clone(&count);
                async move {
                    // Whoever did not wait would be told the same number.
                    let before = count.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    count.store(before + 1, Ordering::SeqCst);
                    Ok(ToolOutput::ok(format!("number {before}")))
                }
            })
        };
        let same = |_: &JsonObject, _: &Path| ToolEffect::Writes("the count".to_owned());
        vec![
            counting("first").with_effect(same),
            counting("second").with_effect(same),
            counting("look").with_read_only(),
        ]
    });
    let conversation = TestConversation::with_scripted_model(&model, plugin).await;
    conversation.send_message("go").await;
    assert_eq!(tool_replies(&model.requests()[1]), ["call_1: number 0", "call_2: number 1", "call_3: number 2"]);
}

#[tokio::test]
async fn p13_a_run_that_is_cancelled_between_two_results_leaves_a_valid_tape() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["hang", "quick"])]).await;
    let gate = ReplyBarrier::new();
    let held = gate.clone();
    let plugin = tools_plugin(move || {
        let held = held.clone();
        let hang = test_tool("hang", move |_, _| {
            let held = held.clone();
            async move {
                held.wait_for_release().await;
                Ok(ToolOutput::ok("never"))
            }
        });
        let quick = test_tool("quick", |_, _| async { Ok(ToolOutput::ok("quick")) });
        vec![
            hang.with_effect(|_, _| ToolEffect::Writes("hang".to_owned())),
            quick.with_effect(|_, _| ToolEffect::Writes("quick".to_owned())),
        ]
    });
    let conversation = TestConversation::with_scripted_model(&model, plugin).await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        gate.reached().await;
        while answered_call_ids(&conversation.entries().await).is_empty() {
            tokio::task::yield_now().await;
        }
        conversation.host.cancel();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    let view = conversation.view().await;
    let results: Vec<&str> = view.iter().map(String::as_str).filter(|line| line.starts_with("tool ")).collect();
    let unknown = "tool call_1: [No result: the call was interrupted and its outcome is unknown.]";
    assert_eq!(results, [unknown, "tool call_2: quick"]);
}

#[tokio::test]
async fn a10_a_tool_that_does_not_answer_is_ended_and_the_model_is_told() {
    let model = ScriptedModel::start(vec![tool_calls_reply(&["hang"]), ScriptedReply::text("sorry")]).await;
    let told_of = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told_of);
    let plugin = tools_plugin(move || {
        let heard = Arc::clone(&heard);
        vec![test_tool("hang", move |_, context: ToolContext| {
            let heard = Arc::clone(&heard);
            async move {
                // What a tool has begun elsewhere goes by the token.
                tokio::spawn(async move {
                    context.cancel_token.cancelled().await;
                    heard.fetch_add(1, Ordering::SeqCst);
                });
                std::future::pending().await
            }
        })]
    });
    let conversation = TestConversation::new(|builder| {
        with_scripted_model(builder, &model).set("tool_timeout_seconds", "1").plugin(plugin)
    })
    .await;
    assert_eq!(conversation.send_message("go").await.output, "sorry");
    let said = "call_1: the tool did not answer within 1 seconds and was ended; what it did is not known";
    assert_eq!(tool_replies(&model.requests()[1]), [said]);
    while told_of.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}
