//! Errors of a provider call: classification, wording and retry policy.

use std::time::Duration;

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use capstan_protocol::is_file_limit_error;
use reqwest::Url;
use serde_json::Value;

use crate::error_redactor::ErrorRedactor;
use crate::key_pool::{KeyFault, PoolCooldown};
use crate::retry::RetryPolicy;

/// Context of a call, for error messages.
#[derive(Clone)]
pub(crate) struct CallContext {
    /// Provider name.
    pub provider: String,
    /// Model name at the provider.
    pub model: String,
    /// Scheme, host and port of the endpoint.
    pub origin: String,
    /// Settings and variables that hold the key.
    pub key_setting_names: String,
    /// Settings and variables that hold the base URL.
    pub base_url_setting_names: String,
    /// Removes secrets and the prompt from quoted text.
    pub redactor: ErrorRedactor,
}

/// Fault in a response with status 200, found by the reader of its protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResponseFault {
    /// The response violates the provider's documented format.
    Malformed(&'static str),
    /// The response ended before it was complete.
    Incomplete(&'static str),
    /// The provider reported an error within the response.
    Reported {
        /// HTTP status that corresponds to the error, where it names one.
        status: Option<u16>,
        /// Error object.
        body: Value,
    },
    /// The provider's content filter ended the response.
    Filtered,
}

/// Error with its retry policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProviderError {
    pub model_error: ModelError,
    pub retry: RetryPolicy,
    /// Reason why the key was refused; `None` if the request or the provider is at fault.
    pub key_fault: Option<KeyFault>,
}

impl ProviderError {
    /// Error that is not the fault of the key.
    pub(crate) fn new(model_error: ModelError, retry: RetryPolicy) -> Self {
        Self { model_error, retry, key_fault: None }
    }
}

impl CallContext {
    fn error(&self, kind: ModelErrorKind, message: impl std::fmt::Display) -> ModelError {
        ModelError::new(kind, format!("{}: {message}", self.provider))
    }

    /// Error for a faulty response.
    pub(crate) fn response_fault(&self, fault: &ResponseFault) -> ProviderError {
        let origin = &self.origin;
        match fault {
            ResponseFault::Malformed(reason) => ProviderError::new(self.broken_response(reason), RetryPolicy::Never),
            ResponseFault::Incomplete(reason) => ProviderError::new(self.broken_response(reason), RetryPolicy::Backoff),
            ResponseFault::Filtered => {
                let message = format!("the content filter of {origin} stopped the response");
                ProviderError::new(self.error(ModelErrorKind::Rejected, message), RetryPolicy::Never)
            }
            ResponseFault::Reported { status, body } => {
                let text = body.to_string();
                let kind = match classify_error(status.unwrap_or(0), &text) {
                    // Whatever the reason, the response is incomplete.
                    ModelErrorKind::Rejected => ModelErrorKind::Broken,
                    kind => kind,
                };
                let excerpt = self.redactor.excerpt(&text);
                let message = format!("{origin} ended its response with an error: {excerpt}");
                ProviderError {
                    model_error: self.error(kind, message),
                    retry: retry_policy(kind, status.unwrap_or(500), &text, None),
                    key_fault: key_fault(kind, status.unwrap_or(0), &text, None),
                }
            }
        }
    }

    fn broken_response(&self, reason: &str) -> ModelError {
        self.error(ModelErrorKind::Broken, format!("broken response from {}: {reason}", self.origin))
    }

