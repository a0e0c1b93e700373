//! Child runs: the agent works on a fork of its tape.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ChildRunCall, ResultStream, RunApi, Runner};
use capstan_host::testing::TestHost;
use capstan_policy::default_binding;
use capstan_protocol::{
    Binding, Descriptor, Event, JsonObject, PermissionSet, ResultBody, RunContext, RunId, RunResult, ToolOperation,
    ToolOutput,
};
use capstan_tape::{EntryKind, ForkState, RunRecord, RunStatus, TapeSlice};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use super::support::{test_tool, tool_replies, tools_plugin};

/// Runner with a configuration of its own that starts one child run. Records the configuration of both.
struct StrictRunner(Arc<Mutex<Vec<JsonObject>>>);

impl Runner for StrictRunner {
    fn descriptor(&self) -> Descriptor {
        let schema = json!({"properties": {"tone": {"type": "string"}}, "additionalProperties": false});
        let descriptor = Descriptor::new("builtin:agent", "strict");
        Descriptor { permissions: PermissionSet::all(), config_schema: Some(schema), ..descriptor }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let is_child = context.input.plain_text() == "child";
        self.0.lock().unwrap().push(context.config);
        let work = async move {
            if !is_child {
                api.runs.child(ChildRunCall::new("child")).await.unwrap();
            }
            futures::stream::iter([RunResult::from(ResultBody::RunCompleted { silent: true })])
        };
        work.flatten_stream().boxed()
    }
}

#[tokio::test]
async fn k04_a_child_run_has_the_configuration_of_its_parent() {
    let configs = Arc::new(Mutex::new(Vec::new()));
    let config = JsonObject::from_iter([("tone".to_owned(), json!("calm"))]);
    let binding = Binding { runner_config: config.clone(), ..default_binding() };
    let host = TestHost::builder().agent(StrictRunner(Arc::clone(&configs))).binding(binding).start().await;
    assert!(host.send_message("go").await.error.is_none());
    assert_eq!(*configs.lock().unwrap(), [config.clone(), config]);
}

fn subagent_call(arguments: Value) -> ScriptedReply {
    ScriptedReply::tool_calls([("call", "subagent", arguments)])
}

/// Text of the newest user message.
fn last_user_message(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let message = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
    message["content"].as_str().unwrap().to_owned()
}

fn ends_with_tool_result(request: &Value) -> bool {
    request["messages"].as_array().unwrap().last().unwrap()["role"] == "tool"
}

async fn list_runs(conversation: &TestHost) -> Vec<RunRecord> {
    conversation.tapes().store().run_page(None, 10).await.unwrap()
}

async fn child_run(conversation: &TestHost, parent: &RunId) -> RunRecord {
    list_runs(conversation).await.into_iter().find(|run| run.parent.as_ref() == Some(parent)).expect("a child")
}

