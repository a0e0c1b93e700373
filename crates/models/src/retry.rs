//! When to try again, and after how long.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// Whether it may help to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It will not.
    Never,
    /// It may be over in a moment, or stay so.
    Once,
    /// It may.
    Later,
}

/// The wait before the first new try; it doubles from try to try.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait that nobody asked for.
const LONGEST: Duration = Duration::from_secs(16);
/// The longest wait a provider may ask for. One that wants more is not waited for.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// How long to wait before the next try, if there is to be one.
///
/// `tries` says how many tries were made again so far, `allowed` how many may be; `asked` is what the provider asks
/// for, `chance` a number from 0 to 1 that keeps many clients from coming back at the same moment.
pub(crate) fn wait(again: Again, tries: u32, allowed: u32, asked: Option<Duration>, chance: f64) -> Option<Duration> {
    let allowed = match again {
        Again::Never => 0,
        Again::Once => allowed.min(1),
        Again::Later => allowed,
    };
    if tries >= allowed || asked.is_some_and(|asked| asked > LONGEST_ASKED) {
        return None;
    }
    let backoff = FIRST.saturating_mul(1 << tries.min(16)).min(LONGEST);
    let own = backoff.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
    // A little over what was asked for, and never under it.
    Some(asked.map_or(own, |asked| asked + own.min(FIRST).mul_f64(0.2)))
}

/// A number from 0 to 1. The keys of a hash map are random, and that is random enough here.
pub(crate) fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// What a provider says about coming back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Asked {
    /// After how long.
    pub after: Option<Duration>,
    /// Whether to come back at all, where it says so.
    pub should: Option<bool>,
}

/// Reads headers and body of a refusal.
pub(crate) fn asked(headers: &HeaderMap, body: &str, now: Timestamp) -> Asked {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(seconds).map(|time| time / 1000);
    let plain = || text("retry-after").and_then(|text| seconds(text).or_else(|| until_date(text, now)));
    let after = milliseconds.or_else(plain).or_else(|| reset(headers, now)).or_else(|| retry_info(body));
    let should = text("x-should-retry").and_then(|text| text.parse().ok());
    Asked { after, should }
}

/// When the limit that was reached is lifted, in the headers of `OpenAI`, Anthropic and `OpenRouter`.
fn reset(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    let of = |remaining: String, reset: String| {
        let used_up = text(remaining).is_none_or(|left| left == "0");
        let reset = text(reset)?;
        let wait = span(reset).or_else(|| until_date(reset, now)).or_else(|| until_milliseconds(reset, now));
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
fn retry_info(body: &str) -> Option<Duration> {
    let body: Value = serde_json::from_str(body).ok()?;
    let details = body.pointer("/error/details")?.as_array()?;
    details.iter().find_map(|detail| span(detail.get("retryDelay")?.as_str()?))
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// A span such as `6m0s`, `1.5s` or `20ms`.
fn span(text: &str) -> Option<Duration> {
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

fn until_date(text: &str, now: Timestamp) -> Option<Duration> {
    let http = || jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp());
    let date = text.parse::<Timestamp>().ok().or_else(http)?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

fn until_milliseconds(text: &str, now: Timestamp) -> Option<Duration> {
    let date = Timestamp::from_millisecond(text.parse().ok()?).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use reqwest::header::{HeaderMap, HeaderName};

    use super::{Again, Asked, asked, chance, wait};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn now() -> Timestamp {
        "2026-11-16T03:00:00Z".parse().unwrap()
    }

    fn after(headers: &[(&'static str, &str)], body: &str) -> Option<Duration> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        asked(&headers, body, now()).after
    }

    #[test]
    fn a8_waits_double_within_bounds_and_end() {
        let waits: Vec<Option<Duration>> = (0..4).map(|tries| wait(Again::Later, tries, 3, None, 1.0)).collect();
        assert_eq!(waits, [Some(Duration::from_millis(500)), Some(seconds(1)), Some(seconds(2)), None]);
        assert_eq!(wait(Again::Later, 0, 3, None, 0.0), Some(Duration::from_millis(250)), "chance halves it at most");
        assert_eq!(wait(Again::Later, 40, 50, None, 1.0), Some(seconds(16)));
        assert_eq!(wait(Again::Once, 1, 3, None, 1.0), None);
        assert_eq!(wait(Again::Never, 0, 3, None, 1.0), None);
        assert_eq!(wait(Again::Later, 0, 0, None, 1.0), None);
    }

    #[test]
    fn a8_what_a_provider_asks_for_is_waited_for_unless_it_is_too_long() {
        let waited = wait(Again::Later, 0, 3, Some(seconds(7)), 1.0).unwrap();
        assert!(waited >= seconds(7) && waited < seconds(8), "{waited:?}");
        assert_eq!(wait(Again::Later, 0, 3, Some(seconds(61)), 1.0), None);
    }

    #[test]
    fn a8_providers_say_in_many_ways_when_to_come_back() {
        assert_eq!(after(&[("retry-after", "3")], ""), Some(seconds(3)));
        assert_eq!(after(&[("retry-after", "1.5")], ""), Some(Duration::from_millis(1500)));
        assert_eq!(after(&[("retry-after-ms", "250"), ("retry-after", "1")], ""), Some(Duration::from_millis(250)));
        assert_eq!(after(&[("retry-after", "Mon, 16 Nov 2026 03:00:09 GMT")], ""), Some(seconds(9)));
        assert_eq!(after(&[("retry-after", "Mon, 16 Nov 2026 02:00:00 GMT")], ""), Some(seconds(0)));
        let openai = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2.5s")];
        assert_eq!(after(&openai, ""), Some(Duration::from_millis(62_500)));
        let other_limit = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-reset-requests", "6m0s")];
        assert_eq!(after(&other_limit, ""), None, "that limit was not reached");
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-16T03:00:11Z"),
        ];
        assert_eq!(after(&anthropic, ""), Some(seconds(11)));
        assert_eq!(after(&[("x-ratelimit-reset", "1794798005000")], ""), Some(seconds(5)));
        let gemini = r#"{"error": {"details": [{"@type": "x"}, {"@type": "RetryInfo", "retryDelay": "17s"}]}}"#;
        assert_eq!(after(&[], gemini), Some(seconds(17)));
        assert_eq!(after(&[("retry-after", "soon")], "soon"), None);
    }

    #[test]
    fn a_provider_may_say_whether_to_come_back_at_all() {
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-should-retry"), "false".parse().unwrap())]);
        assert_eq!(asked(&headers, "", now()), Asked { after: None, should: Some(false) });
    }

    #[test]
    fn chance_lies_between_nothing_and_all() {
        let chances: Vec<f64> = (0..50).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)), "{chances:?}");
        assert!(chances.windows(2).any(|pair| pair[0].total_cmp(&pair[1]).is_ne()), "{chances:?}");
    }
}