    /// Error for a status other than 200; `retry_after` is the delay the provider requested.
    pub(crate) fn error_status(&self, status: u16, body: &str, retry_after: Option<Duration>) -> ProviderError {
        let kind = classify_error(status, body);
        let (model, origin) = (&self.model, &self.origin);
        let reason = match kind {
            ModelErrorKind::Unauthorized => format!("the key was rejected (it is set with {})", self.key_setting_names),
            ModelErrorKind::UnknownModel => format!("model {model:?} or the endpoint does not exist"),
            ModelErrorKind::RateLimited if is_quota_exhausted(status, body, retry_after) => {
                "the paid quota is exhausted".to_owned()
            }
            ModelErrorKind::RateLimited => match retry_after {
                Some(delay) => format!("rate limit reached, retry in {} seconds", delay.as_secs().max(1)),
                None => "rate limit reached, retry later".to_owned(),
            },
            ModelErrorKind::ContextOverflow => format!("the request exceeds the context window of {model:?}"),
            ModelErrorKind::Unreachable => "the service is not available".to_owned(),
            ModelErrorKind::Rejected | ModelErrorKind::Exhausted => "the request was rejected".to_owned(),
            ModelErrorKind::Broken => "the server failed".to_owned(),
        };
        let excerpt = self.redactor.excerpt(body);
        let quoted = if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") };
        let model_error = self.error(kind, format!("{origin} answered {status}, {reason}{quoted}"));
        let key_fault = key_fault(kind, status, body, retry_after);
        ProviderError { model_error, retry: retry_policy(kind, status, body, retry_after), key_fault }
    }

    /// Error for an endpoint that redirects to `location`. Redirects are not followed, and a retry would get the same one.
    pub(crate) fn redirected(&self, status: u16, location: Option<&Url>) -> ProviderError {
        let (origin, hint) = (&self.origin, self.base_url_hint());
        let target = location
            .map(|location| format!(": {}", self.redactor.excerpt(&displayable_url(location))))
            .unwrap_or_default();
        let message = format!("{origin} answered {status}, the endpoint has moved{target} ({hint})");
        ProviderError::new(self.error(ModelErrorKind::Unreachable, message), RetryPolicy::Never)
    }

    /// Error for an HTML page in place of a response. Another base URL may help, a retry does not.
    pub(crate) fn html_response(&self) -> ProviderError {
        let (origin, hint) = (&self.origin, self.base_url_hint());
        let message = format!("{origin} answered with an HTML page instead of the provider's protocol ({hint})");
        ProviderError::new(self.error(ModelErrorKind::Unreachable, message), RetryPolicy::Never)
    }

    fn base_url_hint(&self) -> String {
        format!("the base URL is set with {}", self.base_url_setting_names)
    }

    /// Error for a connection that failed before there was a response.
    pub(crate) fn connection_failed(&self, error: &reqwest::Error) -> ProviderError {
        let (problem, retry) = match error {
            error if error.is_builder() => {
                let model_error = self.error(ModelErrorKind::Rejected, "the request could not be built");
                return ProviderError::new(model_error, RetryPolicy::Never);
            }
            error if is_file_limit_error(error) => {
                ("cannot be connected to: this host has too many open files", RetryPolicy::UntilFilesFree)
            }
            error if error.is_timeout() && error.is_connect() => {
                ("did not accept a connection in time", RetryPolicy::Once)
            }
            error if error.is_connect() => describe_connect_error(&error_chain(error)),
            error if error.is_timeout() => ("did not answer in time", RetryPolicy::Never),
            _ => ("closed the connection without an answer", RetryPolicy::Backoff),
        };
        ProviderError::new(self.unreachable(problem), retry)
    }

    /// Error for an HTTP client that could not be built.
    pub(crate) fn client_setup_failed(&self) -> ModelError {
        self.error(ModelErrorKind::Unreachable, "the HTTP client could not be set up")
    }

    /// Error for a key that cannot be sent as a header.
    pub(crate) fn invalid_key(&self) -> ProviderError {
        let message =
            format!("the request could not be built; is the key ({}) a single line of text?", self.key_setting_names);
        let model_error = self.error(ModelErrorKind::Unauthorized, message);
        ProviderError { model_error, retry: RetryPolicy::Never, key_fault: Some(KeyFault::Rejected) }
    }

    /// Error for a configured header that cannot be sent.
    pub(crate) fn invalid_header(&self, name: &str) -> ProviderError {
        let message = format!("the header {name:?} of the configuration is not valid");
        ProviderError::new(self.error(ModelErrorKind::Rejected, message), RetryPolicy::Never)
    }

    /// Error for a response that did not start within `timeout`.
    pub(crate) fn response_timeout(&self, timeout: Duration) -> ProviderError {
        let problem = format!("did not answer within {} seconds", timeout.as_secs());
        ProviderError::new(self.unreachable(&problem), RetryPolicy::Never)
    }