#[tokio::test]
async fn k04_a_subagent_runs_on_a_fork_and_its_reply_is_the_tool_result() {
    let model = ScriptedModel::start_with(|request, _| {
        match (last_user_message(request).contains("count"), ends_with_tool_result(request)) {
            (true, false) => ScriptedReply::tool_calls([("inner", "tape_info", json!({}))]).with_usage(100, 10),
            (true, true) => ScriptedReply::text("three").with_usage(200, 20),
            (false, false) => subagent_call(json!({"prompt": "count the files"})).with_usage(1, 1),
            (false, true) => ScriptedReply::text("there are three").with_usage(2, 2),
        }
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message("how many?").await;
    assert_eq!(served.output, "there are three");
    assert_eq!(tool_replies(model.requests().last().unwrap()), ["call: three"]);
    assert_eq!(
        served.usage.unwrap().total_tokens,
        Some(2 + 110 + 220 + 4),
        "the usage of the child is part of its parent's"
    );

    let parent = served.run_id.unwrap();
    let child = child_run(&conversation, &parent).await;
    assert_eq!((child.status, child.usage.unwrap().total_tokens), (RunStatus::Completed, Some(330)));
    let tapes = conversation.tapes();
    let fork = tapes.record(&child.tape).await.unwrap().unwrap().fork.unwrap();
    assert_eq!((fork.parent, fork.state), (conversation.tape().await, ForkState::Discarded));
    let request = &model.requests()[1];
    assert!(!request.to_string().contains("how many?"), "the child has its own context: {request}");
    let inherited = tapes.read(&child.tape, &TapeSlice::all()).await.unwrap();
    assert!(
        inherited.iter().any(|entry| entry.payload.to_string().contains("how many?")),
        "the child can read the tape of its parent"
    );
    let entries = conversation.entries().await;
    assert!(!entries.iter().any(|entry| entry.run_id() == Some(child.run_id.as_str())), "nothing is merged back");
}

#[tokio::test]
async fn k04_a_subagent_of_a_command_serves_its_prompt_and_not_the_command() {
    let model = ScriptedModel::start(vec![ScriptedReply::text("three"), ScriptedReply::text("no reset")]).await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message(",subagent prompt='count the files'").await;
    assert_eq!(served.output, "three");
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Completed);
    assert_eq!(list_runs(&conversation).await.len(), 2, "one run for the command and one for its subagent");
    // A prompt is never a command, not even one that looks like the line of a person.
    assert_eq!(conversation.send_message(",subagent ',tape.reset'").await.output, "no reset");
    let prompts: Vec<String> = model.requests().iter().map(last_user_message).collect();
    assert_eq!(prompts, ["count the files", "Task: ,tape.reset"]);
    let entries = conversation.entries().await;
    let commands = entries.iter().filter(|entry| entry.name() == Some("command"));
    let lines: Vec<&str> = commands.map(|entry| entry.payload["data"]["raw"].as_str().unwrap()).collect();
    assert_eq!(lines, ["subagent prompt='count the files'", "subagent ',tape.reset'"]);
}

#[tokio::test]
async fn k04_a_subagent_has_only_the_tools_it_is_granted() {
    let model = ScriptedModel::start_with(|request, _| {
        match (last_user_message(request).contains("look"), ends_with_tool_result(request)) {
            (true, false) => ScriptedReply::tool_calls([("inner", "bash", json!({"cmd": "echo no"}))]),
            (true, true) => ScriptedReply::text("it is not allowed"),
            (false, false) => subagent_call(json!({"prompt": "look around", "tools": ["tape.info", "fs_read"]})),
            (false, true) => ScriptedReply::text("done"),
        }
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.output, "done");
    let requests = model.requests();
    let offered: Vec<&str> = requests[1]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["fs_read", "tape_info"]);
    assert_eq!(tool_replies(&requests[2]), ["inner: the tool bash is not allowed here"]);
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    assert!(!child.grant.may.tools.allows(ToolOperation::Call, "bash") && !child.grant.shell_commands);
}

#[tokio::test]
async fn g05_a_subagent_of_a_remote_event_gets_no_shell() {
    let model = ScriptedModel::start_with(|request, _| {
        match (last_user_message(request).contains("look"), ends_with_tool_result(request)) {
            (true, false) => ScriptedReply::tool_calls([("inner", "bash", json!({"cmd": "touch made"}))]),
            (true, true) => ScriptedReply::text("it is not allowed"),
            (false, false) => subagent_call(json!({"prompt": "look around"})),
            (false, true) => ScriptedReply::text("done"),
        }
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).start().await;
    let served = conversation.serve(Event::message("cli", "local", "go")).await.unwrap();
    assert_eq!(served.output, "done");
    assert_eq!(tool_replies(&model.requests()[2]), ["inner: the tool bash is not allowed here"]);
    assert!(!conversation.workspace().join("made").exists());
}

#[tokio::test]
async fn k04_subagents_nest_two_levels_deep() {
    let model = ScriptedModel::start_with(|request, _| {
        let depth = last_user_message(request).len();
        if ends_with_tool_result(request) {
            ScriptedReply::text(tool_replies(request).pop().unwrap())
        } else {
            subagent_call(json!({"prompt": "x".repeat(depth + 1)}))
        }
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message("x").await;
    assert!(served.output.contains("does not cover child runs"), "{}", served.output);
    assert_eq!(list_runs(&conversation).await.len(), 3);
}

#[tokio::test]
async fn k04_steps_of_a_subagent_count_as_steps_of_its_parent() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => subagent_call(json!({"prompt": "for ever"})),
        _ if last_user_message(request).contains("for ever") => {
            ScriptedReply::tool_calls([("inner", "tape_info", json!({}))])
        }
        _ => ScriptedReply::text("not reached"),
    })
    .await;
    let conversation =
        TestHost::builder().scripted_model(&model).options(|options| options.limits.max_steps = 4).start().await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.error.unwrap().code(), "max-steps");
    assert_eq!(model.requests().len(), 4, "steps of both runs");
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Failed);
    let view = conversation.view().await;
    assert!(view.last().unwrap().contains("the subagent failed: the agent did not finish within 3 steps"), "{view:?}");
}

