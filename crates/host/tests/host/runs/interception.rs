//! Interception hooks, called before and after every model and tool call inside the run API.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::{LlmOutcome, LlmRequest, PendingToolCall, ToolOutcome};
use capstan_hooks::points::{
    AfterLlmCall, AfterToolCall, BeforeLlmCall, BeforeToolCall, LlmCallVerdict, ToolCallVerdict,
};
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, SCRIPTED_MODEL_KEY, TestHost, TestHostBuilder, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{JsonObject, ModelOutput, ModelRequest, ToolOutput, Usage};
use capstan_tape::EntryKind;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::support::tool_replies;

/// Tool results on the tape.
async fn tool_results(conversation: &TestHost) -> Vec<String> {
    let entries = conversation.entries().await;
    let results = entries.iter().filter(|entry| entry.kind == EntryKind::ToolResult);
    results.map(|entry| entry.payload["results"][0].as_str().unwrap().to_owned()).collect()
}

/// Builder of a host that tries these models after the scripted one, each once.
fn builder_without_retries(server: &ScriptedModel, fallback_models: &[&str]) -> TestHostBuilder {
    let provider = ProviderOptions { retries: 0, ..scripted_provider_options(server) };
    let builder = TestHost::builder().scripted_model(server).provider("openai", WireProtocol::OpenAi, provider);
    let fallback_models = fallback_models.iter().map(|model| model.parse().unwrap()).collect();
    builder.options(|options| options.fallback_models = fallback_models)
}

#[derive(Clone, Default)]
struct CallLog(Arc<Mutex<Vec<String>>>);

