//! The tool calls of one step: together where they may be, and each result on record when it is there.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{ToolContext, Touches};
use capstan::protocol::{Map, ToolOutput};
use capstan::tape::{Entry, Kind};
use capstan_testing::{Gate, Reply, ScriptedModel};
use serde_json::json;
use tokio::sync::Barrier;

use super::support::{Conversation, scripted, told, tool, tools};

fn calls(names: &[&str]) -> Reply {
    let ids: Vec<String> = (1..=names.len()).map(|number| format!("call_{number}")).collect();
    Reply::tool_calls(ids.iter().zip(names).map(|(id, name)| (id.as_str(), *name, json!({}))))
}

/// The ids of the calls that have results, in the order of the tape.
fn answered(entries: &[Entry]) -> Vec<String> {
    let results = entries.iter().filter(|entry| entry.kind == Kind::ToolResult);
    results.map(|entry| entry.payload["call_ids"][0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a10_calls_that_only_look_are_made_at_the_same_time() {
    let model = ScriptedModel::start(vec![calls(&["meet", "meet", "meet"]), Reply::text("done")]).await;
    let barrier = Arc::new(Barrier::new(3));
    let plugin = tools(move || {
        let barrier = Arc::clone(&barrier);
        let meet = tool("meet", move |_, _| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok(ToolOutput::ok("met"))
            }
        });
        vec![meet.that_only_looks()]
    });
    let conversation = Conversation::scripted(&model, plugin).await;
    assert_eq!(conversation.say("go").await.output, "done");
    assert_eq!(told(&model.requests()[1]), ["call_1: met", "call_2: met", "call_3: met"]);
}

/// Two tools: one answers at once, the other when it may pass.
fn slow_and_quick(gate: &Gate) -> impl Plugin + use<> {
    let gate = gate.clone();
    tools(move || {
        let gate = gate.clone();
        let slow = tool("slow", move |_, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(ToolOutput::ok("slow"))
            }
        });
        let quick = tool("quick", |_, _| async { Ok(ToolOutput::ok("quick")) });
        vec![
            slow.that_touches(|_, _| Touches::One("slow".to_owned())),
            quick.that_touches(|_, _| Touches::One("quick".to_owned())),
        ]
    })
}

#[tokio::test]
async fn a10_calls_with_one_id_get_their_own_results_whichever_comes_first() {
    for id in ["x", ""] {
        let calls = Reply::tool_calls([(id, "slow", json!({})), (id, "quick", json!({}))]);
        let model = ScriptedModel::start(vec![calls, Reply::text("done")]).await;
        let gate = Gate::new();
        let conversation = Conversation::scripted(&model, slow_and_quick(&gate)).await;
        let (served, ()) = tokio::join!(conversation.say("go"), async {
            gate.reached().await;
            while answered(&conversation.entries().await).is_empty() {
                tokio::task::yield_now().await;
            }
            gate.open();
        });
        assert_eq!(served.output, "done");
        let results: Vec<String> = told(&model.requests()[1]);
        let results: Vec<&str> = results.iter().map(|told| told.split_once(": ").unwrap().1).collect();
        assert_eq!(results, ["slow", "quick"]);
        let ids = answered(&conversation.entries().await);
        assert_ne!(ids[0], ids[1], "also on the tape");
    }
}

#[tokio::test]
async fn a10_a_result_is_on_record_when_it_is_there_and_the_model_gets_them_in_the_order_of_its_calls() {
    let model = ScriptedModel::start(vec![calls(&["slow", "quick"]), Reply::text("done")]).await;
    let gate = Gate::new();
    let conversation = Conversation::scripted(&model, slow_and_quick(&gate)).await;
    let (served, ()) = tokio::join!(conversation.say("go"), async {
        gate.reached().await;
        while answered(&conversation.entries().await) != ["call_2"] {
            tokio::task::yield_now().await;
        }
        gate.open();
    });
    assert_eq!(served.output, "done");
    assert_eq!(answered(&conversation.entries().await), ["call_2", "call_1"]);
    assert_eq!(told(&model.requests()[1]), ["call_1: slow", "call_2: quick"]);
}

