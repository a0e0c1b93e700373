//! Rerank requests to a server that is compatible with OpenAI.

use std::sync::Arc;

use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelProvider, RerankRequest};
use capstan_models::{HttpClients, Provider, ProviderOptions, WireProtocol};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::common::{PROVIDER_TEST_KEY, options_for};

/// Server that answers one request, and returns its head and its body.
async fn answer_once(status: &'static str, answer: String) -> (String, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        let (head, body) = loop {
            let mut buffer = [0; 4096];
            let count = connection.read(&mut buffer).await.unwrap();
            received.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&received).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if let Ok(body) = serde_json::from_str(body) {
                break (head.to_owned(), body);
            }
        };
        let length = answer.len();
        let reply =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}");
        connection.write_all(reply.as_bytes()).await.unwrap();
        (head, body)
    });
    (base, serving)
}

async fn rerank(base: String) -> Result<Vec<(usize, f64)>, ModelError> {
    let provider = Provider::new("ranker", WireProtocol::OpenAi, options_for(base), Arc::new(HttpClients::new()));
    assert!(provider.can_rerank());
    let documents = vec!["a".to_owned(), "b".to_owned()];
    let request = RerankRequest { model: "ranker:small".parse().unwrap(), query: "rope".to_owned(), documents };
    let scores = provider.rerank(&request, &|_: &ModelError, _| {}).await?;
    Ok(scores.into_iter().map(|score| (score.index, score.score)).collect())
}

#[tokio::test]
async fn k04_texts_are_ranked_by_a_compatible_server() {
    let results = json!({"results": [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.5}]});
    for answer in [results.to_string(), format!("{results:#}\n")] {
        let (base, served) = answer_once("200 OK", answer).await;
        assert_eq!(rerank(base).await.unwrap(), [(1, 0.75), (0, 0.5)]);
        let (head, body) = served.await.unwrap();
        assert!(head.starts_with("POST /v1/rerank HTTP/1.1"), "{head}");
        assert!(head.contains(&format!("Bearer {PROVIDER_TEST_KEY}")));
        assert_eq!(body, json!({"model": "small", "query": "rope", "documents": ["a", "b"]}));
    }
}

#[tokio::test]
async fn k04_a_rerank_response_that_is_no_ranking_is_an_error() {
    for (status, answer, kind) in [
        ("404 Not Found", "{}", ModelErrorKind::UnknownModel),
        ("401 Unauthorized", "{}", ModelErrorKind::Unauthorized),
        ("200 OK", "{\"data\": []}", ModelErrorKind::Broken),
        ("200 OK", "{\"results\": [", ModelErrorKind::Broken),
    ] {
        let (base, _served) = answer_once(status, answer.to_owned()).await;
        assert_eq!(rerank(base).await.unwrap_err().kind, kind, "{status} {answer}");
    }
}

#[test]
fn k04_providers_without_a_rerank_endpoint_say_so() {
    let can_rerank = |wire: WireProtocol, api_base: Option<&str>| {
        let options = ProviderOptions { api_base: api_base.map(str::to_owned), ..ProviderOptions::default() };
        Provider::new("p", wire, options, Arc::new(HttpClients::new())).can_rerank()
    };
    assert!(can_rerank(WireProtocol::OpenAi, Some("http://127.0.0.1:1/v1")));
    assert!(!can_rerank(WireProtocol::OpenAi, None), "OpenAI itself has none");
    assert!(!can_rerank(WireProtocol::Anthropic, Some("http://127.0.0.1:1/v1")));
}