impl CallLog {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Replaces the secret in every message.
fn redact_secret(request: &ModelRequest) -> ModelRequest {
    let text = serde_json::to_string(request).unwrap().replace("s3cret", "[redacted]");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn h10_the_changed_request_is_sent_and_recorded() {
    let redactor = ClosurePlugin::new("redactor", |hooks| {
        hooks.fail_closed().on(BeforeLlmCall, |request: LlmRequest| async move {
            Ok(Some(LlmCallVerdict::Change(redact_secret(&request.0))))
        });
    });
    let conversation = TestHost::builder().plugin(redactor).start().await;
    let served = conversation.send_message("the word is s3cret").await;
    assert!(served.output.ends_with("You said: the word is [redacted]"), "{}", served.output);
    let calls = capstan_host::model_call_log::ModelCallReader { tapes: conversation.tapes() };
    let recorded = calls.read_run(served.run_id.as_ref().unwrap()).await.unwrap().unwrap();
    assert!(!format!("{recorded:?}").contains("s3cret"), "recorded after interception");
}

#[tokio::test]
async fn h10_each_fallback_model_is_intercepted_separately() {
    let refused = || ScriptedReply::status(503, r#"{"error": {"message": "not now"}}"#);
    let model = ScriptedModel::start(vec![refused(), refused(), ScriptedReply::text("I can")]).await;
    let log = CallLog::default();
    let (before, after) = (log.clone(), log.clone());
    let guard = ClosurePlugin::new("guard", move |hooks| {
        let (before, after) = (before.clone(), after.clone());
        hooks
            .fail_closed()
            .on(BeforeLlmCall, move |request: LlmRequest| {
                before.add(format!("before {}", request.0.model.name()));
                // Only the first model is trusted with the secret.
                let is_trusted = request.0.model.name() == "scripted";
                async move { Ok((!is_trusted).then(|| LlmCallVerdict::Change(redact_secret(&request.0)))) }
            })
            .on(AfterLlmCall, move |request: LlmRequest, outcome: LlmOutcome| {
                let status = if outcome.0.is_ok() { "answered" } else { "failed" };
                after.add(format!("{} {status}", request.0.model.name()));
                async { Ok(None) }
            });
    });
    let conversation = builder_without_retries(&model, &["openai:second", "openai:third"]).plugin(guard).start().await;
    assert_eq!(conversation.send_message("the word is s3cret").await.output, "I can");
    let expected =
        ["before scripted", "scripted failed", "before second", "second failed", "before third", "third answered"];
    assert_eq!(log.lines(), expected);
    let has_secret: Vec<bool> = model.requests().iter().map(|request| request.to_string().contains("s3cret")).collect();
    assert_eq!(has_secret, [true, false, false]);
}

/// Plugin that finishes every call with `output` and logs the outcomes.
fn canned_reply_plugin(output: ModelOutput, log: CallLog) -> impl Plugin {
    ClosurePlugin::new("canned", move |hooks| {
        let (output, log) = (output.clone(), log.clone());
        hooks
            .on(BeforeLlmCall, move || {
                let output = output.clone();
                async { Ok(Some(LlmCallVerdict::Finish(output))) }
            })
            .on(AfterLlmCall, move |request: LlmRequest, outcome: LlmOutcome| {
                let text = outcome.0.as_ref().as_ref().map_or("failed", |output| output.text.as_str()).to_owned();
                log.add(format!("{}: {text}", request.0.model));
                async { Ok(None) }
            });
    })
}

#[tokio::test]
async fn h10_a_call_can_be_finished_without_the_provider() {
    let output = ModelOutput { text: "from the cache".to_owned(), ..ModelOutput::default() };
    let log = CallLog::default();
    let conversation = TestHost::builder().plugin(canned_reply_plugin(output, log.clone())).start().await;
    let served = conversation.send_message("hello").await;
    assert_eq!(served.output, "from the cache");
    assert_eq!(served.usage, None, "no provider was called");
    assert_eq!(log.lines(), ["demo:: from the cache"], "the finished call has an outcome like any other");
    assert!(conversation.event_names().await.contains(&"run".to_owned()));
}

#[tokio::test]
async fn h10_usage_and_metadata_of_a_call_finished_by_a_plugin_are_recorded() {
    let usage = Usage { prompt_tokens: Some(3), completion_tokens: Some(4), total_tokens: Some(7), ..Usage::default() };
    let provider_meta = JsonObject::from_iter([("cache".to_owned(), json!("hit"))]);
    let output = ModelOutput { text: "again".to_owned(), usage: Some(usage), provider_meta, ..ModelOutput::default() };
    let conversation = TestHost::builder().plugin(canned_reply_plugin(output, CallLog::default())).start().await;
    let served = conversation.send_message("hello").await;
    assert_eq!(served.usage.and_then(|usage| usage.total_tokens), Some(7));
    let entries = conversation.entries().await;
    let answer = entries.iter().rfind(|entry| entry.kind == EntryKind::Message).unwrap();
    assert!(serde_json::to_string(&answer.meta).unwrap().contains(r#""cache":"hit""#), "{answer:?}");
}

#[tokio::test]
async fn h10_a_hook_changes_replaces_or_denies_a_tool_call() {
    let guard = |decision: fn() -> ToolCallVerdict| {
        ClosurePlugin::new("guard", move |hooks| {
            hooks.on(BeforeToolCall, move |_call: PendingToolCall| async move { Ok(Some(decision())) });
        })
    };
    let other = || ToolCallVerdict::Proceed(JsonObject::from_iter([("cmd".to_owned(), "echo two".into())]));
    for (decision, expected) in [
        (other as fn() -> ToolCallVerdict, "two"),
        (|| ToolCallVerdict::Replace(ToolOutput::ok("replaced")), "replaced"),
        (|| ToolCallVerdict::Deny("not on Sundays".to_owned()), "not on Sundays"),
    ] {
        let conversation = TestHost::builder().plugin(guard(decision)).start().await;
        conversation.send_message("[[tool:bash cmd=\"echo one\"]]").await;
        assert_eq!(tool_results(&conversation).await, [expected]);
    }
}

#[tokio::test]
async fn x06_tool_outputs_of_hooks_are_masked() {
    let model = || {
        ScriptedModel::start(vec![
            ScriptedReply::tool_calls([("call", "tape_info", json!({}))]),
            ScriptedReply::text("done"),
        ])
    };
    let before = ClosurePlugin::new("before", |hooks| {
        let verdict = || ToolCallVerdict::Replace(ToolOutput::ok(format!("key: {SCRIPTED_MODEL_KEY}")));
        hooks.on(BeforeToolCall, move |_call: PendingToolCall| async move { Ok(Some(verdict())) });
    });
    let server = model().await;
    let conversation = TestHost::builder().scripted_model(&server).plugin(before).start().await;
    conversation.send_message("go").await;
    assert_eq!(tool_results(&conversation).await, ["key: [masked]"]);
    let after = ClosurePlugin::new("after", |hooks| {
        hooks.on(AfterToolCall, || async { Ok(Some(ToolOutput::ok(format!("key: {SCRIPTED_MODEL_KEY}")))) });
    });
    let server = model().await;
    let conversation = TestHost::builder().scripted_model(&server).plugin(after).start().await;
    conversation.send_message("go").await;
    assert_eq!(tool_results(&conversation).await, ["key: [masked]"]);
    assert_eq!(tool_replies(&server.requests()[1]), ["call: key: [masked]"]);
}

#[tokio::test]
async fn h10_after_hooks_run_once_per_call() {
    let log = CallLog::default();
    let (models, tools) = (log.clone(), log.clone());
    let watcher = ClosurePlugin::new("watcher", move |hooks| {
        let (models, tools) = (models.clone(), tools.clone());
        hooks.on(AfterLlmCall, move |outcome: LlmOutcome| {
            let models = models.clone();
            async move {
                models.add(format!("model: {}", outcome.0.as_ref().as_ref().map_or("failed", |_| "answered")));
                Ok(None)
            }
        });
        hooks.on(AfterToolCall, move |call: PendingToolCall, outcome: ToolOutcome| {
            let tools = tools.clone();
            async move {
                tools.add(format!("{}: {}", call.name, outcome.0.text()));
                Ok(None)
            }
        });
    });
    TestHost::builder().plugin(watcher).start().await.send_message("[[tool:bash cmd=\"echo one\"]]").await;
    assert_eq!(log.lines(), ["model: answered", "bash: one", "model: answered"]);
}

#[tokio::test]
async fn h10_a_failure_is_skipped_unless_the_plugin_is_fail_closed() {
    let failing = |closed: bool| {
        ClosurePlugin::new("failing", move |hooks| {
            if closed {
                hooks.fail_closed();
            }
            hooks.on(BeforeLlmCall, || async { Err("broken".into()) });
        })
    };
    let open = TestHost::builder().plugin(failing(false)).start().await.send_message("hello").await;
    assert!(open.error.is_none() && open.output.ends_with("You said: hello"));
    let closed = TestHost::builder().plugin(failing(true)).start().await.send_message("hello").await;
    assert_eq!(closed.error.unwrap().code(), "hook-failed");
    assert_eq!(closed.output, "", "no reply was sent");
}

#[tokio::test]
async fn h10_a_cancelled_tool_call_has_one_outcome() {
    let log = CallLog::default();
    let recorded = log.clone();
    let barrier = capstan_testing::ReplyBarrier::new();
    let tool_barrier = barrier.clone();
    let watcher = ClosurePlugin::new("watcher", move |hooks| {
        let (recorded, tool_barrier) = (recorded.clone(), tool_barrier.clone());
        hooks.on(AfterToolCall, move |call: PendingToolCall, outcome: ToolOutcome| {
            let recorded = recorded.clone();
            async move {
                recorded.add(format!("{}: {}", call.name, outcome.0.text()));
                Ok(None)
            }
        });
        hooks.on_sync(capstan_hooks::points::ProvideTools, move || {
            let tool_barrier = tool_barrier.clone();
            let hang = super::support::test_tool("hang", move |_, _| {
                let tool_barrier = tool_barrier.clone();
                async move {
                    tool_barrier.wait_for_release().await;
                    Ok(ToolOutput::ok("never"))
                }
            });
            Ok(Some(vec![Arc::new(hang) as Arc<dyn capstan_hooks::contracts::Tool>]))
        });
    });
    let conversation = TestHost::builder().plugin(watcher).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("[[tool:hang]]"), async {
        barrier.reached().await;
        conversation.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    assert_eq!(log.lines(), ["hang: the run was broken off during the call"]);
}

#[tokio::test]
async fn h10_a_cancelled_model_call_has_one_outcome() {
    let barrier = capstan_testing::ReplyBarrier::new();
    let reply = capstan_testing::ScriptedReply::text("half an answer").with_barrier(&barrier);
    let model = capstan_testing::ScriptedModel::start(vec![reply]).await;
    let log = CallLog::default();
    let recorded = log.clone();
    let watcher = ClosurePlugin::new("watcher", move |hooks| {
        let recorded = recorded.clone();
        hooks.on(AfterLlmCall, move |request: LlmRequest, outcome: LlmOutcome| {
            let recorded = recorded.clone();
            async move {
                let text = outcome.0.as_ref().as_ref().map_or_else(Clone::clone, |output| output.text.clone());
                recorded.add(format!("{}: {text}", request.0.model));
                Ok(None)
            }
        });
    });
    let conversation = TestHost::builder().scripted_model(&model).plugin(watcher).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("go"), async {
        barrier.reached().await;
        conversation.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    assert_eq!(log.lines(), ["openai:scripted: the run was broken off during the call"]);
    barrier.release();
}

#[tokio::test]
async fn h10_the_outcome_of_a_cancelled_model_call_has_the_request_as_sent() {
    let barrier = capstan_testing::ReplyBarrier::new();
    let refused = capstan_testing::ScriptedReply::status(503, r#"{"error": {"message": "not now"}}"#);
    let reply = capstan_testing::ScriptedReply::text("half an answer").with_barrier(&barrier);
    let model = capstan_testing::ScriptedModel::start(vec![refused, reply]).await;
    let log = CallLog::default();
    let recorded = log.clone();
    let watcher = ClosurePlugin::new("watcher", move |hooks| {
        let recorded = recorded.clone();
        hooks
            .on(BeforeLlmCall, |request: LlmRequest| async move {
                Ok(Some(LlmCallVerdict::Change(redact_secret(&request.0))))
            })
            .on(AfterLlmCall, move |request: LlmRequest| {
                let recorded = recorded.clone();
                async move {
                    let prompt = request.0.messages.last().map(|message| message.content.text()).unwrap_or_default();
                    recorded.add(format!("{}: {prompt}", request.0.model));
                    Ok(None)
                }
            });
    });
    let conversation = builder_without_retries(&model, &["openai:other"]).plugin(watcher).start().await;
    let (served, ()) = tokio::join!(conversation.send_message("the word is s3cret"), async {
        barrier.reached().await;
        conversation.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    assert_eq!(log.lines(), ["openai:scripted: the word is [redacted]", "openai:other: the word is [redacted]"]);
    barrier.release();
}

#[tokio::test]
async fn h10_a_tool_output_is_changed_before_it_is_recorded() {
    let redactor = ClosurePlugin::new("redactor", |hooks| {
        hooks.fail_closed().on(AfterToolCall, |outcome: ToolOutcome| async move {
            Ok(Some(ToolOutput::ok(outcome.0.text().replace("s3cret", "[redacted]"))))
        });
    });
    let conversation = TestHost::builder().plugin(redactor).start().await;
    conversation.send_message("[[tool:bash cmd=\"echo s3''cret\"]]").await;
    assert_eq!(tool_results(&conversation).await, ["[redacted]"]);
}

#[tokio::test]
async fn h10_a_tool_output_is_withheld_when_a_fail_closed_hook_fails() {
    let broken = ClosurePlugin::new("broken", |hooks| {
        hooks.fail_closed().on(AfterToolCall, || async { Err("broken".into()) });
    });
    let conversation = TestHost::builder().plugin(broken).start().await;
    conversation.send_message("[[tool:bash cmd=\"echo s3''cret\"]]").await;
    assert_eq!(tool_results(&conversation).await, ["after_tool_call of plugin broken failed"]);
}

/// Ways in which a hook can fail.
#[derive(Debug, Clone, Copy)]
enum FailureMode {
    Error,
    Panic,
    Hang,
}

impl FailureMode {
    const ALL: [Self; 3] = [Self::Error, Self::Panic, Self::Hang];

    async fn fail<T>(self) -> Result<Option<T>, capstan_hooks::BoxError> {
        match self {
            Self::Error => Err("the redactor is broken".into()),
            Self::Panic => panic!("the redactor is broken"),
            Self::Hang => std::future::pending().await,
        }
    }

    /// Conversation with a fail-closed redactor that fails in this way.
    async fn conversation(self, register: impl Fn(Self, &mut HookRegistrar) + Send + Sync + 'static) -> TestHost {
        let redactor = ClosurePlugin::new("redactor", move |hooks| register(self, hooks.fail_closed()));
        let turn = std::time::Duration::from_millis(200);
        let deadlines = capstan_hooks::HookDeadlines { turn, ..Default::default() };
        TestHost::builder().plugin(redactor).deadlines(deadlines).start().await
    }
}

#[tokio::test]
async fn h10_a_failing_redactor_sends_no_request_to_a_model() {
    for mode in FailureMode::ALL {
        let conversation = mode
            .conversation(|mode, hooks| {
                hooks.on(BeforeLlmCall, move |_: LlmRequest| mode.fail::<LlmCallVerdict>());
            })
            .await;
        let served = conversation.send_message("the word is s3cret").await;
        assert_eq!(served.error.unwrap().code(), "hook-failed", "{mode:?}");
        assert_eq!(served.output, "", "{mode:?}");
        let events = conversation.event_names().await;
        assert!(!events.iter().any(|event| event == "model.call"), "{mode:?}: no request was sent: {events:?}");
    }
}

#[tokio::test]
async fn h10_a_failing_redactor_withholds_tool_results() {
    for mode in FailureMode::ALL {
        let conversation = mode
            .conversation(|mode, hooks| {
                hooks.on(AfterToolCall, move |_: ToolOutcome| mode.fail::<ToolOutput>());
            })
            .await;
        let served = conversation.send_message("[[tool:bash cmd=\"echo s3''cret\"]]").await;
        assert!(!served.output.contains("s3cret"), "{mode:?}: {}", served.output);
        assert!(served.output.contains("after_tool_call of plugin redactor failed"), "{mode:?}: {}", served.output);
        let recorded = format!("{:?}", conversation.entries().await);
        assert!(!recorded.contains("s3cret"), "{mode:?}: {recorded}");
    }
}

#[tokio::test]
async fn h10_a_failing_guard_prevents_tool_calls() {
    for mode in FailureMode::ALL {
        let conversation = mode
            .conversation(|mode, hooks| {
                hooks.on(BeforeToolCall, move |_: PendingToolCall| mode.fail::<ToolCallVerdict>());
            })
            .await;
        conversation.send_message("[[tool:bash cmd=\"touch called\"]]").await;
        assert_eq!(tool_results(&conversation).await, ["before_tool_call of plugin redactor failed"], "{mode:?}");
        assert!(!conversation.workspace().join("called").exists(), "{mode:?}");
    }
}
