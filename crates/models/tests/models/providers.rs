//! Every protocol against a strict scripted server.

use capstan_hooks::contracts::ModelErrorKind::{Broken, ContextOverflow, Unauthorized};
use capstan_hooks::contracts::{ModelError, ModelEvent, ModelProvider as _, collect_output};
use capstan_models::WireProtocol;
use capstan_protocol::{ChatMessage, ModelOptions, ModelOutput, ModelRequest, Reasoning, ToolCall};
use capstan_testing::{ScriptedModel, ScriptedReply};
use futures::StreamExt as _;
use serde_json::json;

use crate::common::{PROVIDER_TEST_KEY, provider_for, request_for};

async fn stream_events(wire: WireProtocol, reply: ScriptedReply) -> Vec<Result<ModelEvent, ModelError>> {
    let server = ScriptedModel::start(vec![reply]).await;
    let stream = provider_for(wire, &server, |_| {}).stream(&request_for(wire, vec![ChatMessage::user("hi")])).await;
    let events = stream.unwrap_or_else(|error| futures::stream::iter([Err(error)]).boxed()).collect().await;
    assert_eq!(server.violations(), Vec::<String>::new(), "{}", wire.name());
    events
}

async fn stream_error(wire: WireProtocol, reply: ScriptedReply) -> ModelError {
    let error = stream_events(wire, reply).await.pop().unwrap().unwrap_err();
    assert!(error.message.starts_with(&format!("{}: ", wire.name())), "{error}");
    assert!(!error.message.contains(PROVIDER_TEST_KEY), "{error}");
    error
}

fn two_calls_reply() -> ScriptedReply {
    ScriptedReply::tool_calls([
        ("call_1", "bash", json!({"cmd": "echo \"你好\"", "timeout_seconds": 30})),
        ("call_2", "fs_read", json!({"path": "README.md"})),
    ])
}

/// Call without its provider data.
fn without_provider_data(mut call: ToolCall) -> ToolCall {
    call.extra.clear();
    call
}

#[tokio::test]
async fn a08_every_provider_streams_text_reasoning_usage_and_a_stop() {
    for wire in WireProtocol::PROTOCOLS {
        let reply = ScriptedReply::text("Hello, 你好 🐋").with_reasoning("let me think").with_usage(70, 3);
        let events: Vec<ModelEvent> = stream_events(wire, reply).await.into_iter().map(Result::unwrap).collect();
        let joined = |delta: fn(&ModelEvent) -> Option<&str>| events.iter().filter_map(delta).collect::<String>();
        let text = joined(|event| if let ModelEvent::Text(delta) = event { Some(delta) } else { None });
        let reasoning = joined(|event| if let ModelEvent::Reasoning(delta) = event { Some(delta) } else { None });
        assert_eq!((text.as_str(), reasoning.as_str()), ("Hello, 你好 🐋", "let me think"), "{}", wire.name());
        let texts = events.iter().filter(|event| matches!(event, ModelEvent::Text(_))).count();
        assert_eq!(texts, 3, "word by word from {}", wire.name());
        assert_eq!(events.last(), Some(&ModelEvent::Stop));
        let usage =
            events.iter().find_map(|event| if let ModelEvent::Usage(usage) = event { Some(usage) } else { None });
        let usage = usage.unwrap();
        let counts = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens);
        assert_eq!(counts, (Some(70), Some(3), Some(73)), "{}", wire.name());
    }
}

#[tokio::test]
async fn a08_cached_tokens_are_reported_in_one_format() {
    for wire in WireProtocol::PROTOCOLS.into_iter().filter(|wire| *wire != WireProtocol::Ollama) {
        let reply = ScriptedReply::text("hi").with_usage(70, 3).with_cached_tokens(60);
        let events = stream_events(wire, reply).await;
        let usage = events.iter().flatten().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(usage.clone()),
            _ => None,
        });
        let usage = usage.unwrap();
        assert_eq!(usage.prompt_tokens, Some(70), "{}", wire.name());
        assert_eq!(usage.extra["prompt_tokens_details"], json!({"cached_tokens": 60}), "{}", wire.name());
    }
}