/// A tool that says how many calls are on the tape while it is at work.
fn counts(name: &'static str, conversation: &Arc<OnceLock<Conversation>>) -> capstan::hooks::contracts::FnTool {
    let conversation = Arc::clone(conversation);
    tool(name, move |_, _| {
        let conversation = Arc::clone(&conversation);
        async move {
            let entries = conversation.get().unwrap().entries().await;
            let calls = entries.iter().filter(|entry| entry.kind == Kind::ToolCall).count();
            Ok(ToolOutput::ok(format!("{calls} on record")))
        }
    })
}

#[tokio::test]
async fn x02_a_call_is_on_record_before_it_is_made_unless_it_only_looks() {
    let replies = vec![calls(&["looks"]), calls(&["does"]), calls(&["looks"]), Reply::text("done")];
    let model = ScriptedModel::start(replies).await;
    let itself = Arc::new(OnceLock::new());
    let known = Arc::clone(&itself);
    let plugin = tools(move || vec![counts("looks", &known).that_only_looks(), counts("does", &known)]);
    let started = Conversation::scripted(&model, plugin).await;
    let conversation = itself.get_or_init(|| started);
    assert_eq!(conversation.say("go").await.output, "done");
    let told: Vec<_> = model.requests()[1..].iter().map(|request| told(request).pop().unwrap()).collect();
    assert_eq!(told, ["call_1: 0 on record", "call_1_2: 2 on record", "call_1_3: 2 on record"]);
    assert_eq!(answered(&conversation.entries().await).len(), 3, "in the end all of them are");
}

#[tokio::test]
async fn a10_effects_on_the_same_thing_keep_the_models_order() {
    let model = ScriptedModel::start(vec![calls(&["first", "second", "look"]), Reply::text("done")]).await;
    let count = Arc::new(AtomicUsize::new(0));
    let plugin = tools(move || {
        let counting = |name: &str| {
            let count = Arc::clone(&count);
            tool(name, move |_, _| {
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
        let same = |_: &Map, _: &Path| Touches::One("the count".to_owned());
        vec![
            counting("first").that_touches(same),
            counting("second").that_touches(same),
            counting("look").that_only_looks(),
        ]
    });
    let conversation = Conversation::scripted(&model, plugin).await;
    conversation.say("go").await;
    assert_eq!(told(&model.requests()[1]), ["call_1: number 0", "call_2: number 1", "call_3: number 2"]);
}

#[tokio::test]
async fn p13_a_run_that_is_cancelled_between_two_results_leaves_a_valid_tape() {
    let model = ScriptedModel::start(vec![calls(&["hang", "quick"])]).await;
    let gate = Gate::new();
    let held = gate.clone();
    let plugin = tools(move || {
        let held = held.clone();
        let hang = tool("hang", move |_, _| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(ToolOutput::ok("never"))
            }
        });
        let quick = tool("quick", |_, _| async { Ok(ToolOutput::ok("quick")) });
        vec![
            hang.that_touches(|_, _| Touches::One("hang".to_owned())),
            quick.that_touches(|_, _| Touches::One("quick".to_owned())),
        ]
    });
    let conversation = Conversation::scripted(&model, plugin).await;
    let (served, ()) = tokio::join!(conversation.say("go"), async {
        gate.reached().await;
        while answered(&conversation.entries().await).is_empty() {
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
    let model = ScriptedModel::start(vec![calls(&["hang"]), Reply::text("sorry")]).await;
    let told_of = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told_of);
    let plugin = tools(move || {
        let heard = Arc::clone(&heard);
        vec![tool("hang", move |_, context: ToolContext| {
            let heard = Arc::clone(&heard);
            async move {
                // What a tool has begun elsewhere goes by the token.
                tokio::spawn(async move {
                    context.cancelled.cancelled().await;
                    heard.fetch_add(1, Ordering::SeqCst);
                });
                std::future::pending().await
            }
        })]
    });
    let conversation =
        Conversation::new(|builder| scripted(builder, &model).set("tool_timeout_seconds", "1").plugin(plugin)).await;
    assert_eq!(conversation.say("go").await.output, "sorry");
    let said = "call_1: the tool did not answer within 1 seconds and was ended; what it did is not known";
    assert_eq!(told(&model.requests()[1]), [said]);
    while told_of.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}
