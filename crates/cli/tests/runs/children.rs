//! Child runs: the agent on a fork of its tape.

use capstan::protocol::{RunId, ToolOutput, ToolUse};
use capstan::tape::{ForkState, RunRecord, RunStatus, Slice};
use capstan_testing::{Gate, Reply, ScriptedModel};
use serde_json::{Value, json};

use super::support::{Conversation, scripted, told, tool, tools};

fn subagent(arguments: Value) -> Reply {
    Reply::tool_calls([("call", "subagent", arguments)])
}

/// What the newest message of the user says.
fn asked(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let asked = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
    asked["content"].as_str().unwrap().to_owned()
}

fn ends_on_result(request: &Value) -> bool {
    request["messages"].as_array().unwrap().last().unwrap()["role"] == "tool"
}

async fn runs(conversation: &Conversation) -> Vec<RunRecord> {
    conversation.host.tapes().store().runs(10).await.unwrap()
}

async fn child_of(conversation: &Conversation, parent: &RunId) -> RunRecord {
    runs(conversation).await.into_iter().find(|run| run.parent.as_ref() == Some(parent)).expect("a child")
}

#[tokio::test]
async fn k04_a_subagent_works_on_a_fork_of_the_tape_and_its_answer_is_the_result() {
    let model =
        ScriptedModel::start_with(|request, _| match (asked(request).contains("count"), ends_on_result(request)) {
            (true, false) => Reply::tool_calls([("inner", "help", json!({}))]).with_usage(100, 10),
            (true, true) => Reply::text("three").with_usage(200, 20),
            (false, false) => subagent(json!({"prompt": "count the files"})).with_usage(1, 1),
            (false, true) => Reply::text("there are three").with_usage(2, 2),
        })
        .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    let served = conversation.say("how many?").await;
    assert_eq!(served.output, "there are three");
    assert_eq!(told(model.requests().last().unwrap()), ["call: three"]);
    assert_eq!(served.usage.unwrap().total_tokens, Some(2 + 110 + 220 + 4), "what it used is part of the run's");

    let parent = served.run_id.unwrap();
    let child = child_of(&conversation, &parent).await;
    assert_eq!((child.status, child.usage.unwrap().total_tokens), (RunStatus::Completed, Some(330)));
    let tapes = conversation.host.tapes();
    let fork = tapes.record(&child.tape).await.unwrap().unwrap().fork.unwrap();
    assert_eq!((fork.parent, fork.state), (conversation.tape().await, ForkState::Discarded));
    let request = &model.requests()[1];
    assert!(!request.to_string().contains("how many?"), "it has a context of its own: {request}");
    let seen = tapes.read(&child.tape, &Slice::all()).await.unwrap();
    assert!(seen.iter().any(|entry| entry.payload.to_string().contains("how many?")), "and can look at the tape");
    let own = conversation.entries().await;
    assert!(!own.iter().any(|entry| entry.run_id() == Some(child.run_id.as_str())), "nothing is merged back");
}

#[tokio::test]
async fn k04_a_subagent_may_do_no_more_than_it_is_given() {
    let model =
        ScriptedModel::start_with(|request, _| match (asked(request).contains("look"), ends_on_result(request)) {
            (true, false) => Reply::tool_calls([("inner", "bash", json!({"cmd": "echo no"}))]),
            (true, true) => Reply::text("it is not allowed"),
            (false, false) => subagent(json!({"prompt": "look around", "tools": ["help", "fs_read"]})),
            (false, true) => Reply::text("done"),
        })
        .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    let served = conversation.say("go").await;
    assert_eq!(served.output, "done");
    let requests = model.requests();
    let offered: Vec<&str> = requests[1]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["fs_read", "help"]);
    assert_eq!(told(&requests[2]), ["inner: the tool bash is not allowed here"]);
    let child = child_of(&conversation, &served.run_id.unwrap()).await;
    assert!(!child.grant.may.tools.allows(ToolUse::Call, "bash") && !child.grant.shell_commands);
}

#[tokio::test]
async fn k04_a_subagent_of_a_subagent_is_the_last() {
    let model = ScriptedModel::start_with(|request, _| {
        let depth = asked(request).len();
        if ends_on_result(request) {
            Reply::text(told(request).pop().unwrap())
        } else {
            subagent(json!({"prompt": "x".repeat(depth + 1)}))
        }
    })
    .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    let served = conversation.say("x").await;
    assert!(served.output.contains("does not cover child runs"), "{}", served.output);
    assert_eq!(runs(&conversation).await.len(), 3);
}

