//! When a request is sent again, and when an answer is given up.

mod common;

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

use common::{openai_provider, options_for, provider_for, request, request_for};

/// A refusal that can be followed by another try at once.
fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not now"}}"#).with_header("retry-after-ms", "1")
}

/// Asks a server that answers like this, with two tries more; gives the answer and how often it was asked.
async fn ask_server(wire: WireProtocol, replies: Vec<ScriptedReply>) -> (Result<ModelOutput, ModelError>, usize) {
    let server = ScriptedModel::start(replies).await;
    let provider = provider_for(wire, &server, |settings| settings.retries = 2);
    let answer = match provider.stream(&request_for(wire, vec![ChatMessage::user("hi")])).await {
        Ok(stream) => collect_output(stream).await,
        Err(error) => Err(error),
    };
    (answer, server.requests().len())
}

async fn error_kind(replies: Vec<ScriptedReply>) -> (ModelErrorKind, usize) {
    let (answer, asked) = ask_server(WireProtocol::OpenAi, replies).await;
    (answer.unwrap_err().kind, asked)
}

#[tokio::test]
async fn a8_what_passes_is_tried_again_with_every_provider() {
    for wire in WireProtocol::PROTOCOLS {
        for status in [408, 429, 500, 503, 529] {
            let (answer, asked) =
                ask_server(wire, vec![refusal_reply(status), refusal_reply(status), ScriptedReply::text("better")])
                    .await;
            assert_eq!(answer.unwrap().text, "better", "{status} of {}", wire.name());
            assert_eq!(asked, 3);
        }
    }
}

#[tokio::test]
async fn a8_each_wait_is_told_with_its_reason_before_it_begins() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start(vec![
            refusal_reply(429),
            ScriptedReply::disconnect_after(""),
            ScriptedReply::text("better"),
        ])
        .await;
        let provider = provider_for(wire, &server, |settings| settings.retries = 2);
        let told = Mutex::new(Vec::new());
        let waits = |error: &ModelError, wait: Duration| told.lock().unwrap().push((error.message.clone(), wait));
        let request = request_for(wire, vec![ChatMessage::user("hi")]);
        collect_output(provider.send_recorded(&request, None, &waits).await.unwrap()).await.unwrap();
        let told = told.into_inner().unwrap();
        assert!(told[0].0.contains("answered 429") && !told[1].0.contains("answered"), "{told:?}");
        assert!(told.len() == 2 && told.iter().all(|(_, wait)| *wait > Duration::ZERO), "{told:?}");
    }
}

#[tokio::test]
async fn a8_a_connection_lost_before_the_first_word_is_tried_again() {
    let (answer, asked) =
        ask_server(WireProtocol::OpenAi, vec![ScriptedReply::disconnect_after(""), ScriptedReply::text("better")])
            .await;
    assert_eq!((answer.unwrap().text.as_str(), asked), ("better", 2));
    let empty = vec![ScriptedReply::raw(""), ScriptedReply::text("better")];
    assert_eq!(ask_server(WireProtocol::Anthropic, empty).await.1, 2, "nothing at all is no answer");
}

#[tokio::test]
async fn a8_nothing_is_tried_again_after_the_first_word() {
    assert_eq!(
        error_kind(vec![ScriptedReply::disconnect_after("half"), ScriptedReply::text("twice")]).await,
        (Broken, 1)
    );
    let failing = vec![ScriptedReply::error_after("half", "overloaded"), ScriptedReply::text("twice")];
    assert_eq!(error_kind(failing).await, (Broken, 1));
}

#[tokio::test]
async fn a8_a_call_without_an_end_is_given_up() {
    let frame = |arguments: String| {
        let call = json!({"index": 0, "id": "a", "function": {"name": "bash", "arguments": arguments}});
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
    };
    let endless = frame("x".repeat(8 << 20)).repeat(9);
    let (answer, asked) = ask_server(WireProtocol::OpenAi, vec![ScriptedReply::raw(endless)]).await;
    let error = answer.unwrap_err();
    assert!(error.message.contains("without an end"), "{error}");
    assert_eq!((error.kind, asked), (Broken, 1));
}

