//! Retry decisions: whether to retry a failed attempt, and after which delay.
//!
//! The delay is the one a provider requests in its headers or body; without such a request it doubles from retry to
//! retry, with jitter.

use std::time::Duration;

use capstan_protocol::RetryBackoff;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// Retry policy of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// Not retryable.
    Never,
    /// Retry once: the condition may be transient or permanent.
    Once,
    /// Retry with backoff.
    Backoff,
    /// Retry for as long as this process has no free file descriptor: the provider was not asked.
    UntilFilesFree,
}

/// Backoff between retries whose delay the provider did not request.
const MODEL_RETRY_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_secs(16) };
/// Maximum delay that a provider may request. A longer one means no retry.
const MAX_REQUESTED_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Delay before the next retry; `None` if there is none.
///
/// `tries` is the number of retries made so far, `max_tries` their limit, `requested` the delay the provider asked for.
/// `jitter` is a number from 0 to 1 that keeps many clients from retrying at the same moment.
pub(crate) fn retry_delay(
    policy: RetryPolicy,
    tries: u32,
    max_tries: u32,
    requested: Option<Duration>,
    jitter: f64,
) -> Option<Duration> {
    let max_tries = match policy {
        RetryPolicy::Never => 0,
        RetryPolicy::Once => max_tries.min(1),
        RetryPolicy::Backoff => max_tries,
        RetryPolicy::UntilFilesFree => u32::MAX,
    };
    if tries >= max_tries || requested.is_some_and(|requested| requested > MAX_REQUESTED_RETRY_DELAY) {
        return None;
    }
    let jittered = MODEL_RETRY_BACKOFF.base_delay(tries + 1).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
    // Slightly more than requested, never less.
    Some(
        requested
            .map_or(jittered, |requested| requested + jittered.min(MODEL_RETRY_BACKOFF.initial_delay).mul_f64(0.2)),
    )
}

/// Retry instructions of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RetryAdvice {
    /// Requested delay.
    pub after: Option<Duration>,
    /// Explicit instruction to retry or not to retry.
    pub should_retry: Option<bool>,
}

/// Reads retry instructions from the headers and the body of an error response.
pub(crate) fn parse_retry_advice(headers: &HeaderMap, body: &str, now: Timestamp) -> RetryAdvice {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(parse_seconds).map(|time| time / 1000);
    let plain = || text("retry-after").and_then(|text| parse_seconds(text).or_else(|| duration_until_date(text, now)));
    let after =
        milliseconds.or_else(plain).or_else(|| rate_limit_reset(headers, now)).or_else(|| parse_retry_info(body));
    let should_retry = text("x-should-retry").and_then(|text| text.parse().ok());
    RetryAdvice { after, should_retry }
}

/// Time until the exhausted rate limit resets, from the headers of `OpenAI`, Anthropic and `OpenRouter`.
fn rate_limit_reset(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    let reset_delay = |remaining: String, reset: String| {
        let is_exhausted = text(remaining).is_none_or(|count| count == "0");
        let reset = text(reset)?;
        let delay =
            parse_span(reset).or_else(|| duration_until_date(reset, now)).or_else(|| duration_until_millis(reset, now));
        delay.filter(|_| is_exhausted)
    };
    let openai = ["requests", "tokens"]
        .map(|limit| (format!("x-ratelimit-remaining-{limit}"), format!("x-ratelimit-reset-{limit}")));
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"]
        .map(|limit| format!("anthropic-ratelimit-{limit}"))
        .map(|name| (format!("{name}-remaining"), format!("{name}-reset")));
    let openrouter = [("x-ratelimit-remaining".to_owned(), "x-ratelimit-reset".to_owned())];
    let all = openai.into_iter().chain(anthropic).chain(openrouter);
    all.filter_map(|(remaining, reset)| reset_delay(remaining, reset)).max()
}

/// `RetryInfo` in the body of a Gemini error.
fn parse_retry_info(body: &str) -> Option<Duration> {
    let body: Value = serde_json::from_str(body).ok()?;
    let details = body.pointer("/error/details")?.as_array()?;
    details.iter().find_map(|detail| parse_span(detail.get("retryDelay")?.as_str()?))
}

fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Parses a span such as `6m0s`, `1.5s` or `20ms`.
fn parse_span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let length = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let unit_seconds = match &unit[..length] {
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_seconds).ok()?;
        total = total.checked_add(part)?;
        rest = &unit[length..];
    }
    (!text.is_empty()).then_some(total)
}

