//! Retries, timeouts and cancellation of requests.

use std::sync::Mutex;
use std::time::Duration;

use capstan_hooks::contracts::ModelErrorKind::{Broken, RateLimited, Unreachable};
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelEvent, ModelProvider as _, collect_output};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{ChatMessage, Clock, ModelOutput};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use futures::StreamExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{openai_provider, options_for, provider_for, request, request_for};

/// Refusal that permits an immediate retry.
fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not now"}}"#).with_header("retry-after-ms", "1")
}

/// Sends a request to a server with these replies and two retries; returns the result and the number of requests.
async fn ask_server(wire: WireProtocol, replies: Vec<ScriptedReply>) -> (Result<ModelOutput, ModelError>, usize) {
    let server = ScriptedModel::start(replies).await;
    let provider = provider_for(wire, &server, |options| options.retries = 2);
    let result = match provider.stream(&request_for(wire, vec![ChatMessage::user("hi")])).await {
        Ok(stream) => collect_output(stream).await,
        Err(error) => Err(error),
    };
    (result, server.requests().len())
}

async fn error_kind(replies: Vec<ScriptedReply>) -> (ModelErrorKind, usize) {
    let (result, request_count) = ask_server(WireProtocol::OpenAi, replies).await;
    (result.unwrap_err().kind, request_count)
}

#[tokio::test]
async fn a08_transient_failures_are_retried_with_every_provider() {
    for wire in WireProtocol::PROTOCOLS {
        for status in [408, 429, 500, 503, 529] {
            let (result, request_count) =
                ask_server(wire, vec![refusal_reply(status), refusal_reply(status), ScriptedReply::text("better")])
                    .await;
            assert_eq!(result.unwrap().text, "better", "{status} of {}", wire.name());
            assert_eq!(request_count, 3);
        }
    }
}

#[tokio::test]
async fn a08_each_retry_is_reported_with_its_reason_before_the_delay() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start(vec![
            refusal_reply(429),
            ScriptedReply::disconnect_after(""),
            ScriptedReply::text("better"),
        ])
        .await;
        let provider = provider_for(wire, &server, |options| options.retries = 2);
        let reported = Mutex::new(Vec::new());
        let on_retry =
            |error: &ModelError, delay: Duration| reported.lock().unwrap().push((error.message.clone(), delay));
        let request = request_for(wire, vec![ChatMessage::user("hi")]);
        collect_output(provider.send_recorded(&request, None, &on_retry).await.unwrap()).await.unwrap();
        let reported = reported.into_inner().unwrap();
        assert!(reported[0].0.contains("answered 429") && !reported[1].0.contains("answered"), "{reported:?}");
        assert!(reported.len() == 2 && reported.iter().all(|(_, delay)| *delay > Duration::ZERO), "{reported:?}");
    }
}

#[tokio::test]
async fn a08_connection_lost_before_the_first_output_is_retried() {
    let (result, request_count) =
        ask_server(WireProtocol::OpenAi, vec![ScriptedReply::disconnect_after(""), ScriptedReply::text("better")])
            .await;
    assert_eq!((result.unwrap().text.as_str(), request_count), ("better", 2));
    let empty = vec![ScriptedReply::raw(""), ScriptedReply::text("better")];
    assert_eq!(ask_server(WireProtocol::Anthropic, empty).await.1, 2, "an empty body is no response");
}

#[tokio::test]
async fn a08_failure_after_the_first_output_is_not_retried() {
    assert_eq!(
        error_kind(vec![ScriptedReply::disconnect_after("half"), ScriptedReply::text("twice")]).await,
        (Broken, 1)
    );
    let failing = vec![ScriptedReply::error_after("half", "overloaded"), ScriptedReply::text("twice")];
    assert_eq!(error_kind(failing).await, (Broken, 1));
}

#[tokio::test]
async fn a08_endless_tool_call_is_aborted() {
    let frame = |arguments: String| {
        let call = json!({"index": 0, "id": "a", "function": {"name": "bash", "arguments": arguments}});
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
    };
    let endless = frame("x".repeat(8 << 20)).repeat(9);
    let (result, request_count) = ask_server(WireProtocol::OpenAi, vec![ScriptedReply::raw(endless)]).await;
    let error = result.unwrap_err();
    assert!(error.message.contains("exceeds the size limit"), "{error}");
    assert_eq!((error.kind, request_count), (Broken, 1));
}

