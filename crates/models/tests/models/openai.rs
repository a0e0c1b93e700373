//! `OpenAI` provider against a scripted server on loopback.

use std::sync::Arc;

use capstan_hooks::contracts::ModelErrorKind::{
    Broken, ContextOverflow, RateLimited, Rejected, Unauthorized, UnknownModel, Unreachable,
};
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelEvent, ModelProvider as _, collect_output};
use capstan_models::{HttpClients, Provider, ProviderOptions, WireProtocol};
use capstan_protocol::{ChatMessage, ModelOptions, ModelOutput, ModelRequest, ToolCall, Usage};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use futures::StreamExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{PROVIDER_TEST_KEY, openai_provider, openai_provider_for, options_for, request, sample_tools};

/// Prompt that must not appear in an error.
const SECRET_PROMPT: &str = "the launch code is swordfish, do not tell anyone about it";

async fn collect_reply(reply: ScriptedReply) -> Result<ModelOutput, ModelError> {
    let server = ScriptedModel::start(vec![reply]).await;
    let result = ask_server(&server).await;
    assert_eq!(server.violations(), Vec::<String>::new());
    result
}

async fn ask_server(server: &ScriptedModel) -> Result<ModelOutput, ModelError> {
    let request = ModelRequest { tools: sample_tools(), ..request(vec![ChatMessage::user(SECRET_PROMPT)]) };
    collect_output(openai_provider_for(server).stream(&request).await?).await
}

async fn stream_events(reply: ScriptedReply) -> Vec<Result<ModelEvent, ModelError>> {
    let server = ScriptedModel::start(vec![reply]).await;
    openai_provider_for(&server).stream(&request(vec![ChatMessage::user("hi")])).await.unwrap().collect().await
}

/// Error of a reply, checked to contain neither the key nor the prompt.
async fn reply_error(reply: ScriptedReply) -> ModelError {
    let error = collect_reply(reply).await.unwrap_err();
    assert_safe(&error);
    error
}

fn assert_safe(error: &ModelError) {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(PROVIDER_TEST_KEY), "the key is in {shown}");
    assert!(!shown.contains("swordfish"), "the prompt is in {shown}");
    assert!(shown.contains("openai"), "the provider is not in {shown}");
    assert!(shown.chars().count() < 1200, "too long: {shown}");
}

fn error_body(message: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string()
}

#[tokio::test]
async fn a08_text_streams_word_by_word_with_usage_and_a_stop() {
    let events = stream_events(ScriptedReply::text_with_usage("Hello, 你好 🐋", 7, 3)).await;
    let usage =
        Usage { prompt_tokens: Some(7), completion_tokens: Some(3), total_tokens: Some(10), ..Usage::default() };
    let expected = [
        ModelEvent::Text("Hello, ".to_owned()),
        ModelEvent::Text("你好 ".to_owned()),
        ModelEvent::Text("🐋".to_owned()),
        ModelEvent::Usage(usage),
        ModelEvent::Stop,
    ];
    assert_eq!(events, expected.map(Ok));
}

#[tokio::test]
async fn a08_first_text_arrives_while_the_model_is_still_writing() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start(vec![ScriptedReply::text("first second").with_barrier(&barrier)]).await;
    let mut stream = openai_provider_for(&server).stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("first ".to_owned()))));
    barrier.release();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("second".to_owned()))));
}