#[tokio::test]
async fn a8_a_call_that_has_begun_is_a_first_word() {
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
        let begin = if wire == WireProtocol::Ollama { "" } else { "data: " };
        let (answer, asked) =
            ask_server(wire, vec![ScriptedReply::raw(format!("{begin}{frame}\n\n")), ScriptedReply::text("twice")])
                .await;
        assert_eq!((answer.unwrap_err().kind, asked), (Broken, 1), "{}", wire.name());
    }
}

#[tokio::test]
async fn a8_what_does_not_pass_is_not_tried_again() {
    for status in [400, 401, 404, 422] {
        assert_eq!(error_kind(vec![refusal_reply(status), ScriptedReply::text("no")]).await.1, 1, "{status}");
    }
    assert_eq!(error_kind(vec![ScriptedReply::invalid_json(), ScriptedReply::text("no")]).await, (Broken, 1));
    let quota = ScriptedReply::status(429, r#"{"error": {"code": "insufficient_quota", "message": "pay"}}"#);
    assert_eq!(error_kind(vec![quota, ScriptedReply::text("no")]).await, (RateLimited, 1));
    let no = refusal_reply(503).with_header("x-should-retry", "false");
    assert_eq!(error_kind(vec![no, ScriptedReply::text("no")]).await, (Unreachable, 1));
}

#[tokio::test]
async fn a8_tries_end_and_so_does_patience() {
    assert_eq!(error_kind((0..5).map(|_| refusal_reply(429)).collect()).await, (RateLimited, 3));
    let tomorrow = ScriptedReply::status(429, "{}").with_header("retry-after", "86400");
    assert_eq!(error_kind(vec![tomorrow, ScriptedReply::text("no")]).await, (RateLimited, 1), "nobody waits a day");
}

#[tokio::test]
async fn a8_how_long_a_provider_wants_to_be_left_alone_is_told() {
    let replies = vec![ScriptedReply::status(429, "{}").with_header("retry-after", "90")];
    let server = ScriptedModel::start(replies).await;
    let provider = provider_for(WireProtocol::OpenAi, &server, |settings| settings.retries = 0);
    let error = provider.stream(&request_for(WireProtocol::OpenAi, vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert!(error.message.contains("it asks to come back in 90 seconds"), "{error}");
}

#[tokio::test]
async fn a8_a_date_to_come_back_at_is_compared_with_the_clock_that_was_given() {
    let dates = [
        ("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT"),
        ("anthropic-ratelimit-requests-reset", "2100-01-01T00:00:00Z"),
    ];
    for (header, date) in dates {
        let replies = vec![ScriptedReply::status(429, "{}").with_header(header, date), ScriptedReply::text("better")];
        let server = ScriptedModel::start(replies).await;
        let provider = provider_for(WireProtocol::Anthropic, &server, |settings| {
            settings.retries = 1;
            settings.clock = Clock::new(|| "2100-01-01T00:00:00+00:00".parse().unwrap());
        });
        let answer = provider.stream(&request_for(WireProtocol::Anthropic, vec![ChatMessage::user("hi")])).await;
        assert_eq!(
            collect_output(answer.unwrap()).await.unwrap().text,
            "better",
            "{header}: by another clock it is far away"
        );
    }
}

#[tokio::test]
async fn an_error_before_the_first_word_of_a_stream_counts_as_a_refusal() {
    let overloaded =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    let (answer, asked) =
        ask_server(WireProtocol::Anthropic, vec![ScriptedReply::raw(overloaded), ScriptedReply::text("better")]).await;
    assert_eq!((answer.unwrap().text.as_str(), asked), ("better", 2));
}

#[tokio::test]
async fn a8_a_server_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Reads until the client is gone.
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await
    });
    let provider = openai_provider(ProviderOptions { timeout: Duration::from_millis(200), ..options_for(base) });
    let error = provider.stream(&request(vec![ChatMessage::user("hi")])).await.err().unwrap();
    assert_eq!(error.kind, Unreachable, "{error}");
    silent.await.unwrap().unwrap();
}