#[tokio::test]
async fn a08_started_tool_call_counts_as_output() {
    let call = json!({"name": "bash", "arguments": "{\"cmd\": "});
    let item = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": ""});
    let block = json!({"type": "tool_use", "id": "a", "name": "bash", "input": {}});
    let chat = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": call}]}}]});
    let parts = json!([{"functionCall": {"name": "bash", "args": {}}}]);
    for (wire, frame) in [
        (WireProtocol::OpenAi, chat.clone()),
        (WireProtocol::OpenRouter, chat),
        (WireProtocol::OpenAiResponses, json!({"type": "response.output_item.added", "item": item})),
        (WireProtocol::Anthropic, json!({"type": "content_block_start", "index": 0, "content_block": block})),
        (WireProtocol::Gemini, json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})),
        (WireProtocol::Ollama, json!({"message": {"tool_calls": [{"function": {"name": "bash", "arguments": {}}}]}})),
    ] {
        let prefix = if wire == WireProtocol::Ollama { "" } else { "data: " };
        let (result, request_count) =
            ask_server(wire, vec![ScriptedReply::raw(format!("{prefix}{frame}\n\n")), ScriptedReply::text("twice")])
                .await;
        assert_eq!((result.unwrap_err().kind, request_count), (Broken, 1), "{}", wire.name());
    }
}

#[tokio::test]
async fn a08_permanent_failures_are_not_retried() {
    for status in [400, 401, 404, 422] {
        assert_eq!(error_kind(vec![refusal_reply(status), ScriptedReply::text("no")]).await.1, 1, "{status}");
    }
    assert_eq!(error_kind(vec![ScriptedReply::invalid_json(), ScriptedReply::text("no")]).await, (Broken, 1));
    let quota = ScriptedReply::status(429, r#"{"error": {"code": "insufficient_quota", "message": "pay"}}"#);
    assert_eq!(error_kind(vec![quota, ScriptedReply::text("no")]).await, (RateLimited, 1));
    let forbidden = refusal_reply(503).with_header("x-should-retry", "false");
    assert_eq!(error_kind(vec![forbidden, ScriptedReply::text("no")]).await, (Unreachable, 1));
}

#[tokio::test]
async fn a08_retries_end_at_the_limit_and_at_too_long_a_delay() {
    assert_eq!(error_kind((0..5).map(|_| refusal_reply(429)).collect()).await, (RateLimited, 3));
    let tomorrow = ScriptedReply::status(429, "{}").with_header("retry-after", "86400");
    assert_eq!(error_kind(vec![tomorrow, ScriptedReply::text("no")]).await, (RateLimited, 1), "a day is too long");
}

#[tokio::test]
async fn a08_error_names_the_delay_a_provider_requests() {
    let replies = vec![ScriptedReply::status(429, "{}").with_header("retry-after", "90")];
    let server = ScriptedModel::start(replies).await;
    let provider = provider_for(WireProtocol::OpenAi, &server, |options| options.retries = 0);
    let error = provider.stream(&request_for(WireProtocol::OpenAi, vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert!(error.message.contains("retry in 90 seconds"), "{error}");
}

#[tokio::test]
async fn a08_retry_dates_are_compared_with_the_injected_clock() {
    let dates = [
        ("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT"),
        ("anthropic-ratelimit-requests-reset", "2100-01-01T00:00:00Z"),
    ];
    for (header, date) in dates {
        let replies = vec![ScriptedReply::status(429, "{}").with_header(header, date), ScriptedReply::text("better")];
        let server = ScriptedModel::start(replies).await;
        let provider = provider_for(WireProtocol::Anthropic, &server, |options| {
            options.retries = 1;
            options.clock = Clock::new(|| "2100-01-01T00:00:00+00:00".parse().unwrap());
        });
        let stream = provider.stream(&request_for(WireProtocol::Anthropic, vec![ChatMessage::user("hi")])).await;
        assert_eq!(
            collect_output(stream.unwrap()).await.unwrap().text,
            "better",
            "{header}: decades away by the system clock"
        );
    }
}

#[tokio::test]
async fn error_before_the_first_output_of_a_stream_is_retried() {
    let overloaded =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    let (result, request_count) =
        ask_server(WireProtocol::Anthropic, vec![ScriptedReply::raw(overloaded), ScriptedReply::text("better")]).await;
    assert_eq!((result.unwrap().text.as_str(), request_count), ("better", 2));
}

#[tokio::test]
async fn a08_silent_server_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Reads until the client disconnects.
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await
    });
    let provider = openai_provider(ProviderOptions { timeout: Duration::from_millis(200), ..options_for(base) });
    let error = provider.stream(&request(vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert_eq!(error.kind, Unreachable, "{error}");
    silent.await.unwrap().unwrap();
}

#[tokio::test]
async fn a08_stalled_response_times_out() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start(vec![ScriptedReply::text("one two").with_barrier(&barrier)]).await;
    let provider =
        openai_provider(ProviderOptions { timeout: Duration::from_millis(200), ..options_for(server.base_url()) });
    let stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    let events: Vec<_> = stream.collect().await;
    assert_eq!(events[0], Ok(ModelEvent::Text("one ".to_owned())));
    assert_eq!(events[1].as_ref().unwrap_err().kind, Broken);
    barrier.release();
}

#[tokio::test]
async fn a08_dropped_stream_is_cancelled_at_the_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"}") {
            stream.read_buf(&mut received).await.unwrap();
        }
        let word = "data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{:x}\r\n{word}\r\n", word.len()).as_bytes()).await.unwrap();
        // Reads until the client disconnects.
        stream.read_to_end(&mut Vec::new()).await
    });
    let provider = openai_provider(options_for(base));
    let mut stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("one".to_owned()))));
    drop(stream);
    let disconnected = tokio::time::timeout(Duration::from_secs(30), server).await;
    assert!(disconnected.is_ok(), "the client is still connected");
}