#[tokio::test]
async fn k04_a_subagent_is_cancelled_with_its_parent() {
    let barrier = ReplyBarrier::new();
    let model_barrier = barrier.clone();
    let model = ScriptedModel::start_with(move |_, answered| match answered {
        0 => subagent_call(json!({"prompt": "wait"})),
        _ => ScriptedReply::text("half an answer").with_barrier(&model_barrier),
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        barrier.reached().await;
        conversation.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Cancelled);
    let record = conversation.tapes().record(&child.tape).await.unwrap().unwrap();
    assert_eq!(record.fork.unwrap().state, ForkState::Discarded);
    assert_eq!(conversation.tapes().store().open_runs().collect().await.unwrap(), []);
    barrier.release();
}

#[tokio::test]
async fn a10_subagents_of_one_step_run_in_parallel() {
    let (first, second) = (ReplyBarrier::new(), ReplyBarrier::new());
    let barriers = [first.clone(), second.clone()];
    let model = ScriptedModel::start_with(move |request, _| match last_user_message(request).as_str() {
        "one" => ScriptedReply::text("1 done").with_barrier(&barriers[0]),
        "two" => ScriptedReply::text("2 done").with_barrier(&barriers[1]),
        _ if ends_with_tool_result(request) => ScriptedReply::text("both"),
        _ => ScriptedReply::tool_calls([
            ("a", "subagent", json!({"prompt": "one"})),
            ("b", "subagent", json!({"prompt": "two"})),
        ]),
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        first.reached().await;
        second.reached().await;
        first.release();
        second.release();
    });
    assert_eq!(served.output, "both");
    assert_eq!(tool_replies(model.requests().last().unwrap()), ["a: 1 done", "b: 2 done"]);
}

#[tokio::test]
async fn a08_a_subagent_uses_the_model_of_its_session() {
    let model = ScriptedModel::start_with(|request, _| {
        match (last_user_message(request) == "inner", ends_with_tool_result(request)) {
            (true, _) => ScriptedReply::text("inner done"),
            (false, false) => subagent_call(json!({"prompt": "inner"})),
            (false, true) => ScriptedReply::text("done"),
        }
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    conversation.send_message(",model openai:chosen").await;
    assert_eq!(conversation.send_message("go").await.output, "done");
    let models: Vec<Value> = model.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["chosen", "chosen", "chosen"]);
}

/// Artifact id mentioned in a text.
fn artifact_handle(text: &str) -> &str {
    let (_, rest) = text.split_once("artifact ").unwrap();
    rest.split(',').next().unwrap()
}

#[tokio::test]
async fn a10_artifacts_of_a_subagent_are_readable_by_its_parent_and_siblings() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => subagent_call(json!({"prompt": "make it"})),
        1 => ScriptedReply::tool_calls([("long", "long", json!({}))]),
        2 => ScriptedReply::text(format!("artifact {}", artifact_handle(&tool_replies(request)[0]))),
        3 => ScriptedReply::tool_calls([(
            "call",
            "artifact_read",
            json!({"artifact": artifact_handle(&tool_replies(request)[0]), "limit": 9}),
        )]),
        4 => subagent_call(json!({"prompt": format!("read artifact {}", artifact_handle(&tool_replies(request)[0]))})),
        5 => ScriptedReply::tool_calls([(
            "call",
            "artifact_read",
            json!({"artifact": artifact_handle(&last_user_message(request)), "limit": 9}),
        )]),
        _ => ScriptedReply::text("done"),
    })
    .await;
    let long =
        tools_plugin(|| vec![test_tool("long", |_, _| async { Ok(ToolOutput::ok("the whole of it ".repeat(5000))) })]);
    let conversation = TestHost::builder().scripted_model(&model).plugin(long).start().await;
    conversation.send_message("go").await;
    let requests = model.requests();
    for reader in [4, 6] {
        let part = tool_replies(&requests[reader]).pop().unwrap();
        assert!(part.contains("the whole") && part.contains("[bytes 0 to 9 of "), "{part}");
    }
}

#[tokio::test]
async fn k04_a_subagent_is_refused_when_no_step_is_left() {
    let model = ScriptedModel::start_with(|_, _| subagent_call(json!({"prompt": "more"}))).await;
    let conversation =
        TestHost::builder().scripted_model(&model).options(|options| options.limits.max_steps = 1).start().await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.error.unwrap().code(), "max-steps");
    assert_eq!(list_runs(&conversation).await.len(), 1, "no child run was begun");
    let view = conversation.view().await;
    assert!(view.last().unwrap().contains("no step is left for a child run"), "{view:?}");
}

#[tokio::test]
async fn k04_a_run_has_a_limited_number_of_subagents() {
    let model = ScriptedModel::start_with(|request, answered| {
        let call = |index: usize| (format!("c{index}"), "subagent".to_owned(), json!({"prompt": "small"}));
        match answered {
            0 => ScriptedReply::tool_calls((0..101).map(call)),
            _ if last_user_message(request).contains("small") => ScriptedReply::text("done"),
            _ => ScriptedReply::text("all done"),
        }
    })
    .await;
    let conversation =
        TestHost::builder().scripted_model(&model).options(|options| options.limits.max_steps = 200).start().await;
    let served = conversation.send_message("go").await;
    assert_eq!(served.output, "all done");
    let view = conversation.view().await;
    assert_eq!(view.iter().filter(|line| line.contains("a run has at most 100 child runs")).count(), 1, "{view:?}");
}