#[tokio::test]
async fn a08_parallel_calls_arrive_complete_and_in_order_with_their_ids() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start(vec![two_calls_reply().with_text("Let me see.")]).await;
        let provider = provider_for(wire, &server, |_| {});
        let request = request_for(wire, vec![ChatMessage::user("hi")]);
        let output = collect_output(provider.stream(&request).await.unwrap()).await.unwrap();
        assert_eq!(output.text, "Let me see.");
        let calls: Vec<ToolCall> = output.tool_calls.into_iter().map(without_provider_data).collect();
        let expected = [
            ToolCall::new("call_1", "bash", r#"{"cmd":"echo \"你好\"","timeout_seconds":30}"#),
            ToolCall::new("call_2", "fs_read", r#"{"path":"README.md"}"#),
        ];
        assert_eq!(calls, expected, "{}", wire.name());
    }
}

/// Messages recorded on a tape after a step.
fn tape_messages(output: ModelOutput) -> Vec<ChatMessage> {
    let mut messages = Vec::new();
    if !output.text.is_empty() {
        let mut message = ChatMessage::assistant(output.text);
        if !output.provider_meta.is_empty() {
            message.extra.insert("provider".to_owned(), output.provider_meta.into());
        }
        messages.push(message);
    }
    let results = output.tool_calls.iter().map(|call| ChatMessage::tool_result(&call.id, &call.function.name, "done"));
    let results: Vec<ChatMessage> = results.collect();
    if !results.is_empty() {
        messages.push(ChatMessage::from_tool_calls(output.tool_calls));
    }
    messages.extend(results);
    messages
}

#[tokio::test]
async fn a08_provider_data_is_returned_to_its_provider_and_to_no_other() {
    let script = |_: &serde_json::Value, reply_count: usize| {
        let call = |name: &str| (format!("call_{name}_{reply_count}"), "bash".to_owned(), json!({"cmd": "ls"}));
        match reply_count % 3 {
            0 => ScriptedReply::tool_calls([call("a"), call("b")])
                .with_text("Let me see.")
                .with_reasoning("hm, where is it"),
            1 => ScriptedReply::tool_calls([call("c")]).with_reasoning("and now?"),
            _ => ScriptedReply::text("done").with_reasoning("that was easy"),
        }
    };
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start_with(script).await;
        let mut messages = vec![ChatMessage::assistant("[Anchor created: session/start]: {}"), ChatMessage::user("go")];
        let options = ModelOptions { reasoning: Some(Reasoning::Medium), ..ModelOptions::default() };
        for turn in 0..4 {
            // In the third turn, in the middle of a step, every other provider gets the conversation too.
            let others = WireProtocol::PROTOCOLS.into_iter().filter(|other| turn == 2 && *other != wire);
            for other in others {
                let request = ModelRequest { options: options.clone(), ..request_for(other, messages.clone()) };
                let stream = provider_for(other, &server, |_| {}).stream(&request).await;
                assert!(stream.is_ok(), "{} after {}: {:?}", other.name(), wire.name(), server.violations());
            }
            let request = ModelRequest { options: options.clone(), ..request_for(wire, messages.clone()) };
            let stream = provider_for(wire, &server, |_| {}).stream(&request).await;
            let stream = stream.unwrap_or_else(|error| panic!("{error}: {:?}", server.violations()));
            messages.extend(tape_messages(collect_output(stream).await.unwrap()));
            if !matches!(messages.last().unwrap().role, capstan_protocol::MessageRole::Tool) {
                messages.push(ChatMessage::user("go on"));
            }
        }
        assert_eq!(server.violations(), Vec::<String>::new(), "{}", wire.name());
    }
}

/// Conversation as sent, without cache marks, which are not part of the cached prefix.
fn encoded_messages(wire: WireProtocol, server: &ScriptedModel, messages: &[ChatMessage]) -> Vec<serde_json::Value> {
    fn remove_cache_marks(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.remove("cache_control");
                fields.values_mut().for_each(remove_cache_marks);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(remove_cache_marks),
            _ => {}
        }
    }
    let provider = provider_for(wire, server, |_| {});
    let mut messages = provider.request_body(&request_for(wire, messages.to_vec())).unwrap().messages;
    messages.iter_mut().for_each(remove_cache_marks);
    messages
}