#[tokio::test]
async fn redirect_is_not_followed_with_the_key() {
    let elsewhere = ScriptedModel::start(vec![ScriptedReply::text("thank you for the key")]).await;
    let location = format!("{}/chat/completions", elsewhere.base_url());
    let (kind, request_count) =
        error_kind(vec![ScriptedReply::status(308, "").with_header("location", location)]).await;
    assert_eq!((kind, request_count), (Unreachable, 1));
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a08_redirect_error_names_its_target_and_the_base_url_setting() {
    let redirect_error = async |location: &str| {
        let (result, request_count) =
            ask_server(WireProtocol::OpenAi, vec![ScriptedReply::status(302, "").with_header("location", location)])
                .await;
        assert_eq!(request_count, 1, "a retry would get the same redirect");
        result.unwrap_err().message
    };
    let message = redirect_error("https://me:pw@new.example/v1/chat/completions?token=sk-1#x").await;
    assert!(message.contains("https://new.example/v1/chat/completions ("), "{message}");
    assert!(message.contains("CAPSTAN_API_BASE"), "{message}");
    assert!(!message.contains("pw@") && !message.contains("sk-1") && !message.contains("#x"), "{message}");
    let relative = redirect_error("/login").await;
    assert!(relative.contains("http://127.0.0.1:") && relative.contains("/login ("), "{relative}");
    for useless in ["", "http://", "data:text/plain,x", "javascript:alert(1)"] {
        let message = redirect_error(useless).await;
        assert!(message.contains("CAPSTAN_API_BASE") && !message.contains("alert"), "{message}");
    }
}

#[tokio::test]
async fn a08_html_page_is_reported_as_such_and_not_retried() {
    let page = |body: &str| ScriptedReply::raw(body).with_header("content-type", "Text/HTML; charset=utf-8");
    for wire in WireProtocol::PROTOCOLS {
        let (result, request_count) = ask_server(wire, vec![page("\n <!DOCTYPE html><title>Sign in</title>\n")]).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind, request_count), (Unreachable, 1), "{wire:?}: {error}");
        assert!(error.message.contains("an HTML page") && error.message.contains("CAPSTAN_API_BASE"), "{error}");
    }
    // A stream with the wrong content type is read all the same.
    let word = r#"data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}"#;
    let (result, _) = ask_server(WireProtocol::OpenAi, vec![page(&format!("{word}\n\ndata: [DONE]\n\n"))]).await;
    assert_eq!(result.unwrap().text, "hi");
}

#[tokio::test]
async fn connections_are_reused() {
    let server = ScriptedModel::start_with(|_, _| ScriptedReply::text("hi")).await;
    for wire in WireProtocol::PROTOCOLS {
        let provider = provider_for(wire, &server, |_| {});
        for _ in 0..3 {
            let stream = provider.stream(&request_for(wire, vec![ChatMessage::user("hi")])).await.unwrap();
            collect_output(stream).await.unwrap();
        }
    }
    assert_eq!(server.connection_count(), WireProtocol::PROTOCOLS.len(), "one for each client");
}