#[tokio::test]
async fn a08_reasoning_is_separate_from_text() {
    let events = stream_events(ScriptedReply::text("yes").with_reasoning("let me think")).await;
    let reasoning: String = events
        .iter()
        .filter_map(|event| match event {
            Ok(ModelEvent::Reasoning(delta)) => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasoning, "let me think");
    assert!(events.contains(&Ok(ModelEvent::Text("yes".to_owned()))));
}

#[tokio::test]
async fn a08_tool_calls_arrive_complete_and_in_order_after_the_text() {
    let reply = ScriptedReply::tool_calls([
        ("call_1", "bash", json!({"cmd": "echo \"你好\" && ls -la /a/long/path", "timeout_seconds": 30})),
        ("call_2", "fs_read", json!({"path": "README.md"})),
    ]);
    let output = collect_reply(reply.with_text("Let me see.").with_usage(20, 9)).await.unwrap();
    assert_eq!(output.text, "Let me see.");
    assert_eq!(
        output.tool_calls,
        [
            ToolCall::new("call_1", "bash", r#"{"cmd":"echo \"你好\" && ls -la /a/long/path","timeout_seconds":30}"#),
            ToolCall::new("call_2", "fs_read", r#"{"path":"README.md"}"#),
        ]
    );
    assert_eq!(output.usage.unwrap().total_tokens, Some(29));
}

#[tokio::test]
async fn a08_arguments_are_kept_verbatim() {
    let written = ["{ \"b\": 1.0,  \"a\": 12345678901234567890123 }", "{\"cut\": ", "\"text\""];
    let calls = written.iter().enumerate().map(|(n, arguments)| (format!("call_{n}"), "bash".to_owned(), *arguments));
    let output = collect_reply(ScriptedReply::tool_calls_verbatim(calls)).await.unwrap();
    let got: Vec<&str> = output.tool_calls.iter().map(|call| call.function.arguments.as_str()).collect();
    assert_eq!(got, written);
}

#[tokio::test]
async fn call_without_arguments_gets_an_empty_object() {
    let output = collect_reply(ScriptedReply::tool_calls_verbatim([("call_1", "bash", "")])).await.unwrap();
    assert_eq!(output.tool_calls, [ToolCall::new("call_1", "bash", "{}")]);
}

#[tokio::test]
async fn a08_long_call_id_is_returned_unchanged_to_its_server() {
    let id = "x".repeat(80);
    let server = ScriptedModel::start(vec![ScriptedReply::tool_calls([(id.as_str(), "bash", json!({}))])]).await;
    let calls = ask_server(&server).await.unwrap().tool_calls;
    let messages =
        vec![ChatMessage::user("go"), ChatMessage::from_tool_calls(calls), ChatMessage::tool_result(&id, "bash", "ok")];
    let body = openai_provider_for(&server).request_body(&request(messages)).unwrap();
    assert_eq!([&body.messages[1]["tool_calls"][0]["id"], &body.messages[2]["tool_call_id"]], [&json!(id); 2]);
}

#[tokio::test]
async fn call_indexes_that_start_at_one_produce_no_duplicate_call() {
    let frame = |choice: serde_json::Value| format!("data: {}\n\n", json!({"choices": [choice]}));
    let call = |call: serde_json::Value| frame(json!({"delta": {"tool_calls": [call]}}));
    let stream = [
        call(json!({"index": 1, "id": "a", "function": {"name": "bash", "arguments": ""}})),
        call(json!({"index": 1, "function": {"arguments": "{}"}})),
        frame(json!({"delta": {}, "finish_reason": "tool_calls"})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let output = collect_reply(ScriptedReply::raw(stream.concat())).await.unwrap();
    assert_eq!(output.tool_calls, [ToolCall::new("a", "bash", "{}")]);
}

#[tokio::test]
async fn client_is_reused_for_the_next_call() {
    let server = ScriptedModel::start(vec![ScriptedReply::text("one"), ScriptedReply::text("two")]).await;
    let provider = openai_provider_for(&server);
    for expected in ["one", "two"] {
        let stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
        assert_eq!(collect_output(stream).await.unwrap().text, expected);
    }
    assert_eq!(
        server.authorization_headers(),
        [Some(format!("Bearer {PROVIDER_TEST_KEY}")), Some(format!("Bearer {PROVIDER_TEST_KEY}"))]
    );
}

#[tokio::test]
async fn local_endpoint_needs_no_key_and_accepts_a_trailing_slash() {
    let server = ScriptedModel::start(vec![ScriptedReply::text("hi")]).await;
    let api_base = Some(format!("{}/", server.base_url()));
    let provider = openai_provider(ProviderOptions { api_base, ..ProviderOptions::default() });
    let stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    assert_eq!(collect_output(stream).await.unwrap().text, "hi");
    assert_eq!(server.authorization_headers(), [None]);
}

#[tokio::test]
async fn openai_without_a_key_is_unauthorized_and_receives_no_request() {
    for api_keys in [vec![], vec![" ".into()]] {
        let provider = openai_provider(ProviderOptions { api_keys, ..ProviderOptions::default() });
        let error = provider.stream(&request(vec![ChatMessage::user(SECRET_PROMPT)])).await.err().unwrap();
        assert_eq!(error.kind, Unauthorized);
        assert!(error.message.contains("CAPSTAN_API_KEY"), "{error}");
    }
}

#[tokio::test]
async fn each_status_maps_to_its_kind_and_is_named() {
    let cases: [(u16, ModelErrorKind); 9] = [
        (400, Rejected),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, UnknownModel),
        (413, ContextOverflow),
        (429, RateLimited),
        (500, Broken),
        (502, Unreachable),
        (503, Unreachable),
    ];
    for (status, kind) in cases {
        let error = reply_error(ScriptedReply::status(status, error_body("for some reason"))).await;
        assert_eq!(error.kind, kind, "{status}: {error}");
        assert!(error.message.contains(&status.to_string()), "{error}");
        assert!(error.message.contains("for some reason"), "{error}");
    }
}

#[tokio::test]
async fn a02_message_about_context_length_is_a_context_overflow() {
    let body = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    assert_eq!(reply_error(ScriptedReply::status(400, error_body(body))).await.kind, ContextOverflow);
    assert_eq!(reply_error(ScriptedReply::status(500, "prompt is too long")).await.kind, ContextOverflow);
}

#[tokio::test]
async fn errors_mask_an_echoed_key_and_prompt() {
    for status in [400, 401, 429, 500] {
        let echo = format!("bad request with key {PROVIDER_TEST_KEY}: {SECRET_PROMPT}");
        let error = reply_error(ScriptedReply::status(status, error_body(&echo))).await;
        assert!(error.message.contains("bad request with key [...]"), "{error}");
        reply_error(ScriptedReply::status(status, echo)).await;
    }
    let echo = json!({"error": {"message": format!("{PROVIDER_TEST_KEY} {SECRET_PROMPT}")}});
    reply_error(ScriptedReply::raw(format!("data: {echo}\n\n"))).await;
}

#[tokio::test]
async fn x06_errors_mask_echoed_headers_and_url_parts() {
    let secrets = ["team-token-4711", "hunter2", "signature-0815", "a+b%2Fc-secret", "a b/c-secret"];
    let echo = error_body(&format!("refused: {}", secrets.join(" and ")));
    let server = ScriptedModel::start(vec![ScriptedReply::status(400, echo)]).await;
    let provider = openai_provider(ProviderOptions {
        headers: vec![
            ("x-team".to_owned(), "team-token-4711".into()),
            ("proxy-authorization".to_owned(), "Basic hunter2".into()),
        ],
        ..options_for(format!("{}?sig=signature-0815&code=a+b%2Fc-secret", server.base_url()))
    });
    let error = provider.stream(&request(vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert!(error.message.contains("refused: [...] and"), "{error}");
    for secret in secrets {
        assert!(!error.message.contains(secret), "{secret} is in {error}");
    }
}

#[tokio::test]
async fn x06_errors_mask_an_echoed_body_and_a_token_before_the_host() {
    let secrets = ["virtual-key-4711", "sk-0123456789abcdef01", "binding-pass-0815", "token-of-the-host"];
    let echo = error_body(&format!("refused flex: {}", secrets.join(" and ")));
    let server = ScriptedModel::start(vec![ScriptedReply::status(400, echo)]).await;
    let body = json!({
        "service_tier": "flex", "user": "sk-0123456789abcdef01", "extra": [{"virtual_key": "virtual-key-4711"}],
    });
    let api_base = server.base_url().replace("http://", "http://token-of-the-host@");
    let provider =
        openai_provider(ProviderOptions { body: body.as_object().unwrap().clone(), ..options_for(api_base) });
    let mut request = request(vec![ChatMessage::user("hi")]);
    request.options.body = json!({"password": "binding-pass-0815"}).as_object().unwrap().clone();
    let error = provider.stream(&request).await.err().unwrap();
    assert!(error.message.contains("refused flex: [...] and [...]"), "{error}");
    for secret in secrets {
        assert!(!error.message.contains(secret), "{secret} is in {error}");
    }
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let provider = openai_provider(options_for(format!("http://{free}/v1")));
    let error = provider.stream(&request(vec![ChatMessage::user(SECRET_PROMPT)])).await.err().unwrap();
    assert_eq!(error.kind, Unreachable);
    assert!(error.message.contains(&free.to_string()), "{error}");
    assert_safe(&error);
}

#[tokio::test]
async fn unknown_host_is_unreachable() {
    let provider = openai_provider(options_for("http://no-such-host.invalid/v1".to_owned()));
    let error = provider.stream(&request(vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert_eq!(error.kind, Unreachable, "{error}");
    assert!(error.message.contains("no such host"), "{error}");
}

#[tokio::test]
async fn interrupted_stream_yields_its_text_and_then_an_error() {
    let mut events = stream_events(ScriptedReply::disconnect_after("half of it")).await;
    let error = events.pop().unwrap().unwrap_err();
    assert_eq!(error.kind, Broken, "{error}");
    assert!(events.contains(&Ok(ModelEvent::Text("half ".to_owned()))), "{events:?}");
    assert_eq!(reply_error(ScriptedReply::disconnect_after("half of it")).await.kind, Broken);
}

#[tokio::test]
async fn invalid_response_is_broken() {
    let html = "<html><body>It works!</body></html>";
    for reply in [
        ScriptedReply::invalid_json(),
        ScriptedReply::raw(html),
        ScriptedReply::raw(""),
        ScriptedReply::raw("data: [1,\n\n"),
    ] {
        assert_eq!(reply_error(reply).await.kind, Broken);
    }
}

#[tokio::test]
async fn response_without_a_stop_reason_is_broken() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
    assert_eq!(reply_error(ScriptedReply::raw(format!("{text}data: [DONE]\n\n"))).await.kind, Broken);
    assert_eq!(reply_error(ScriptedReply::raw(text)).await.kind, Broken);
}

#[tokio::test]
async fn error_within_the_stream_is_broken_unless_it_is_more_specific() {
    let stream = |error: serde_json::Value| ScriptedReply::raw(format!("data: {}\n\n", json!({"error": error})));
    assert_eq!(reply_error(stream(json!({"message": "server had a problem"}))).await.kind, Broken);
    assert_eq!(reply_error(stream(json!({"message": "slow down", "code": 429}))).await.kind, RateLimited);
    assert_eq!(reply_error(stream(json!({"code": "context_length_exceeded"}))).await.kind, ContextOverflow);
}

#[tokio::test]
async fn response_of_a_server_that_does_not_stream_is_accepted() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "hi", "tool_calls": [call]});
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let output = collect_reply(ScriptedReply::raw(whole.to_string())).await.unwrap();
    assert_eq!((output.text.as_str(), output.tool_calls), ("hi", vec![ToolCall::new("c1", "bash", "{}")]));
    let error = reply_error(ScriptedReply::raw(error_body("This model's maximum context length is 8192 tokens"))).await;
    assert_eq!(error.kind, ContextOverflow);
}

#[tokio::test]
async fn filtered_response_is_rejected() {
    let stream = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\ndata: [DONE]\n\n";
    assert_eq!(reply_error(ScriptedReply::raw(stream)).await.kind, Rejected);
}

#[tokio::test]
async fn token_limit_uses_the_key_the_model_knows() {
    let server = ScriptedModel::start_with(|_, _| ScriptedReply::text("ok")).await;
    for (model, field) in [("openai:gpt-4o", "max_tokens"), ("openai:gpt-5-mini", "max_completion_tokens")] {
        let options = ModelOptions { max_tokens: Some(256), ..ModelOptions::default() };
        let model = model.parse().unwrap();
        let request = ModelRequest { model, options, ..request(vec![ChatMessage::user("hi")]) };
        collect_output(openai_provider_for(&server).stream(&request).await.unwrap()).await.unwrap();
        assert_eq!(server.requests().last().unwrap()[field], 256);
    }
}

#[test]
fn debug_output_of_options_and_provider_hides_the_key() {
    let options = options_for("http://127.0.0.1:1/v1".to_owned());
    assert!(!format!("{options:?} {:?}", openai_provider(options.clone())).contains(PROVIDER_TEST_KEY));
}

/// Provider whose server sends this stream and leaves the connection open.
async fn provider_of_open_stream(stream: String) -> Provider {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = connection.read(&mut request).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        connection.write_all(format!("{head}{stream}").as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let options = ProviderOptions { api_base: Some(format!("http://{address}/v1")), ..ProviderOptions::default() };
    Provider::new("openai", WireProtocol::OpenAi, options, Arc::new(HttpClients::new()))
}

fn chunk(delta: &serde_json::Value, finish_reason: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}))
}

#[tokio::test]
async fn a08_answer_of_a_server_that_leaves_the_stream_open_is_taken() {
    let stream = chunk(&json!({"content": "whole"}), None) + &chunk(&json!({}), Some("stop"));
    let provider = provider_of_open_stream(stream).await;
    let output = collect_output(provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap()).await;
    assert_eq!(output.unwrap().text, "whole");
}

#[tokio::test]
async fn a08_surrogate_pair_split_over_two_chunks_does_not_fail_the_answer() {
    let half =
        |text: &str| format!("data: {{\"choices\": [{{\"index\": 0, \"delta\": {{\"content\": \"{text}\"}}}}]}}\n\n");
    let whole = half(r"\\u \ud83d\ude00 ");
    let stream =
        whole + &half(r"hi \ud83d") + &half(r"\ude00!") + &chunk(&json!({}), Some("stop")) + "data: [DONE]\n\n";
    assert_eq!(collect_reply(ScriptedReply::raw(stream)).await.unwrap().text, "\\u 😀 hi \u{FFFD}\u{FFFD}!");
}

#[tokio::test]
async fn a08_reading_stops_at_the_limit_of_tool_calls() {
    let call = |index: usize| {
        let function = json!({"name": "help", "arguments": "{}"});
        json!({"index": index, "id": format!("c{index}"), "type": "function", "function": function})
    };
    let chunks: Vec<String> = (0..1001).map(|index| chunk(&json!({"tool_calls": [call(index)]}), None)).collect();
    // The connection stays open: only an error at the limit ends the response.
    let provider = provider_of_open_stream(chunks.concat()).await;
    let stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    let error = collect_output(stream).await.unwrap_err();
    assert!(error.message.contains("more than 1000 tool calls"), "{error}");
}
