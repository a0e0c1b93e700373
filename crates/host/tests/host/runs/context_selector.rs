//! Context selectors (P8), the system prompt of a run (H6), and the workspace of a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::ModelCall;
use capstan_hooks::points::{BuildPrompt, BuildTapeContext, LoadState, SystemPrompt};
use capstan_hooks::{BoxError, ContextModel, HookDeadlines, HookPermission, HookRegistrar, TurnState};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{BlobHash, ChatMessage, JsonObject, RunId, SessionId, ToolCall};
use capstan_tape::{EntryKind, TapeReader, WindowStart};
use capstan_testing::{LogRecorder, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Texts of the messages of a request, without the system prompt.
fn request_texts(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    messages.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn scripted_model(replies: usize) -> ScriptedModel {
    ScriptedModel::start((0..replies).map(|number| ScriptedReply::text(format!("reply {number}"))).collect()).await
}

#[tokio::test]
async fn p08_selector_retrieves_from_before_the_anchor() {
    let model = scripted_model(2).await;
    let plugin = ClosurePlugin::new("whole", |hooks: &mut HookRegistrar| {
        hooks.on(BuildTapeContext, |session: SessionId, state: TurnState, tape: TapeReader, run: RunId| async move {
            assert_eq!(state.get(TurnState::SESSION_KEY), Some(json!(session)));
            assert!(!run.as_str().is_empty());
            let window = tape.window(WindowStart::Beginning).await?;
            assert!(!window.is_truncated);
            let found = tape.search("orchids", 5).await?;
            let newest = tape.anchors(1).await?.pop().ok_or("no anchor")?;
            let before = found.iter().filter(|entry| entry.id < newest.id && entry.kind == EntryKind::Message).count();
            let mut messages = window.messages();
            messages.insert(0, ChatMessage::user(format!("{before} before the anchor")));
            Ok(Some(messages))
        });
    });
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    host.send_message("I grow orchids").await;
    host.send_message(",tape.handoff phase-2").await;
    let served = host.send_message("what do I grow?").await;
    assert_eq!(served.error, None);
    let texts = request_texts(&model.requests()[1]);
    assert_eq!(texts[0], "1 before the anchor");
    assert!(texts.iter().any(|text| text.ends_with("I grow orchids")), "{texts:?}");
    assert!(texts.last().unwrap().ends_with("what do I grow?"), "the message that is being served is included");
}

#[tokio::test]
async fn p08_selector_without_an_answer_leaves_the_default_view() {
    let model = scripted_model(1).await;
    let plugin = ClosurePlugin::new("shy", |hooks: &mut HookRegistrar| {
        hooks.on(BuildTapeContext, || async { Ok(None) });
    });
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    host.send_message("hello").await;
    assert_eq!(request_texts(&model.requests()[0]).len(), 2, "anchor and message");
}

#[tokio::test]
async fn p13_selection_that_splits_pairs_is_repaired() {
    let model = scripted_model(1).await;
    let plugin = ClosurePlugin::new("careless", |hooks: &mut HookRegistrar| {
        hooks.on(BuildTapeContext, || async {
            let open = ChatMessage::from_tool_calls(vec![ToolCall::new("a", "bash", "{}")]);
            let orphan = ChatMessage::tool_result("b".to_owned(), "bash".to_owned(), "lost");
            Ok(Some(vec![orphan, open, ChatMessage::assistant("the end")]))
        });
    });
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    assert_eq!(host.send_message("hello").await.error, None);
    assert_eq!(model.violations(), Vec::<String>::new(), "the scripted model rejects invalid conversations");
}

#[tokio::test]
async fn h04_p08_failing_empty_and_late_selectors_fail_the_turn() {
    let selectors: [fn(&mut HookRegistrar); 3] = [
        |hooks| {
            hooks.on(BuildTapeContext, || async { Err("no index".into()) });
        },
        |hooks| {
            hooks.on(BuildTapeContext, || async { Ok(Some(Vec::new())) });
        },
        |hooks| {
            hooks.on(BuildTapeContext, || async { std::future::pending().await });
        },
    ];
    for selector in selectors {
        let model = scripted_model(1).await;
        let deadlines = HookDeadlines { turn: Duration::from_millis(200), ..HookDeadlines::default() };
        let builder = TestHost::builder().scripted_model(&model).deadlines(deadlines);
        let host = builder.plugin(ClosurePlugin::new("broken", selector)).start().await;
        let error = host.send_message("hello").await.error.unwrap();
        assert_eq!(error.code(), "hook-failed", "{error}");
        let text = error.to_string();
        assert!(text.contains("build_tape_context of plugin broken failed"), "{text}");
        assert!(model.requests().is_empty());
    }
}

/// Plugin that shows a model's summary in place of all messages but the last.
fn summary_plugin() -> ClosurePlugin {
    ClosurePlugin::new("summary", |hooks: &mut HookRegistrar| {
        hooks.on(BuildTapeContext, |tape: TapeReader, model: ContextModel, prompt: PromptContent| async move {
            let older = tape.window(WindowStart::LastAnchor).await?.messages();
            let call = ModelCall { system: "Summarise.".to_owned(), messages: older, ..ModelCall::default() };
            let summary = model.invoke(call).await.map_err(BoxError::from)?.text;
            Ok(Some(vec![ChatMessage::user(format!("summary: {summary}")), ChatMessage::user(prompt.text())]))
        });
    })
}

#[tokio::test]
async fn p08_p15_selector_summarises_with_a_model_and_the_call_is_recorded_as_sent() {
    let model = scripted_model(2).await;
    let plugin = summary_plugin().with_permissions([HookPermission::CallModel]);
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    let served = host.send_message("hello").await;
    assert_eq!((served.error, served.output.as_str()), (None, "reply 1"));
    let texts = request_texts(&model.requests()[1]);
    assert_eq!((texts.len(), texts[0].as_str()), (2, "summary: reply 0"));
    let calls = host.event_data("model.call").await;
    assert_eq!(calls.len(), 2, "the summary is a model call of the run");
    let hashes: Vec<BlobHash> = serde_json::from_value(calls[1]["messages"].clone()).unwrap();
    let mut recorded = Vec::new();
    for hash in &hashes {
        let content = host.tapes().store().blob(hash).await.unwrap().expect("the content is kept");
        recorded.push(serde_json::from_slice::<Value>(&content).unwrap());
    }
    assert_eq!(json!(recorded), model.requests()[1]["messages"], "exactly what the model got");
}

#[tokio::test]
async fn h12_selector_calls_no_model_without_permission() {
    let model = scripted_model(1).await;
    let host = TestHost::builder().scripted_model(&model).plugin(summary_plugin()).start().await;
    assert_eq!(host.send_message("hello").await.error.unwrap().code(), "hook-failed");
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn h06_system_prompt_is_asked_once_per_run() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let plugin = ClosurePlugin::new("counter", move |hooks: &mut HookRegistrar| {
        let counter = Arc::clone(&counter);
        hooks.on_sync(SystemPrompt, move |session: SessionId| {
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Some(format!("number {number} of {session}")))
        });
    });
    let replies = vec![
        ScriptedReply::tool_calls([("c1", "help", json!({}))]),
        ScriptedReply::text("done"),
        ScriptedReply::text("again"),
    ];
    let model = ScriptedModel::start(replies).await;
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    host.send_message("one").await;
    host.send_message("two").await;
    let requests = model.requests();
    let system = |request: &Value| request["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_eq!(requests.len(), 3);
    assert_eq!(system(&requests[0]), system(&requests[1]), "the prefix of a run does not change");
    assert!(system(&requests[1]).contains("number 1 of cli:local") && system(&requests[2]).contains("number 2 of"));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn t03_workspace_of_a_plugin_is_ignored_by_prompt_skills_and_tools_alike() {
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("AGENTS.md"), "Speak as elsewhere.").unwrap();
    let skill = elsewhere.path().join(".agents/skills/foreign");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: foreign\ndescription: Foreign.\n---\nx\n").unwrap();
    let path = elsewhere.path().to_str().unwrap().to_owned();
    let plugin = ClosurePlugin::new("mover", move |hooks: &mut HookRegistrar| {
        let path = path.clone();
        hooks.on(LoadState, move || {
            let path = path.clone();
            async move { Ok(Some(JsonObject::from_iter([(TurnState::WORKSPACE_KEY.to_owned(), json!(path))]))) }
        });
    });
    let replies = vec![ScriptedReply::tool_calls([("c1", "bash", json!({"cmd": "pwd"}))]), ScriptedReply::text("done")];
    let model = ScriptedModel::start(replies).await;
    let host = TestHost::builder().scripted_model(&model).plugin(plugin).start().await;
    assert_eq!(host.send_message("use $foreign").await.error, None);
    let requests = model.requests();
    let system = requests[0]["messages"][0].to_string();
    assert!(!system.contains("Speak as elsewhere") && !system.contains("foreign"), "{system}");
    assert!(!requests[0].to_string().contains("<skill"), "the message requests no skill of another workspace");
    let shown = requests[1].to_string();
    let workspace = host.workspace().canonicalize().unwrap();
    assert!(shown.contains(workspace.to_str().unwrap()), "{shown}");
    assert!(!shown.contains(elsewhere.path().to_str().unwrap()), "{shown}");
}

/// Plugin whose hooks set a workspace of their own: one returns it, the other sets it.
fn register_workspace_setters(hooks: &mut HookRegistrar) {
    hooks
        .on(LoadState, || async {
            Ok(Some(JsonObject::from_iter([(TurnState::WORKSPACE_KEY.to_owned(), json!("/elsewhere"))])))
        })
        .on(BuildPrompt, |state: TurnState| async move {
            state.set(TurnState::WORKSPACE_KEY, "/nowhere");
            Ok(None)
        });
}

#[tokio::test]
async fn t03_a_workspace_that_a_plugin_sets_is_reported_once() {
    let (log, _guard) = LogRecorder::install();
    let host = TestHost::builder().register("mover", register_workspace_setters).start().await;
    host.send_message("one").await;
    host.send_message("two").await;
    let lines = log.lines_with(TurnState::WORKSPACE_KEY);
    let [returned, set] = &lines[..] else { panic!("one warning for each way: {lines:?}") };
    assert!(returned.contains("load_state sets") && returned.contains("plugin=mover"), "{returned}");
    assert!(returned.contains("ignored") && set.contains("a hook sets") && set.contains("ignored"), "{set}");
}
