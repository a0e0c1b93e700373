//! Several keys of a provider, against a real server.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{provider_for, request_for};
use capstan_hooks::contracts::{
    CallObserver, KeyPosition, ModelError, ModelErrorKind, ModelProvider as _, collect_output,
};
use capstan_models::{Provider, ProviderOptions, WireProtocol};
use capstan_protocol::{ChatMessage, Clock, ErrorCode, FailureCode, ModelRequest, Timestamp};
use capstan_testing::{ScriptedModel, ScriptedReply};

const KEYS: [&str; 3] = ["sk-first-0123456789", "sk-second-0123456789", "sk-third-0123456789"];

/// Clock that a test sets.
#[derive(Clone, Default)]
struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    fn clock(&self) -> Clock {
        let millis = Arc::clone(&self.0);
        Clock::new(move || Timestamp::from_millis(millis.load(Ordering::Relaxed)))
    }

    fn advance(&self, duration: Duration) {
        self.0.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

/// Provider with the first `count` keys and without retries, after `change` to its options.
fn provider_with_keys(
    wire: WireProtocol,
    server: &ScriptedModel,
    count: usize,
    change: impl FnOnce(&mut ProviderOptions),
) -> Provider {
    provider_for(wire, server, |options| {
        options.api_keys = KEYS[..count].iter().map(|key| (*key).into()).collect();
        change(options);
    })
}

fn request(wire: WireProtocol) -> ModelRequest {
    request_for(wire, vec![ChatMessage::user("hi")])
}

/// Keys that were sent, by the names they have in [`KEYS`].
fn sent_keys(server: &ScriptedModel) -> Vec<String> {
    let headers = ["authorization", "x-api-key", "x-goog-api-key"].map(|name| server.header_values(name));
    let names = |index: usize| headers.iter().find_map(|values| values[index].clone()).unwrap_or_default();
    let name =
        |value: String| value.trim_start_matches("Bearer sk-").trim_start_matches("sk-").replace("-0123456789", "");
    (0..server.requests().len()).map(names).map(name).collect()
}

fn refusal(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not you"}}"#)
}

async fn ask(provider: &Provider, wire: WireProtocol) -> Result<String, ModelError> {
    let stream = provider.stream(&request(wire)).await?;
    Ok(collect_output(stream).await?.text)
}

#[tokio::test]
async fn a08_refused_key_is_replaced_at_once_with_every_provider() {
    for wire in WireProtocol::PROTOCOLS {
        for status in [401, 402, 403, 429] {
            let replies = vec![refusal(status), ScriptedReply::text("better"), ScriptedReply::text("again")];
            let server = ScriptedModel::start(replies).await;
            let provider = provider_with_keys(wire, &server, 2, |_| {});
            assert_eq!(ask(&provider, wire).await.unwrap(), "better", "{status} of {}", wire.name());
            assert_eq!(ask(&provider, wire).await.unwrap(), "again");
            assert_eq!(sent_keys(&server), ["first", "second", "second"], "{status} of {}", wire.name());
        }
    }
}

#[tokio::test]
async fn a08_failure_of_the_request_or_the_provider_cools_no_key() {
    let wire = WireProtocol::Anthropic;
    let overflow = ScriptedReply::context_overflow;
    for failure in [refusal(400), refusal(404), refusal(500), refusal(503), refusal(529), overflow()] {
        let server = ScriptedModel::start(vec![failure, ScriptedReply::text("fine")]).await;
        let provider = provider_with_keys(wire, &server, 2, |_| {});
        ask(&provider, wire).await.unwrap_err();
        assert_eq!(ask(&provider, wire).await.unwrap(), "fine");
        assert_eq!(sent_keys(&server), ["first", "first"]);
    }
}

#[tokio::test]
async fn a08_cooling_key_is_not_tried_before_its_time() {
    let wire = WireProtocol::OpenAi;
    let limited = refusal(429).with_header("retry-after", "90");
    let texts = ["one", "two", "three"].map(ScriptedReply::text);
    let server = ScriptedModel::start([limited].into_iter().chain(texts).collect()).await;
    let time = ManualClock::default();
    let provider = provider_with_keys(wire, &server, 2, |options| options.clock = time.clock());
    ask(&provider, wire).await.unwrap();
    time.advance(Duration::from_millis(89_999));
    ask(&provider, wire).await.unwrap();
    time.advance(Duration::from_millis(1));
    ask(&provider, wire).await.unwrap();
    assert_eq!(sent_keys(&server), ["first", "second", "second", "first"]);
}

#[tokio::test]
async fn a08_exhausted_keys_are_one_error_with_the_earliest_retry_and_no_address() {
    let wire = WireProtocol::OpenAi;
    let limited = |seconds: &str| refusal(429).with_header("retry-after", seconds);
    let replies = vec![refusal(401), limited("600"), limited("90"), ScriptedReply::text("never")];
    let server = ScriptedModel::start(replies).await;
    let time = ManualClock::default();
    let provider = provider_with_keys(wire, &server, 3, |options| {
        options.clock = time.clock();
        options.retries = 3;
    });
    let error = ask(&provider, wire).await.unwrap_err();
    assert_eq!((error.kind, error.retry_at), (ModelErrorKind::Exhausted, Some(Timestamp::from_millis(90_000))));
    assert_eq!(
        error.message,
        "openai: all 3 keys are cooling down (2 rate limit, 1 rejected); a retry can succeed from \
         1970-01-01 00:01:30 UTC on"
    );
    assert_eq!(FailureCode::from(ErrorCode::ModelExhausted).public_message(), None, "the message itself is public");
    assert_eq!(ask(&provider, wire).await.unwrap_err(), error, "the same from every caller");
    assert_eq!(server.requests().len(), 3, "no key is tried during its cool-down");
    let model = request(wire).model;
    assert_eq!(provider.check_keys(&model, true).unwrap_err(), error);
    time.advance(Duration::from_secs(45));
    assert_eq!(provider.check_keys(&model, true), Ok(()), "a call may wait for that long");
    provider.check_keys(&model, false).unwrap_err();
}

#[tokio::test]
async fn a08_call_waits_for_the_first_key_as_for_a_retry() {
    let wire = WireProtocol::OpenAi;
    let replies = vec![refusal(429), refusal(429), ScriptedReply::text("better")];
    let server = ScriptedModel::start(replies).await;
    let provider = provider_with_keys(wire, &server, 2, |options| options.retries = 1);
    assert_eq!(ask(&provider, wire).await.unwrap(), "better");
    assert_eq!(sent_keys(&server).len(), 3);
}

#[tokio::test]
async fn a08_keys_that_are_refused_for_no_time_are_tried_once_per_retry() {
    let wire = WireProtocol::OpenAi;
    let server = ScriptedModel::start_with(|_, _| refusal(429).with_header("retry-after", "0")).await;
    for (keys, requests) in [(1, 2), (2, 4)] {
        let before = server.requests().len();
        let provider = provider_with_keys(wire, &server, keys, |options| options.retries = 1);
        ask(&provider, wire).await.unwrap_err();
        assert_eq!(server.requests().len() - before, requests, "{keys} keys");
    }
}

/// Observer of a host with a fallback model.
#[derive(Default)]
struct FallbackObserver {
    keys: Mutex<Vec<String>>,
}

impl CallObserver for FallbackObserver {
    fn on_retry(&self, error: &ModelError, _: Duration) {
        panic!("waits, although another model can answer: {error}");
    }

    fn on_key(&self, key: KeyPosition) {
        self.keys.lock().unwrap().push(key.to_string());
    }

    fn can_wait_for_keys(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a08_call_does_not_wait_for_keys_if_another_model_can_answer() {
    let wire = WireProtocol::OpenAi;
    let server = ScriptedModel::start(vec![refusal(429), refusal(429), ScriptedReply::text("never")]).await;
    let provider = provider_with_keys(wire, &server, 2, |options| options.retries = 3);
    let observer = FallbackObserver::default();
    let error = provider.send_recorded(&request(wire), None, &observer).await.err().unwrap();
    assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::Exhausted, 2));
    assert_eq!(*observer.keys.lock().unwrap(), ["1 of 2", "2 of 2"]);
}

#[tokio::test]
async fn a08_failure_after_the_first_output_is_not_repeated_with_another_key() {
    let wire = WireProtocol::OpenAi;
    let server =
        ScriptedModel::start(vec![ScriptedReply::error_after("half", "rate limit"), ScriptedReply::text("twice")])
            .await;
    let provider = provider_with_keys(wire, &server, 2, |_| {});
    ask(&provider, wire).await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn x06_no_key_of_a_provider_is_in_an_error() {
    let wire = WireProtocol::OpenAi;
    let echo = |status| ScriptedReply::status(status, format!(r#"{{"message": "not {}"}}"#, KEYS.join(" or ")));
    let server = ScriptedModel::start(vec![echo(500), echo(400)]).await;
    let provider = provider_with_keys(wire, &server, 2, |options| options.api_keys.extend([KEYS[2].into()]));
    for _ in 0..2 {
        let error = ask(&provider, wire).await.unwrap_err();
        assert!(error.message.contains("[...]") && !error.message.contains("0123456789"), "{error}");
    }
}

#[tokio::test]
async fn a08_key_that_is_no_header_value_is_skipped() {
    let wire = WireProtocol::OpenAi;
    let server = ScriptedModel::start(vec![ScriptedReply::text("fine")]).await;
    let provider = provider_with_keys(wire, &server, 2, |options| options.api_keys[0] = "sk\nbroken".into());
    assert_eq!(ask(&provider, wire).await.unwrap(), "fine");
    assert_eq!(sent_keys(&server), ["second"]);
}