fn duration_until_date(text: &str, now: Timestamp) -> Option<Duration> {
    let http = || jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp());
    let date = text.parse::<Timestamp>().ok().or_else(http)?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

fn duration_until_millis(text: &str, now: Timestamp) -> Option<Duration> {
    let date = Timestamp::from_millisecond(text.parse().ok()?).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use reqwest::header::{HeaderMap, HeaderName};

    use super::{RetryAdvice, RetryPolicy, parse_retry_advice, retry_delay};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn test_now() -> Timestamp {
        "2026-11-16T03:00:00Z".parse().unwrap()
    }

    fn advised_delay(headers: &[(&'static str, &str)], body: &str) -> Option<Duration> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        parse_retry_advice(&headers, body, test_now()).after
    }

    #[test]
    fn a08_delays_double_up_to_a_maximum_and_stop_at_the_retry_limit() {
        let delays: Vec<Option<Duration>> =
            (0..4).map(|tries| retry_delay(RetryPolicy::Backoff, tries, 3, None, 1.0)).collect();
        assert_eq!(delays, [Some(Duration::from_millis(500)), Some(seconds(1)), Some(seconds(2)), None]);
        assert_eq!(
            retry_delay(RetryPolicy::Backoff, 0, 3, None, 0.0),
            Some(Duration::from_millis(250)),
            "jitter halves the delay at most"
        );
        assert_eq!(retry_delay(RetryPolicy::Backoff, 40, 50, None, 1.0), Some(seconds(16)));
        assert_eq!(retry_delay(RetryPolicy::Once, 1, 3, None, 1.0), None);
        assert_eq!(retry_delay(RetryPolicy::Never, 0, 3, None, 1.0), None);
        assert_eq!(retry_delay(RetryPolicy::Backoff, 0, 0, None, 1.0), None);
    }

    #[test]
    fn a08_requested_delay_is_respected_up_to_a_maximum() {
        let delay = retry_delay(RetryPolicy::Backoff, 0, 3, Some(seconds(7)), 1.0).unwrap();
        assert!(delay >= seconds(7) && delay < seconds(8), "{delay:?}");
        assert_eq!(retry_delay(RetryPolicy::Backoff, 0, 3, Some(seconds(61)), 1.0), None);
    }

    #[test]
    fn a08_requested_delay_is_read_from_headers_and_bodies_of_all_providers() {
        assert_eq!(advised_delay(&[("retry-after", "3")], ""), Some(seconds(3)));
        assert_eq!(advised_delay(&[("retry-after", "1.5")], ""), Some(Duration::from_millis(1500)));
        assert_eq!(
            advised_delay(&[("retry-after-ms", "250"), ("retry-after", "1")], ""),
            Some(Duration::from_millis(250))
        );
        assert_eq!(advised_delay(&[("retry-after", "Mon, 16 Nov 2026 03:00:09 GMT")], ""), Some(seconds(9)));
        assert_eq!(advised_delay(&[("retry-after", "Mon, 16 Nov 2026 02:00:00 GMT")], ""), Some(seconds(0)));
        let openai = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2.5s")];
        assert_eq!(advised_delay(&openai, ""), Some(Duration::from_millis(62_500)));
        let other_limit = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-reset-requests", "6m0s")];
        assert_eq!(advised_delay(&other_limit, ""), None, "that limit is not exhausted");
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-16T03:00:11Z"),
        ];
        assert_eq!(advised_delay(&anthropic, ""), Some(seconds(11)));
        assert_eq!(advised_delay(&[("x-ratelimit-reset", "1794798005000")], ""), Some(seconds(5)));
        let gemini = r#"{"error": {"details": [{"@type": "x"}, {"@type": "RetryInfo", "retryDelay": "17s"}]}}"#;
        assert_eq!(advised_delay(&[], gemini), Some(seconds(17)));
        assert_eq!(advised_delay(&[("retry-after", "soon")], "soon"), None);
    }

    #[test]
    fn provider_can_forbid_a_retry() {
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-should-retry"), "false".parse().unwrap())]);
        assert_eq!(
            parse_retry_advice(&headers, "", test_now()),
            RetryAdvice { after: None, should_retry: Some(false) }
        );
    }
}