#[tokio::test]
async fn p14_each_request_starts_with_the_previous_one() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start_with(|_, reply_count| {
            let call = (format!("call_{reply_count}"), "bash".to_owned(), json!({"cmd": "ls"}));
            if reply_count % 3 == 2 {
                ScriptedReply::text("done")
            } else {
                ScriptedReply::tool_calls([call]).with_text("so").with_reasoning("hm")
            }
        })
        .await;
        let mut messages = vec![ChatMessage::assistant("[Anchor created: session/start]: {}"), ChatMessage::user("go")];
        for _ in 0..8 {
            let before = encoded_messages(wire, &server, &messages);
            let stream =
                provider_for(wire, &server, |_| {}).stream(&request_for(wire, messages.clone())).await.unwrap();
            messages.extend(tape_messages(collect_output(stream).await.unwrap()));
            if !matches!(messages.last().unwrap().role, capstan_protocol::MessageRole::Tool) {
                messages.push(ChatMessage::user("go on"));
            }
            let after = encoded_messages(wire, &server, &messages);
            assert_eq!(after[..before.len()], before, "{}", wire.name());
        }
        assert_eq!(server.violations(), Vec::<String>::new(), "{}", wire.name());
    }
}

#[tokio::test]
async fn a08_thoughts_are_returned_with_their_signatures() {
    let returned = [
        (WireProtocol::Anthropic, "signature"),
        (WireProtocol::Gemini, "thoughtSignature"),
        (WireProtocol::OpenAiResponses, "encrypted_content"),
        (WireProtocol::OpenAi, "reasoning_content"),
        (WireProtocol::Ollama, "thinking"),
    ];
    for (wire, key) in returned {
        let server =
            ScriptedModel::start(vec![two_calls_reply().with_reasoning("hm"), ScriptedReply::text("done")]).await;
        let provider = provider_for(wire, &server, |_| {});
        let mut messages = vec![ChatMessage::user("go")];
        let first = collect_output(provider.stream(&request_for(wire, messages.clone())).await.unwrap()).await.unwrap();
        messages.extend(tape_messages(first));
        collect_output(provider.stream(&request_for(wire, messages)).await.unwrap()).await.unwrap();
        let second = server.requests().remove(1).to_string();
        assert!(second.contains(&format!("\"{key}\":\"")), "{}: {second}", wire.name());
    }
}

#[tokio::test]
async fn token_limit_is_reported_as_truncation() {
    for wire in WireProtocol::PROTOCOLS {
        let events = stream_events(wire, ScriptedReply::text("half").truncated()).await;
        assert!(events.contains(&Ok(ModelEvent::Truncated)), "{}: {events:?}", wire.name());
        assert_eq!(events.last(), Some(&Ok(ModelEvent::Stop)));
    }
}

#[tokio::test]
async fn a01_truncated_call_gets_no_invented_arguments() {
    let calls = |reply: ScriptedReply, wire: WireProtocol| async move {
        let events = stream_events(wire, reply).await;
        let calls = events.into_iter().filter_map(|event| match event {
            Ok(ModelEvent::ToolCall(call)) => Some(call.function.arguments),
            _ => None,
        });
        calls.collect::<Vec<_>>()
    };
    // The other protocols send complete calls only.
    for wire in [WireProtocol::OpenAi, WireProtocol::OpenRouter, WireProtocol::OpenAiResponses, WireProtocol::Anthropic]
    {
        let reply = ScriptedReply::tool_calls_verbatim([("a", "fs_list", ""), ("b", "bash", "")]);
        assert_eq!(calls(reply.clone(), wire).await, ["{}", "{}"], "{}", wire.name());
        assert_eq!(calls(reply.truncated(), wire).await, ["{}", ""], "{}", wire.name());
        let partial = ScriptedReply::tool_calls_verbatim([("a", "bash", "{\"cmd\": \"rm -r a")]).truncated();
        assert_eq!(calls(partial, wire).await, ["{\"cmd\": \"rm -r a"], "{}", wire.name());
    }
}

