//! Scripted server as its clients see it, over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn chat_request(messages: &Value) -> Value {
    json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": messages})
}

fn hello_request() -> Value {
    chat_request(&json!([{"role": "user", "content": "hello"}]))
}

async fn post(server: &ScriptedModel, body: &Value) -> (u16, String) {
    let url = format!("{}/chat/completions", server.base_url());
    let response = reqwest::Client::new().post(url).bearer_auth("key").json(body).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn parse_chunks(stream: &str) -> Vec<Value> {
    let data = stream.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn text_streams_in_chunks_with_a_finish_reason_and_the_usage() {
    let server = ScriptedModel::start(vec![ScriptedReply::text_with_usage("one two three", 7, 3)]).await;
    let (status, body) = post(&server, &hello_request()).await;

    assert_eq!(status, 200);
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    let chunks = parse_chunks(&body);
    let text: Vec<&str> = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, ["one ", "two ", "three"]);
    assert_eq!(chunks[3]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[4]["usage"], json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}));
    assert_eq!(server.requests(), [hello_request()]);
    assert_eq!(server.authorization_headers(), [Some("Bearer key".to_owned())]);
}

#[tokio::test]
async fn usage_is_sent_only_on_request() {
    let server = ScriptedModel::start(vec![ScriptedReply::text("hi")]).await;
    let mut body = hello_request();
    body.as_object_mut().unwrap().remove("stream_options");
    assert!(!post(&server, &body).await.1.contains("usage"));
}

#[tokio::test]
async fn tool_calls_stream_in_fragments_of_their_arguments() {
    let calls = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo 你好"}))]).with_text("Let me see.");
    let server = ScriptedModel::start(vec![calls]).await;
    let chunks = parse_chunks(&post(&server, &hello_request()).await.1);

    let calls: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["delta"]["tool_calls"][0]).collect();
    let arguments: Vec<&str> = calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert!(arguments.len() > 2, "{arguments:?}");
    assert_eq!(arguments.concat(), r#"{"cmd":"echo 你好"}"#);
    assert!(chunks.iter().any(|c| c["choices"][0]["finish_reason"] == "tool_calls"));
}

#[tokio::test]
async fn invalid_request_gets_400_and_consumes_no_reply() {
    let server = ScriptedModel::start(vec![ScriptedReply::text("hi")]).await;
    let orphan = chat_request(&json!([{"role": "tool", "tool_call_id": "x", "content": "?"}]));
    let (status, body) = post(&server, &orphan).await;

    assert_eq!(status, 400);
    assert!(body.contains("not an open call"), "{body}");
    assert_eq!(server.violations().len(), 1);
    assert_eq!(post(&server, &hello_request()).await.0, 200);
}

#[tokio::test]
async fn exhausted_script_answers_500_with_the_reason() {
    let server = ScriptedModel::start(vec![]).await;
    let (status, body) = post(&server, &hello_request()).await;
    assert_eq!(status, 500);
    assert!(body.contains("the script is exhausted"), "{body}");
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn script_can_decide_from_the_request() {
    let server = ScriptedModel::start_with(|body, n| ScriptedReply::text(format!("{n}:{}", body["model"]))).await;
    post(&server, &hello_request()).await;
    let second = post(&server, &hello_request()).await.1;
    assert!(second.contains(r#"1:\"m\""#), "{second}");
}

#[tokio::test]
async fn disconnect_breaks_the_connection_after_the_text() {
    let server = ScriptedModel::start(vec![ScriptedReply::disconnect_after("half of it")]).await;
    let url = format!("{}/chat/completions", server.base_url());
    let mut response = reqwest::Client::new().post(url).json(&hello_request()).send().await.unwrap();
    let mut received = String::new();
    let error = loop {
        match response.chunk().await {
            Ok(Some(bytes)) => received.push_str(&String::from_utf8_lossy(&bytes)),
            Ok(None) => panic!("the stream ended without an error: {received}"),
            Err(error) => break error,
        }
    };
    assert!(received.contains("half"), "{error}: {received}");
}

#[tokio::test]
async fn barrier_holds_the_reply_after_its_first_chunk() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start(vec![ScriptedReply::text("one two").with_barrier(&barrier)]).await;
    let url = format!("{}/chat/completions", server.base_url());
    let mut response = reqwest::Client::new().post(url).json(&hello_request()).send().await.unwrap();

    let first = response.chunk().await.unwrap().unwrap();
    barrier.reached().await;
    assert!(String::from_utf8_lossy(&first).contains("one "));
    barrier.release();
    let mut rest = String::new();
    while let Some(bytes) = response.chunk().await.unwrap() {
        rest.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(rest.contains("two") && rest.contains("[DONE]"), "{rest}");
}

#[test]
fn blocking_server_stops_when_dropped() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi")]);
    let address = server.base_url().replace("http://", "").replace("/v1", "");
    let body = hello_request().to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();

    assert!(response.starts_with("HTTP/1.1 200") && response.contains("hi"), "{response}");
    assert_eq!(server.authorization_headers(), [None]);
    drop(server);
    assert!(TcpStream::connect(&address).is_err());
}

#[tokio::test]
async fn benchmark_server_reports_violations_afterwards() {
    let echo = |request: &Value, _: usize| {
        ScriptedReply::text(format!("{} {}", request["messages"], request.get("tools").is_some()))
    };
    let server = ScriptedModel::start_blocking_for_benchmark(echo);
    let two = json!([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]);
    let mut valid = chat_request(&two);
    valid["tools"] = json!([{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}]);
    let (status, stream) = post(&server, &valid).await;
    let text: String =
        parse_chunks(&stream).iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(
        (status, text.as_str()),
        (200, r#"[{"role":"user","content":"two"}] false"#),
        "only the newest message, and no tools"
    );
    let wrong = chat_request(&json!([{"role": "assistant", "content": "one"}]));
    assert_eq!(post(&server, &wrong).await.0, 200);
    assert_eq!(server.violations(), ["request 1: the last message is of role assistant, not user or tool"]);
    assert_eq!(server.requests(), [valid, wrong]);
    assert_eq!(server.violations().len(), 1, "each request is validated once");
}