    /// Error for a response that stalled for `timeout`.
    pub(crate) fn stream_timeout(&self, timeout: Duration) -> ModelError {
        self.broken_response(&format!("no data within {} seconds", timeout.as_secs()))
    }

    /// Error for a provider all of whose keys are cooling down. Shown in chats, so it has no address.
    pub(crate) fn keys_cooling(&self, cooldown: &PoolCooldown) -> ModelError {
        keys_cooling_error(&self.provider, cooldown)
    }

    fn unreachable(&self, problem: &str) -> ModelError {
        self.error(ModelErrorKind::Unreachable, format!("{} {problem}", self.origin))
    }
}

/// Error for a provider all of whose keys are cooling down.
pub(crate) fn keys_cooling_error(provider: &str, cooldown: &PoolCooldown) -> ModelError {
    let keys = match cooldown.key.position.count {
        1 => "its key is".to_owned(),
        count => format!("all {count} keys are"),
    };
    let (causes, time) = (&cooldown.causes, cooldown.until.to_utc_seconds());
    let message = format!("{provider}: {keys} cooling down ({causes}); a retry can succeed from {time} on");
    ModelError::new(ModelErrorKind::Exhausted, message).with_retry_at(cooldown.until)
}

/// URL without credentials and without its query, which may hold some too.
fn displayable_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Messages of an error and all its sources.
fn error_chain(error: &reqwest::Error) -> String {
    let first: Option<&dyn std::error::Error> = Some(error);
    let all = std::iter::successors(first, |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Problem and retry policy of a connection that could not be established.
fn describe_connect_error(causes: &str) -> (&'static str, RetryPolicy) {
    if causes.contains("certificate") {
        ("has a certificate that this machine does not trust", RetryPolicy::Never)
    } else if causes.contains("InvalidContentType") {
        // The response of a server without TLS, as seen by a TLS client.
        ("does not speak TLS; should its URL start with http:// instead of https://?", RetryPolicy::Never)
    } else if causes.contains("dns error") {
        ("could not be found: no such host, or no network", RetryPolicy::Once)
    } else {
        // A server that is not listening will hardly start within seconds.
        ("could not be reached", RetryPolicy::Once)
    }
}

/// Retry policy for an error of this kind.
fn retry_policy(kind: ModelErrorKind, status: u16, body: &str, retry_after: Option<Duration>) -> RetryPolicy {
    match kind {
        ModelErrorKind::RateLimited if is_quota_exhausted(status, body, retry_after) => RetryPolicy::Never,
        ModelErrorKind::RateLimited | ModelErrorKind::Unreachable | ModelErrorKind::Broken if status != 501 => {
            RetryPolicy::Backoff
        }
        _ => RetryPolicy::Never,
    }
}

/// Reason why the key was refused, if it is at fault. A provider that is overloaded refuses every key.
fn key_fault(kind: ModelErrorKind, status: u16, body: &str, retry_after: Option<Duration>) -> Option<KeyFault> {
    match kind {
        ModelErrorKind::RateLimited if status == 529 || body.contains("overloaded_error") => None,
        ModelErrorKind::RateLimited if is_quota_exhausted(status, body, retry_after) => Some(KeyFault::QuotaExhausted),
        ModelErrorKind::RateLimited => Some(KeyFault::RateLimited),
        ModelErrorKind::Unauthorized if status == 403 => Some(KeyFault::Forbidden),
        ModelErrorKind::Unauthorized => Some(KeyFault::Rejected),
        _ => None,
    }
}

/// True for a limit that waiting does not lift. Gemini mentions plan and billing for per-minute limits too, so such words
/// are not enough, and a provider that names a retry delay expects a retry, not a payment.
fn is_quota_exhausted(status: u16, body: &str, retry_after: Option<Duration>) -> bool {
    let markers = [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit balance",
        "insufficient credits",
    ];
    retry_after.is_none() && (status == 402 || markers.iter().any(|marker| body.contains(marker)))
}

/// Kind of an error response. Unambiguous statuses come first; a message about length decides only for the others, since
/// rate limits mention tokens too.
fn classify_error(status: u16, body: &str) -> ModelErrorKind {
    match status {
        401 | 403 => ModelErrorKind::Unauthorized,
        // Gemini reports an invalid key as 400.
        400 if body.contains("API_KEY_INVALID") || body.contains("API key not valid") => ModelErrorKind::Unauthorized,
        404 => ModelErrorKind::UnknownModel,
        402 | 429 | 529 => ModelErrorKind::RateLimited,
        // A proxy may send it without a message.
        413 => ModelErrorKind::ContextOverflow,
        _ if is_context_overflow(body) => ModelErrorKind::ContextOverflow,
        _ if body.contains("model_not_found") || body.contains("not a valid model") => ModelErrorKind::UnknownModel,
        // Anthropic reports an exhausted quota as 400.
        400 if body.contains("credit balance") => ModelErrorKind::RateLimited,
        408 | 502..=504 => ModelErrorKind::Unreachable,
        500..=599 => ModelErrorKind::Broken,
        _ => ModelErrorKind::Rejected,
    }
}

fn is_context_overflow(body: &str) -> bool {
    let body = body.to_lowercase().replace(['_', '-'], " ");
    let markers = [
        "context length",
        "maximum context",
        "context window",
        "context size",
        "token limit",
        "too many tokens",
        "maximum number of tokens",
        "prompt too long",
        "prompt is too long",
        "input is too long",
        "exceed context limit",
        "maximum prompt length",
        "prompt token count",
        "reduce the length of the messages",
        "request too large",
        "payload size exceeds",
        "payload too large",
        "body too large",
        "entity too large",
        "body is too large",
        "exceeds the maximum size",
        "maximum request size",
    ];
    markers.iter().any(|marker| body.contains(marker))
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::ModelErrorKind::{
        Broken, ContextOverflow, RateLimited, Rejected, Unauthorized, UnknownModel, Unreachable,
    };

    use std::time::Duration;

    use jiff::Timestamp;
    use reqwest::header::HeaderMap;

    use super::{classify_error, describe_connect_error, key_fault, retry_policy};
    use crate::key_pool::KeyFault;
    use crate::retry::{self, RetryPolicy};

    #[test]
    fn status_determines_the_error_kind() {
        let cases = [
            (400, Rejected),
            (401, Unauthorized),
            (402, RateLimited),
            (403, Unauthorized),
            (404, UnknownModel),
            (408, Unreachable),
            (413, ContextOverflow),
            (422, Rejected),
            (429, RateLimited),
            (500, Broken),
            (502, Unreachable),
            (503, Unreachable),
            (504, Unreachable),
            (529, RateLimited),
        ];
        for (status, kind) in cases {
            assert_eq!(classify_error(status, "{}"), kind, "{status}");
        }
    }

    #[test]
    fn a02_length_errors_of_all_providers_are_recognised() {
        for message in [
            "This model's maximum context length is 8192 tokens",
            r#"{"code": "context_length_exceeded"}"#,
            "the request exceeds the available context size, try increasing it",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "Prompt too long",
            "exceeded the Token Limit",
            "input exceeds the context window of this model",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            r#"{"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}"#,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "prompt too long; exceeded max context length by 12 tokens",
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            "Please reduce the length of the messages or completion.",
            "Request payload size exceeds the limit: 20971520 bytes.",
            "request body too large, limit is 4194304 bytes",
            "Request Entity Too Large",
            "The request body is too large and exceeds the maximum permissible limit.",
        ] {
            assert_eq!(classify_error(400, message), ContextOverflow, "{message}");
        }
    }

    #[test]
    fn rate_limit_that_mentions_tokens_is_no_context_overflow() {
        assert_eq!(classify_error(429, "token limit per minute reached"), RateLimited);
    }

    #[test]
    fn rejected_key_is_recognised_in_a_400_response() {
        let body = r#"{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}"#;
        assert_eq!(classify_error(400, body), Unauthorized);
    }

    #[test]
    fn connection_errors_name_their_cause() {
        let problem = |causes| describe_connect_error(causes).0;
        assert!(problem("client error (Connect): invalid peer certificate: UnknownIssuer").contains("certificate"));
        assert!(problem("client error (Connect): dns error: failed to lookup").contains("no such host"));
        assert_eq!(problem("tcp connect error: Connection refused"), "could not be reached");
        assert!(
            problem("client error (Connect): received corrupt message of type InvalidContentType").contains("http://")
        );
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        assert_eq!(retry_policy(RateLimited, 429, "slow down", None), RetryPolicy::Backoff);
        assert_eq!(retry_policy(RateLimited, 429, r#"{"code": "insufficient_quota"}"#, None), RetryPolicy::Never);
        assert_eq!(
            retry_policy(RateLimited, 429, r#"{"code": "billing_hard_limit_reached"}"#, None),
            RetryPolicy::Never
        );
        assert_eq!(retry_policy(RateLimited, 402, "", None), RetryPolicy::Never);
        assert_eq!(retry_policy(Unreachable, 503, "", None), RetryPolicy::Backoff);
        assert_eq!(retry_policy(Broken, 500, "", None), RetryPolicy::Backoff);
        for kind in [Rejected, Unauthorized, UnknownModel, ContextOverflow] {
            assert_eq!(retry_policy(kind, 400, "", None), RetryPolicy::Never, "{kind:?}");
        }
    }

    #[test]
    fn a08_per_minute_limit_that_mentions_billing_is_retried() {
        let quota = r#"{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
            {"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier", "quotaValue": "250000"}
        ]}"#;
        let body = |details: &str| {
            let message = "You exceeded your current quota, please check your plan and billing details.";
            let error = format!(r#""code": 429, "message": "{message}", "status": "RESOURCE_EXHAUSTED""#);
            format!(r#"{{"error": {{{error}, "details": [{details}]}}}}"#)
        };
        assert_eq!(retry_policy(RateLimited, 429, &body(quota), None), RetryPolicy::Backoff);
        let info = r#"{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"}"#;
        let body = body(&format!("{quota}, {info}"));
        let retry_after = retry::parse_retry_advice(&HeaderMap::new(), &body, Timestamp::UNIX_EPOCH).after;
        assert_eq!(retry_after, Some(Duration::from_secs(26)));
        assert_eq!(retry_policy(RateLimited, 429, &body, retry_after), RetryPolicy::Backoff);
        let both = r#"{"error": {"code": "insufficient_quota"}}"#;
        assert_eq!(
            retry_policy(RateLimited, 429, both, retry_after),
            RetryPolicy::Backoff,
            "a requested delay takes precedence"
        );
    }

    #[test]
    fn a08_only_refusals_of_the_key_cool_it_down() {
        let fault = |status, body: &str| key_fault(classify_error(status, body), status, body, None);
        let quota = r#"{"error": {"code": "insufficient_quota"}}"#;
        for (status, body, expected) in [
            (401, "", Some(KeyFault::Rejected)),
            (400, "API key not valid", Some(KeyFault::Rejected)),
            (403, "", Some(KeyFault::Forbidden)),
            (429, "", Some(KeyFault::RateLimited)),
            (429, quota, Some(KeyFault::QuotaExhausted)),
            (402, "", Some(KeyFault::QuotaExhausted)),
            (400, "Your credit balance is too low", Some(KeyFault::QuotaExhausted)),
        ] {
            assert_eq!(fault(status, body), expected, "{status} {body}");
        }
        for status in [400, 404, 408, 413, 422, 500, 502, 503, 504, 529] {
            assert_eq!(fault(status, ""), None, "{status}");
        }
        assert_eq!(key_fault(RateLimited, 0, r#"{"type": "overloaded_error"}"#, None), None, "within a stream");
    }

    #[test]
    fn unknown_model_is_recognised_by_its_code() {
        assert_eq!(classify_error(400, r#"{"error": {"code": "model_not_found"}}"#), UnknownModel);
        assert_eq!(classify_error(400, r#"{"error": {"message": "x/y is not a valid model ID"}}"#), UnknownModel);
        assert_eq!(classify_error(400, "Your credit balance is too low to access the API."), RateLimited);
    }
}