#[tokio::test]
async fn interrupted_stream_yields_its_text_and_then_an_error() {
    for wire in WireProtocol::PROTOCOLS {
        for reply in [
            ScriptedReply::disconnect_after("half of it"),
            ScriptedReply::error_after("half of it", "the server had a problem"),
        ] {
            let mut events = stream_events(wire, reply).await;
            let error = events.pop().unwrap().unwrap_err();
            assert_eq!(error.kind, Broken, "{error}");
            assert_eq!(events[0], Ok(ModelEvent::Text("half ".to_owned())), "{}", wire.name());
        }
        let error = stream_error(wire, ScriptedReply::error_after("half", "the server had a problem")).await;
        assert!(error.message.contains("the server had a problem"), "{error}");
    }
}

#[tokio::test]
async fn invalid_response_is_broken_for_every_provider() {
    for wire in WireProtocol::PROTOCOLS {
        for reply in [
            ScriptedReply::invalid_json(),
            ScriptedReply::raw("<html>It works!</html>"),
            ScriptedReply::raw(""),
            ScriptedReply::raw("data: [1,\n\n"),
        ] {
            assert_eq!(stream_error(wire, reply).await.kind, Broken, "{}", wire.name());
        }
    }
}

#[tokio::test]
async fn a02_context_overflow_is_recognised_for_every_provider() {
    for wire in WireProtocol::PROTOCOLS {
        assert_eq!(
            stream_error(wire, ScriptedReply::context_overflow()).await.kind,
            ContextOverflow,
            "{}",
            wire.name()
        );
    }
}

#[tokio::test]
async fn key_is_sent_in_the_header_of_each_provider() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start(vec![ScriptedReply::text("ok")]).await;
        let request = request_for(wire, vec![ChatMessage::user("hi")]);
        collect_output(provider_for(wire, &server, |_| {}).stream(&request).await.unwrap()).await.unwrap();
        let (header, value) = match wire {
            WireProtocol::Anthropic => ("x-api-key", PROVIDER_TEST_KEY.to_owned()),
            WireProtocol::Gemini => ("x-goog-api-key", PROVIDER_TEST_KEY.to_owned()),
            _ => ("authorization", format!("Bearer {PROVIDER_TEST_KEY}")),
        };
        assert_eq!(server.header_values(header), [Some(value)], "{}", wire.name());
    }
}

#[tokio::test]
async fn missing_key_is_an_error_that_names_its_setting() {
    for wire in WireProtocol::PROTOCOLS.into_iter().filter(|wire| *wire != WireProtocol::Ollama) {
        let server = ScriptedModel::start(vec![]).await;
        let provider = provider_for(wire, &server, |options| {
            options.api_keys.clear();
            options.api_base = None;
        });
        let error = provider.stream(&request_for(wire, vec![ChatMessage::user("hi")])).await.err().unwrap();
        assert_eq!(error.kind, Unauthorized);
        assert!(error.message.contains(wire.key_variables()[0]), "{error}");
    }
}

#[tokio::test]
async fn a08_beta_header_combines_the_values_of_model_and_user() {
    let both = "thinking-binding-controls-2026-08-01,context-1m";
    for (model, expected) in [("claude-opus-5-5", both), ("claude-sonnet-4-5", "context-1m")] {
        let server = ScriptedModel::start(vec![ScriptedReply::text("ok")]).await;
        let provider = provider_for(WireProtocol::Anthropic, &server, |options| {
            options.headers = vec![("anthropic-beta".to_owned(), "context-1m".into())];
        });
        let model = format!("anthropic:{model}").parse().unwrap();
        let request = ModelRequest { model, ..request_for(WireProtocol::Anthropic, vec![ChatMessage::user("hi")]) };
        collect_output(provider.stream(&request).await.unwrap()).await.unwrap();
        assert_eq!(server.header_values("anthropic-beta"), [Some(expected.to_owned())]);
    }
}
