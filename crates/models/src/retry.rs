//! When to try again, and after how long.

use std::time::Duration;

use capstan_protocol::RetryBackoff;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// Whether it may help to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// It will not.
    Never,
    /// It may be over in a moment, or stay so.
    Once,
    /// It may.
    Backoff,
}

/// Backoff between tries that the provider did not ask to delay.
const MODEL_RETRY_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_secs(16) };
/// The longest wait a provider may ask for. One that wants more is not waited for.
const MAX_REQUESTED_RETRY_DELAY: Duration = Duration::from_mins(1);

/// How long to wait before the next try, if there is to be one.
///
/// `tries` says how many tries were made again so far, `allowed` how many may be; `asked` is what the provider asks
/// for, `chance` a number from 0 to 1 that keeps many clients from coming back at the same moment.
pub(crate) fn retry_delay(
    again: RetryPolicy,
    tries: u32,
    allowed: u32,
    asked: Option<Duration>,
    chance: f64,
) -> Option<Duration> {
    let allowed = match again {
        RetryPolicy::Never => 0,
        RetryPolicy::Once => allowed.min(1),
        RetryPolicy::Backoff => allowed,
    };
    if tries >= allowed || asked.is_some_and(|asked| asked > MAX_REQUESTED_RETRY_DELAY) {
        return None;
    }
    let own = MODEL_RETRY_BACKOFF.base_delay(tries + 1).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
    // A little over what was asked for, and never under it.
    Some(asked.map_or(own, |asked| asked + own.min(MODEL_RETRY_BACKOFF.initial_delay).mul_f64(0.2)))
}

/// What a provider says about coming back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RetryAdvice {
    /// After how long.
    pub after: Option<Duration>,
    /// Whether to come back at all, where it says so.
    pub should_retry: Option<bool>,
}

/// Reads headers and body of a refusal.
pub(crate) fn parse_retry_advice(headers: &HeaderMap, body: &str, now: Timestamp) -> RetryAdvice {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(seconds).map(|time| time / 1000);
    let plain = || text("retry-after").and_then(|text| seconds(text).or_else(|| duration_until_date(text, now)));
    let after =
        milliseconds.or_else(plain).or_else(|| rate_limit_reset(headers, now)).or_else(|| parse_retry_info(body));
    let should = text("x-should-retry").and_then(|text| text.parse().ok());
    RetryAdvice { after, should_retry: should }
}

/// When the limit that was reached is lifted, in the headers of `OpenAI`, Anthropic and `OpenRouter`.
fn rate_limit_reset(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    let of = |remaining: String, reset: String| {
        let used_up = text(remaining).is_none_or(|left| left == "0");
        let reset = text(reset)?;
        let wait =
            parse_span(reset).or_else(|| duration_until_date(reset, now)).or_else(|| duration_until_millis(reset, now));
        wait.filter(|_| used_up)
    };
    let openai = ["requests", "tokens"]
        .map(|what| (format!("x-ratelimit-remaining-{what}"), format!("x-ratelimit-reset-{what}")));
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"]
        .map(|what| format!("anthropic-ratelimit-{what}"))
        .map(|name| (format!("{name}-remaining"), format!("{name}-reset")));
    let openrouter = [("x-ratelimit-remaining".to_owned(), "x-ratelimit-reset".to_owned())];
    let all = openai.into_iter().chain(anthropic).chain(openrouter);
    all.filter_map(|(remaining, reset)| of(remaining, reset)).max()
}

/// `RetryInfo` in the body, as Gemini has it.
fn parse_retry_info(body: &str) -> Option<Duration> {
    let body: Value = serde_json::from_str(body).ok()?;
    let details = body.pointer("/error/details")?.as_array()?;
    details.iter().find_map(|detail| parse_span(detail.get("retryDelay")?.as_str()?))
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// A span such as `6m0s`, `1.5s` or `20ms`.
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
    fn a8_waits_double_within_bounds_and_end() {
        let waits: Vec<Option<Duration>> =
            (0..4).map(|tries| retry_delay(RetryPolicy::Backoff, tries, 3, None, 1.0)).collect();
        assert_eq!(waits, [Some(Duration::from_millis(500)), Some(seconds(1)), Some(seconds(2)), None]);
        assert_eq!(
            retry_delay(RetryPolicy::Backoff, 0, 3, None, 0.0),
            Some(Duration::from_millis(250)),
            "chance halves it at most"
        );
        assert_eq!(retry_delay(RetryPolicy::Backoff, 40, 50, None, 1.0), Some(seconds(16)));
        assert_eq!(retry_delay(RetryPolicy::Once, 1, 3, None, 1.0), None);
        assert_eq!(retry_delay(RetryPolicy::Never, 0, 3, None, 1.0), None);
        assert_eq!(retry_delay(RetryPolicy::Backoff, 0, 0, None, 1.0), None);
    }

    #[test]
    fn a8_what_a_provider_asks_for_is_waited_for_unless_it_is_too_long() {
        let waited = retry_delay(RetryPolicy::Backoff, 0, 3, Some(seconds(7)), 1.0).unwrap();
        assert!(waited >= seconds(7) && waited < seconds(8), "{waited:?}");
        assert_eq!(retry_delay(RetryPolicy::Backoff, 0, 3, Some(seconds(61)), 1.0), None);
    }

    #[test]
    fn a8_providers_say_in_many_ways_when_to_come_back() {
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
        assert_eq!(advised_delay(&other_limit, ""), None, "that limit was not reached");
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
    fn a_provider_may_say_whether_to_come_back_at_all() {
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-should-retry"), "false".parse().unwrap())]);
        assert_eq!(
            parse_retry_advice(&headers, "", test_now()),
            RetryAdvice { after: None, should_retry: Some(false) }
        );
    }
}
