//! Agent loop: its records, its limits, and the tools offered to the model.

use std::sync::Arc;

use capstan_hooks::args::StepNumber;
use capstan_hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan_hooks::points::{ContinuePrompt, ProvideTools, SystemPrompt};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{Content, JsonObject, PermissionSet, TapeAccess, ToolCall, ToolOutput};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::support::{tool_replies, tools_plugin};

#[tokio::test]
async fn a01_every_step_is_recorded() {
    let conversation = TestHost::builder().start().await;
    let served = conversation.send_message("[[tool:bash cmd=\"echo one\"]] go").await;
    let events = conversation.event_names().await;
    let steps: Vec<&str> = events.iter().map(String::as_str).filter(|name| !name.starts_with("event.")).collect();
    assert_eq!(
        steps,
        [
            "handoff",
            "loop.start",
            "loop.step.start",
            "model.call",
            "run",
            "loop.step",
            "loop.step.start",
            "model.call",
            "run",
            "loop.step",
            "outbound",
        ]
    );
    let entries = conversation.entries().await;
    let run_entry = entries.iter().find(|entry| entry.name() == Some("run")).unwrap();
    assert_eq!(run_entry.payload["data"]["status"], "ok");
    assert!(run_entry.payload["data"]["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert_eq!(run_entry.run_id(), served.run_id.as_ref().map(capstan_protocol::RunId::as_str));
}

#[tokio::test]
async fn a01_a_loop_without_an_end_fails_at_max_steps() {
    let conversation = TestHost::builder().options(|options| options.limits.max_steps = 1).start().await;
    let served = conversation.send_message("[[tool:tape.info]] [[tool:tape.info]]").await;
    assert_eq!(served.error.unwrap().code(), "max-steps");
    assert_eq!(conversation.view().await.len(), 4, "anchor, message, call, result: all valid");
}

#[tokio::test]
async fn h02_continue_prompt_is_called_before_each_further_step() {
    let plugin = ClosurePlugin::new("nudge", |hooks: &mut capstan_hooks::HookRegistrar| {
        hooks.on(ContinuePrompt, |step: StepNumber| async move { Ok(Some(Content::from(format!("step {}", step.0)))) });
    });
    let conversation = TestHost::builder().plugin(plugin).start().await;
    conversation.send_message("[[tool:bash cmd=\"echo one\"]] go").await;
    let view = conversation.view().await;
    assert_eq!(view[2..5], ["calls call_1", "tool call_1: one", "user: step 2"]);
}

#[tokio::test]
async fn p13_a_tool_cannot_call_tools_and_keeps_its_own_result() {
    let nested = |_: JsonObject, context: ToolContext| async move {
        let calls = vec![ToolCall::new("inner", "help", "{}")];
        let refused = context.api.tools.call(calls).await.map_err(|error| ToolError::new(error.message))?;
        Ok(ToolOutput::ok(format!("{refused:?}")))
    };
    let plugin = ClosurePlugin::new("nested", move |hooks: &mut capstan_hooks::HookRegistrar| {
        hooks.on_sync(ProvideTools, move || {
            let schema = json!({"type": "object", "properties": {}});
            Ok(Some(vec![Arc::new(FnTool::new("nested", "Calls a tool.", schema, nested)) as Arc<dyn Tool>]))
        });
    });
    let conversation = TestHost::builder().plugin(plugin).start().await;
    conversation.send_message("[[tool:nested]]").await;
    assert_eq!(conversation.view().await[2..4], ["calls call_1", "tool call_1: a tool cannot call tools"]);
}

#[tokio::test]
async fn a01_a_run_ends_when_its_token_budget_is_used_up() {
    let help_call =
        |text: &str| ScriptedReply::tool_calls([("call", "tape_info", json!({}))]).with_text(text).with_usage(10, 5);
    let model = ScriptedModel::start(vec![help_call("first"), help_call("second"), ScriptedReply::text("never")]).await;
    let conversation = TestHost::builder()
        .scripted_model(&model)
        .options(|options| options.limits.max_run_tokens = Some(30))
        .start()
        .await;
    let served = conversation.send_message("go").await;
    let error = served.error.unwrap();
    assert_eq!(
        (error.code().as_str(), error.public_message().as_str()),
        ("max-run-tokens", "the run did not finish within 30 tokens")
    );
    assert_eq!(model.requests().len(), 2);
    let view = conversation.view().await;
    assert!(
        view.contains(&"assistant: first".to_owned()) && view.contains(&"assistant: second".to_owned()),
        "{view:?}"
    );
    assert!(view.last().unwrap().starts_with("tool call"), "every call has its result: {view:?}");
}

#[tokio::test]
async fn a01_without_reported_usage_tokens_are_estimated_from_the_text() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "call", "type": "function", "function": {"name": "help", "arguments": "{}"}}
    ]}, "finish_reason": "tool_calls"}]});
    let unreported = ScriptedReply::raw(format!("data: {chunk}\n\ndata: [DONE]\n\n"));
    let model = ScriptedModel::start(vec![unreported, ScriptedReply::text("never")]).await;
    let conversation = TestHost::builder()
        .scripted_model(&model)
        .options(|options| options.limits.max_run_tokens = Some(50))
        .start()
        .await;
    let served = conversation.send_message(&"long ".repeat(100)).await;
    assert_eq!(served.error.unwrap().code(), "max-run-tokens");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a01_a_rejected_request_uses_no_tokens() {
    let overflow = ScriptedReply::status(400, r#"{"error": {"message": "maximum context length exceeded"}}"#);
    let model = ScriptedModel::start(vec![overflow, ScriptedReply::text("now").with_usage(10, 5)]).await;
    let conversation = TestHost::builder()
        .scripted_model(&model)
        .options(|options| options.limits.max_run_tokens = Some(50))
        .start()
        .await;
    let served = conversation.send_message(&"long ".repeat(100)).await;
    assert_eq!((served.output.as_str(), served.error.map(|error| error.public_message())), ("now", None));
}

#[tokio::test]
async fn a04_tools_that_a_provider_would_reject_are_omitted() {
    let model = ScriptedModel::start(vec![ScriptedReply::text("hello")]).await;
    let action = |_: JsonObject, _: ToolContext| async { Ok(ToolOutput::ok("mine")) };
    let invalid_tools = tools_plugin(move || {
        let schema = json!({"type": "object", "properties": {}});
        let other = FnTool::new("no.schema", "Has no schema.", json!({}), action);
        let named = |name: &str| FnTool::new(name, "Has an odd name.", schema.clone(), action);
        vec![named("a/b"), named(&"x".repeat(65)), other, named("help_me"), named("help.me"), named("fs_read")]
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(invalid_tools).start().await;
    assert_eq!(conversation.send_message("hello").await.output, "hello");
    let request = &model.requests()[0];
    let offered = request["tools"].as_array().unwrap().iter();
    let mut names: Vec<&str> = offered.map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(["a/b", "no_schema"].iter().all(|name| !names.contains(name)), "{names:?}");
    assert!(["bash", "help_me", "fs_read"].iter().all(|name| names.contains(name)), "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "unique names: {names:?}");
}

#[tokio::test]
async fn a08_a_model_cannot_choose_the_model() {
    let choose = ScriptedReply::tool_calls([("call", "model", json!({"name": "openai:dearer"}))]);
    let model = ScriptedModel::start(vec![choose, ScriptedReply::text("no"), ScriptedReply::text("still me")]).await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    conversation.send_message("go").await;
    conversation.send_message("who are you?").await;
    let requests = model.requests();
    assert!(tool_replies(&requests[1])[0].contains("there is no tool model"), "{:?}", tool_replies(&requests[1]));
    let models: Vec<&str> = requests.iter().map(|request| request["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["scripted"; 3]);
}

#[tokio::test]
async fn h07_a_slow_system_prompt_hook_does_not_block_other_tasks() {
    let (entered_sender, mut entered) = tokio::sync::mpsc::unbounded_channel();
    let (release_sender, release) = std::sync::mpsc::channel::<()>();
    let release = Arc::new(std::sync::Mutex::new(release));
    let slow = ClosurePlugin::new("slow", move |hooks: &mut capstan_hooks::HookRegistrar| {
        let (entered_sender, release) = (entered_sender.clone(), Arc::clone(&release));
        hooks.on_sync(SystemPrompt, move || {
            entered_sender.send(()).unwrap();
            // Blocks the thread, like a slow disk.
            let released = release.lock().unwrap().recv_timeout(std::time::Duration::from_secs(20));
            Ok(Some(format!("other tasks continued: {}", released.is_ok())))
        });
    });
    let model = ScriptedModel::start(vec![ScriptedReply::text("done")]).await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(slow).start().await;
    tokio::join!(conversation.send_message("go"), async {
        entered.recv().await.unwrap();
        release_sender.send(()).unwrap();
    });
    let request = model.requests()[0].to_string();
    assert!(request.contains("other tasks continued: true"), "{request}");
}

#[tokio::test]
async fn p14_tape_reads_are_bounded_and_tape_counts_are_complete() {
    let model = ScriptedModel::start(vec![
        ScriptedReply::tool_calls([("call", "read", json!({}))]),
        ScriptedReply::text("done"),
    ])
    .await;
    let read = tools_plugin(|| {
        let read = |_: JsonObject, context: ToolContext| async move {
            let tape = context.api.tape;
            let (anchors, info) = (tape.anchors(usize::MAX).await.unwrap(), tape.info().await.unwrap());
            let found = tape.search("needle", usize::MAX).await.unwrap();
            let counts = [anchors.len() as u64, found.len() as u64, info.anchors, info.entries_since_last_anchor];
            Ok(ToolOutput::ok(format!("{counts:?}, last {}", info.last_anchor.unwrap())))
        };
        let schema = json!({"type": "object", "properties": {}});
        let permissions = PermissionSet { tape: TapeAccess::Read, ..PermissionSet::none() };
        vec![FnTool::new("read", "Reads the tape.", schema, read).with_permissions(permissions)]
    });
    let conversation = TestHost::builder().scripted_model(&model).host_plugin(read).start().await;
    conversation.send_message(",help").await;
    let tape = conversation.tape().await;
    let mut batch = capstan_tape::Batch::new();
    for number in 0..250 {
        let state = JsonObject::from_iter([("word".to_owned(), json!("needle"))]);
        batch.append(&tape, capstan_tape::EntryDraft::anchor(&format!("anchor {number}"), &state));
    }
    for number in 0..150 {
        batch.append(&tape, capstan_tape::EntryDraft::event("mine", json!(number)));
    }
    conversation.tapes().commit(batch).await.unwrap();
    conversation.send_message("go").await;
    let answer = tool_replies(&model.requests()[1]).pop().unwrap();
    // The run itself wrote seven entries before this call.
    assert_eq!(answer, "call: [200, 200, 251, 157], last anchor 249");
    let found = conversation.send_message(",tape.search needle limit=1000").await;
    assert_eq!(found.output.lines().count(), 50, "each entry is read as a whole");
}

#[tokio::test]
async fn x05_an_endless_reply_is_cut_off() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1024 * 1024)}}]});
    let endless = format!("data: {chunk}\n\n").repeat(9);
    let model = ScriptedModel::start(vec![ScriptedReply::raw(format!("{endless}data: [DONE]\n\n"))]).await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(tools_plugin(Vec::new)).start().await;
    let error = conversation.send_message("go").await.error.unwrap();
    assert_eq!(error.code(), "model-broken");
    assert!(error.to_string().contains("more than the 8388608 bytes"), "{error}");
}