#[tokio::test]
async fn k04_a_subagent_uses_the_model_that_its_call_names() {
    let model = ScriptedModel::start(vec![
        subagent_call(json!({"prompt": "count", "model": "openai:small"})),
        ScriptedReply::text("three"),
        subagent_call(json!({"prompt": "count", "model": "nowhere:small"})),
        ScriptedReply::text("done"),
    ])
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    assert_eq!(conversation.send_message("how many?").await.output, "done");
    let models: Vec<Value> = model.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["scripted", "small", "scripted", "scripted"]);
    let refused = tool_replies(&model.requests()[3]);
    assert!(refused.iter().any(|reply| reply.contains("there is no model provider \"nowhere\"")), "{refused:?}");
}

#[tokio::test]
async fn p09_a_merged_child_joins_its_parent_after_the_result_of_the_call() {
    let model = ScriptedModel::start(vec![
        subagent_call(json!({"prompt": "count the files", "merge_back": true})),
        ScriptedReply::tool_calls([("inner", "tape_info", json!({}))]),
        ScriptedReply::text("three"),
        ScriptedReply::text("there are three"),
    ])
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message("how many?").await;
    assert_eq!(served.output, "there are three");
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    assert_eq!(child.status, RunStatus::Completed);
    let tapes = conversation.tapes();
    let fork = tapes.record(&child.tape).await.unwrap().unwrap().fork.unwrap();
    assert_eq!((fork.parent, fork.state), (conversation.tape().await, ForkState::Merged));

    let entries = conversation.entries().await;
    let is_of_child = |entry: &&capstan_tape::Entry| entry.run_id() == Some(child.run_id.as_str());
    let joined: Vec<_> = entries.iter().filter(is_of_child).collect();
    assert!(joined.iter().any(|entry| entry.payload["content"] == "three"), "{joined:?}");
    assert!(joined.iter().all(|entry| entry.kind != EntryKind::Anchor), "the window of the parent does not move");
    let result = entries.iter().find(|entry| entry.payload["call_ids"][0] == "call").unwrap();
    assert!(joined.iter().all(|entry| entry.id > result.id), "not between the call and its result");
    let last = model.requests().last().unwrap().to_string();
    assert!(last.contains("how many?") && last.contains("count the files"), "the parent sees both: {last}");
}

#[tokio::test]
async fn a04_a_subagent_may_inherit_the_conversation_up_to_its_step() {
    for (arguments, knows) in [
        (json!({"prompt": "review it", "session": "inherit", "merge_back": true}), true),
        (json!({"prompt": "review it", "session": "temp"}), false),
        (json!({"prompt": "review it"}), false),
    ] {
        let model = ScriptedModel::start(vec![
            ScriptedReply::text("the plan is to wait"),
            subagent_call(arguments.clone()),
            ScriptedReply::text("a sound plan"),
            ScriptedReply::text("it is sound"),
        ])
        .await;
        let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
        conversation.send_message("make a plan").await;
        assert_eq!(conversation.send_message("is it sound?").await.output, "it is sound", "{arguments}");
        let requests = model.requests();
        let of_child = &requests[2]["messages"];
        let text = of_child.to_string();
        for said in ["make a plan", "the plan is to wait", "is it sound?"] {
            assert_eq!(text.contains(said), knows, "{arguments}: {said}");
        }
        assert_eq!(of_child.as_array().unwrap().last().unwrap()["content"], "review it");
        let calls = of_child.as_array().unwrap().iter().filter(|message| message.get("tool_calls").is_some()).count();
        assert_eq!(calls, 0, "the step that started it is not part of its context: {text}");
        let parent = requests[3]["messages"].to_string();
        assert!(parent.contains("make a plan") && parent.contains("a sound plan"), "{parent}");
        assert_eq!(model.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn p09_a_child_that_fails_is_not_merged() {
    let model = ScriptedModel::start(vec![
        subagent_call(json!({"prompt": "count the files", "merge_back": true, "max_steps": 1})),
        ScriptedReply::tool_calls([("inner", "tape_info", json!({}))]),
        ScriptedReply::text("it failed"),
    ])
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let served = conversation.send_message("how many?").await;
    let child = child_run(&conversation, &served.run_id.unwrap()).await;
    let fork = conversation.tapes().record(&child.tape).await.unwrap().unwrap().fork.unwrap();
    assert_eq!((child.status, fork.state), (RunStatus::Failed, ForkState::Discarded));
    let entries = conversation.entries().await;
    assert!(!entries.iter().any(|entry| entry.run_id() == Some(child.run_id.as_str())));
}