#[tokio::test]
async fn a8_an_answer_that_does_not_go_on_is_given_up() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start(vec![ScriptedReply::text("one two").with_barrier(&gate)]).await;
    let provider =
        openai_provider(ProviderOptions { timeout: Duration::from_millis(200), ..options_for(server.base_url()) });
    let stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    let events: Vec<_> = stream.collect().await;
    assert_eq!(events[0], Ok(ModelEvent::Text("one ".to_owned())));
    assert_eq!(events[1].as_ref().unwrap_err().kind, Broken);
    gate.release();
}

#[tokio::test]
async fn a8_a_stream_that_is_dropped_is_cancelled_at_the_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"}") {
            stream.read_buf(&mut asked).await.unwrap();
        }
        let word = "data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{:x}\r\n{word}\r\n", word.len()).as_bytes()).await.unwrap();
        // Reads until the client is gone.
        stream.read_to_end(&mut Vec::new()).await
    });
    let provider = openai_provider(options_for(base));
    let mut stream = provider.stream(&request(vec![ChatMessage::user("hi")])).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("one".to_owned()))));
    drop(stream);
    let gone = tokio::time::timeout(Duration::from_secs(30), server).await;
    assert!(gone.is_ok(), "the server still has a client");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let elsewhere = ScriptedModel::start(vec![ScriptedReply::text("thank you for the key")]).await;
    let location = format!("{}/chat/completions", elsewhere.base_url());
    let (kind, asked) = error_kind(vec![ScriptedReply::status(308, "").with_header("location", location)]).await;
    assert_eq!((kind, asked), (Unreachable, 1));
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a8_a_redirect_is_told_with_where_it_leads_and_what_sets_the_address() {
    let told = async |location: &str| {
        let (answer, asked) =
            ask_server(WireProtocol::OpenAi, vec![ScriptedReply::status(302, "").with_header("location", location)])
                .await;
        assert_eq!(asked, 1, "it leads there the next time too");
        answer.unwrap_err().message
    };
    let message = told("https://me:pw@new.example/v1/chat/completions?token=sk-1#x").await;
    assert!(message.contains("https://new.example/v1/chat/completions ("), "{message}");
    assert!(message.contains("CAPSTAN_API_BASE"), "{message}");
    assert!(!message.contains("pw@") && !message.contains("sk-1") && !message.contains("#x"), "{message}");
    let relative = told("/login").await;
    assert!(relative.contains("http://127.0.0.1:") && relative.contains("/login ("), "{relative}");
    for useless in ["", "http://", "data:text/plain,x", "javascript:alert(1)"] {
        let message = told(useless).await;
        assert!(message.contains("CAPSTAN_API_BASE") && !message.contains("alert"), "{message}");
    }
}

#[tokio::test]
async fn a8_a_page_is_told_as_one_and_not_asked_for_again() {
    let page = |body: &str| ScriptedReply::raw(body).with_header("content-type", "Text/HTML; charset=utf-8");
    for wire in WireProtocol::PROTOCOLS {
        let (answer, asked) = ask_server(wire, vec![page("\n <!DOCTYPE html><title>Sign in</title>\n")]).await;
        let error = answer.unwrap_err();
        assert_eq!((error.kind, asked), (Unreachable, 1), "{wire:?}: {error}");
        assert!(error.message.contains("a page") && error.message.contains("CAPSTAN_API_BASE"), "{error}");
    }
    // A server that names its stream wrongly is understood all the same.
    let word = r#"data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}"#;
    let (answer, _) = ask_server(WireProtocol::OpenAi, vec![page(&format!("{word}\n\ndata: [DONE]\n\n"))]).await;
    assert_eq!(answer.unwrap().text, "hi");
}

#[tokio::test]
async fn connections_are_used_again() {
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