#[tokio::test]
async fn k04_the_steps_of_a_subagent_are_steps_of_its_parent() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => subagent(json!({"prompt": "for ever"})),
        _ if asked(request).contains("for ever") => Reply::tool_calls([("inner", "help", json!({}))]),
        _ => Reply::text("not reached"),
    })
    .await;
    let conversation = Conversation::new(|builder| scripted(builder, &model).set("max_steps", "4")).await;
    let served = conversation.say("go").await;
    assert_eq!(served.error.unwrap().code(), "max-steps");
    assert_eq!(model.requests().len(), 4, "all of both");
    let child = child_of(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Failed);
    let view = conversation.view().await;
    assert!(view.last().unwrap().contains("the subagent failed: the agent did not finish within 3 steps"), "{view:?}");
}

#[tokio::test]
async fn k04_a_subagent_is_cancelled_with_its_parent() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, answered| match answered {
        0 => subagent(json!({"prompt": "wait"})),
        _ => Reply::text("half an answer").held_at(&held),
    })
    .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    let (served, ()) = tokio::join!(conversation.say("go"), async {
        gate.reached().await;
        conversation.host.cancel();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    let child = child_of(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Cancelled);
    let record = conversation.host.tapes().record(&child.tape).await.unwrap().unwrap();
    assert_eq!(record.fork.unwrap().state, ForkState::Discarded);
    assert_eq!(conversation.host.tapes().store().running().await.unwrap(), []);
    gate.open();
}

#[tokio::test]
async fn a10_subagents_of_one_step_work_at_the_same_time() {
    let (first, second) = (Gate::new(), Gate::new());
    let gates = [first.clone(), second.clone()];
    let model = ScriptedModel::start_with(move |request, _| match asked(request).as_str() {
        "one" => Reply::text("1 done").held_at(&gates[0]),
        "two" => Reply::text("2 done").held_at(&gates[1]),
        _ if ends_on_result(request) => Reply::text("both"),
        _ => Reply::tool_calls([
            ("a", "subagent", json!({"prompt": "one"})),
            ("b", "subagent", json!({"prompt": "two"})),
        ]),
    })
    .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    let (served, ()) = tokio::join!(conversation.say("go"), async {
        first.reached().await;
        second.reached().await;
        first.open();
        second.open();
    });
    assert_eq!(served.output, "both");
    assert_eq!(told(model.requests().last().unwrap()), ["a: 1 done", "b: 2 done"]);
}

#[tokio::test]
async fn a08_a_subagent_uses_the_model_of_its_session() {
    let model = ScriptedModel::start_with(|request, _| match (asked(request) == "inner", ends_on_result(request)) {
        (true, _) => Reply::text("inner done"),
        (false, false) => subagent(json!({"prompt": "inner"})),
        (false, true) => Reply::text("done"),
    })
    .await;
    let conversation = Conversation::scripted(&model, tools(Vec::new)).await;
    conversation.say(",model openai:chosen").await;
    assert_eq!(conversation.say("go").await.output, "done");
    let models: Vec<Value> = model.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["chosen", "chosen", "chosen"]);
}

/// The artifact that a text speaks of.
fn handle(text: &str) -> &str {
    let (_, rest) = text.split_once("artifact ").unwrap();
    rest.split(',').next().unwrap()
}

#[tokio::test]
async fn a10_what_a_subagent_kept_can_be_read_by_its_parent_and_by_its_siblings() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => subagent(json!({"prompt": "make it"})),
        1 => Reply::tool_calls([("long", "long", json!({}))]),
        2 => Reply::text(format!("artifact {}", handle(&told(request)[0]))),
        3 => Reply::tool_calls([("call", "artifact_read", json!({"artifact": handle(&told(request)[0]), "limit": 9}))]),
        4 => subagent(json!({"prompt": format!("read artifact {}", handle(&told(request)[0]))})),
        5 => Reply::tool_calls([("call", "artifact_read", json!({"artifact": handle(&asked(request)), "limit": 9}))]),
        _ => Reply::text("done"),
    })
    .await;
    let long = tools(|| vec![tool("long", |_, _| async { Ok(ToolOutput::ok("the whole of it ".repeat(5000))) })]);
    let conversation = Conversation::scripted(&model, long).await;
    conversation.say("go").await;
    let requests = model.requests();
    for reader in [4, 6] {
        let part = told(&requests[reader]).pop().unwrap();
        assert!(part.contains("the whole") && part.contains("[bytes 0 to 9 of "), "{part}");
    }
}
