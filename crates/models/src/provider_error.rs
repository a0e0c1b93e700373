//! What went wrong, in our own words.

use std::time::Duration;

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use reqwest::Url;
use serde_json::Value;

use crate::error_redactor::ErrorRedactor;
use crate::retry::RetryPolicy;

/// What an error message needs to know of the call.
#[derive(Clone)]
pub(crate) struct CallContext {
    /// The name of the provider.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// Scheme, host and port of the endpoint.
    pub origin: String,
    /// Where a key is set.
    pub key_setting_names: String,
    /// Where the address is set.
    pub base_url_setting_names: String,
    /// What must not be in a message.
    pub redactor: ErrorRedactor,
}

/// Why an answer makes no sense, as the reader of a wire says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResponseFault {
    /// It is not what the provider's documentation says.
    Malformed(&'static str),
    /// It ended before it was complete.
    Incomplete(&'static str),
    /// The provider broke it off with an error.
    Reported {
        /// The status that stands for the error, where it names one.
        status: Option<u16>,
        /// The error itself.
        body: Value,
    },
    /// The provider's filter ended it.
    Filtered,
}

/// A failure, and whether it may help to try again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProviderError {
    pub model_error: ModelError,
    pub retry: RetryPolicy,
}

impl CallContext {
    fn error(&self, kind: ModelErrorKind, what: impl std::fmt::Display) -> ModelError {
        ModelError::new(kind, format!("{}: {what}", self.provider))
    }

    /// The error for an answer that makes no sense.
    pub(crate) fn response_fault(&self, fault: &ResponseFault) -> ProviderError {
        let origin = &self.origin;
        match fault {
            ResponseFault::Malformed(what) => {
                ProviderError { model_error: self.broken_response(what), retry: RetryPolicy::Never }
            }
            ResponseFault::Incomplete(what) => {
                ProviderError { model_error: self.broken_response(what), retry: RetryPolicy::Backoff }
            }
            ResponseFault::Filtered => {
                let what = format!("the content filter of {origin} stopped the answer");
                ProviderError { model_error: self.error(ModelErrorKind::Rejected, what), retry: RetryPolicy::Never }
            }
            ResponseFault::Reported { status, body } => {
                let text = body.to_string();
                let kind = match classify_error(status.unwrap_or(0), &text) {
                    // Whatever it was, what came so far is half an answer.
                    ModelErrorKind::Rejected => ModelErrorKind::Broken,
                    kind => kind,
                };
                let excerpt = self.redactor.excerpt(&text);
                let what = format!("{origin} broke off its answer with an error: {excerpt}");
                ProviderError {
                    model_error: self.error(kind, what),
                    retry: retry_policy(kind, status.unwrap_or(500), &text, None),
                }
            }
        }
    }

    fn broken_response(&self, what: &str) -> ModelError {
        self.error(ModelErrorKind::Broken, format!("the answer of {} broke off: {what}", self.origin))
    }

    /// The error for a status other than 200; `asked` is after how long the provider wants to be asked again.
    pub(crate) fn error_status(&self, status: u16, body: &str, asked: Option<Duration>) -> ProviderError {
        let kind = classify_error(status, body);
        let (model, origin) = (&self.model, &self.origin);
        let what = match kind {
            ModelErrorKind::Unauthorized => format!("the key was refused (it is set with {})", self.key_setting_names),
            ModelErrorKind::UnknownModel => format!("there is no model {model:?}, or no such endpoint"),
            ModelErrorKind::RateLimited if is_quota_exhausted(status, body, asked) => {
                "nothing is left of what was paid for".to_owned()
            }
            ModelErrorKind::RateLimited => match asked {
                Some(asked) => format!("it asks to come back in {} seconds", asked.as_secs().max(1)),
                None => "it asks to come back later".to_owned(),
            },
            ModelErrorKind::ContextOverflow => format!("the request is longer than {model:?} takes"),
            ModelErrorKind::Unreachable => "it is not available".to_owned(),
            ModelErrorKind::Rejected => "the request was refused".to_owned(),
            ModelErrorKind::Broken => "it failed".to_owned(),
        };
        let excerpt = self.redactor.excerpt(body);
        let said = if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") };
        let error = self.error(kind, format!("{origin} answered {status}, {what}{said}"));
        ProviderError { model_error: error, retry: retry_policy(kind, status, body, asked) }
    }

    /// The error for an endpoint that is elsewhere; `location` is where, if that is told. It is not followed, and is there the
    /// next time too.
    pub(crate) fn redirected(&self, status: u16, location: Option<&Url>) -> ProviderError {
        let (origin, set) = (&self.origin, self.base_url_hint());
        let at = location
            .map(|location| format!(": {}", self.redactor.excerpt(&displayable_url(location))))
            .unwrap_or_default();
        let what = format!("{origin} answered {status}, the endpoint is elsewhere{at} ({set})");
        ProviderError { model_error: self.error(ModelErrorKind::Unreachable, what), retry: RetryPolicy::Never }
    }

    /// The error for a page in place of an answer: another address will do, and the same one will not.
    pub(crate) fn html_response(&self) -> ProviderError {
        let (origin, set) = (&self.origin, self.base_url_hint());
        let what = format!("{origin} answered with a page for people, not in the provider's protocol ({set})");
        ProviderError { model_error: self.error(ModelErrorKind::Unreachable, what), retry: RetryPolicy::Never }
    }

    fn base_url_hint(&self) -> String {
        format!("the address is set with {}", self.base_url_setting_names)
    }

    /// The error for a connection that failed before there was an answer.
    pub(crate) fn connection_failed(&self, error: &reqwest::Error) -> ProviderError {
        let (what, again) = match error {
            error if error.is_builder() => {
                let error = self.error(ModelErrorKind::Rejected, "the request could not be built");
                return ProviderError { model_error: error, retry: RetryPolicy::Never };
            }
            error if error.is_timeout() && error.is_connect() => {
                ("did not accept a connection in time", RetryPolicy::Once)
            }
            error if error.is_connect() => describe_connect_error(&error_chain(error)),
            error if error.is_timeout() => ("did not answer in time", RetryPolicy::Never),
            _ => ("closed the connection without an answer", RetryPolicy::Backoff),
        };
        ProviderError { model_error: self.unreachable(what), retry: again }
    }

    /// The error for a client that could not be made.
    pub(crate) fn client_setup_failed(&self) -> ModelError {
        self.error(ModelErrorKind::Unreachable, "the HTTP client could not be set up")
    }

    /// The error for a key that cannot be sent.
    pub(crate) fn invalid_key(&self) -> ModelError {
        let what = format!("the request could not be built; is the key ({}) one line of text?", self.key_setting_names);
        self.error(ModelErrorKind::Unauthorized, what)
    }

    /// The error for settings that cannot be sent.
    pub(crate) fn invalid_header(&self, name: &str) -> ModelError {
        self.error(ModelErrorKind::Rejected, format!("the header {name:?} of the configuration is not valid"))
    }

    /// The error for an answer that did not begin in time.
    pub(crate) fn response_timeout(&self, waited: Duration) -> ProviderError {
        let what = format!("did not answer within {} seconds", waited.as_secs());
        ProviderError { model_error: self.unreachable(&what), retry: RetryPolicy::Never }
    }

    /// The error for an answer that did not go on in time.
    pub(crate) fn stream_timeout(&self, waited: Duration) -> ModelError {
        self.broken_response(&format!("nothing more came within {} seconds", waited.as_secs()))
    }

    fn unreachable(&self, what: &str) -> ModelError {
        self.error(ModelErrorKind::Unreachable, format!("{} {what}", self.origin))
    }
}

/// An address as it may be shown: without credentials, and without a query, which may hold some too.
fn displayable_url(address: &Url) -> String {
    format!("{}{}", address.origin().ascii_serialization(), address.path())
}

/// What an error and its causes say.
fn error_chain(error: &reqwest::Error) -> String {
    let first: Option<&dyn std::error::Error> = Some(error);
    let all = std::iter::successors(first, |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Why there is no connection.
fn describe_connect_error(causes: &str) -> (&'static str, RetryPolicy) {
    if causes.contains("certificate") {
        ("has a certificate that this machine does not trust", RetryPolicy::Never)
    } else if causes.contains("InvalidContentType") {
        // How the answer of a server without TLS looks to a client that speaks it.
        ("does not speak TLS: is its address one with http:// in place of https://?", RetryPolicy::Never)
    } else if causes.contains("dns error") {
        ("could not be found: there is no such host, or no network", RetryPolicy::Once)
    } else {
        // Who does not listen now will hardly do so in a few seconds.
        ("could not be connected to", RetryPolicy::Once)
    }
}

/// Whether it may help to try again.
fn retry_policy(kind: ModelErrorKind, status: u16, body: &str, asked: Option<Duration>) -> RetryPolicy {
    match kind {
        ModelErrorKind::RateLimited if is_quota_exhausted(status, body, asked) => RetryPolicy::Never,
        ModelErrorKind::RateLimited | ModelErrorKind::Unreachable | ModelErrorKind::Broken if status != 501 => {
            RetryPolicy::Backoff
        }
        _ => RetryPolicy::Never,
    }
}

/// A limit that no waiting lifts. Gemini speaks of plan and billing at the limit of every minute too, so words about
/// money are not enough, and a provider that says when to come back wants no money.
fn is_quota_exhausted(status: u16, body: &str, asked: Option<Duration>) -> bool {
    let signs = [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit balance",
        "insufficient credits",
    ];
    asked.is_none() && (status == 402 || signs.iter().any(|sign| body.contains(sign)))
}

/// The kind of a refusal. What a status says plainly comes first; a message about length counts for the others, since
/// a rate limit speaks of tokens too.
fn classify_error(status: u16, body: &str) -> ModelErrorKind {
    match status {
        401 | 403 => ModelErrorKind::Unauthorized,
        // How Gemini says it.
        400 if body.contains("API_KEY_INVALID") || body.contains("API key not valid") => ModelErrorKind::Unauthorized,
        404 => ModelErrorKind::UnknownModel,
        402 | 429 | 529 => ModelErrorKind::RateLimited,
        // A proxy may have no words for it.
        413 => ModelErrorKind::ContextOverflow,
        _ if is_context_overflow(body) => ModelErrorKind::ContextOverflow,
        _ if body.contains("model_not_found") || body.contains("not a valid model") => ModelErrorKind::UnknownModel,
        // How Anthropic says that nothing is left.
        400 if body.contains("credit balance") => ModelErrorKind::RateLimited,
        408 | 502..=504 => ModelErrorKind::Unreachable,
        500..=599 => ModelErrorKind::Broken,
        _ => ModelErrorKind::Rejected,
    }
}

fn is_context_overflow(body: &str) -> bool {
    let body = body.to_lowercase().replace(['_', '-'], " ");
    let signs = [
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
    ];
    signs.iter().any(|sign| body.contains(sign))
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::ModelErrorKind::{
        Broken, ContextOverflow, RateLimited, Rejected, Unauthorized, UnknownModel, Unreachable,
    };

    use std::time::Duration;

    use jiff::Timestamp;
    use reqwest::header::HeaderMap;

    use super::{classify_error, describe_connect_error, retry_policy};
    use crate::retry::{self, RetryPolicy};

    #[test]
    fn a_status_says_what_kind_of_failure_it_is() {
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
    fn messages_about_length_are_known_as_providers_write_them() {
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
        ] {
            assert_eq!(classify_error(400, message), ContextOverflow, "{message}");
        }
    }

    #[test]
    fn a_rate_limit_that_speaks_of_tokens_stays_one() {
        assert_eq!(classify_error(429, "token limit per minute reached"), RateLimited);
    }

    #[test]
    fn a_refused_key_is_known_also_where_the_status_does_not_say_so() {
        let body = r#"{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}"#;
        assert_eq!(classify_error(400, body), Unauthorized);
    }

    #[test]
    fn why_there_is_no_connection_is_told() {
        let said = |causes| describe_connect_error(causes).0;
        assert!(said("client error (Connect): invalid peer certificate: UnknownIssuer").contains("certificate"));
        assert!(said("client error (Connect): dns error: failed to lookup").contains("no such host"));
        assert_eq!(said("tcp connect error: Connection refused"), "could not be connected to");
        assert!(
            said("client error (Connect): received corrupt message of type InvalidContentType").contains("http://")
        );
    }

    #[test]
    fn what_no_waiting_mends_is_not_tried_again() {
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
    fn a8_a_limit_per_minute_that_speaks_of_billing_is_waited_for() {
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
        let asked = retry::parse_retry_advice(&HeaderMap::new(), &body, Timestamp::UNIX_EPOCH).after;
        assert_eq!(asked, Some(Duration::from_secs(26)));
        assert_eq!(retry_policy(RateLimited, 429, &body, asked), RetryPolicy::Backoff);
        let both = r#"{"error": {"code": "insufficient_quota"}}"#;
        assert_eq!(
            retry_policy(RateLimited, 429, both, asked),
            RetryPolicy::Backoff,
            "who says when to come back is believed"
        );
    }

    #[test]
    fn an_unknown_model_is_known_by_its_code_too() {
        assert_eq!(classify_error(400, r#"{"error": {"code": "model_not_found"}}"#), UnknownModel);
        assert_eq!(classify_error(400, r#"{"error": {"message": "x/y is not a valid model ID"}}"#), UnknownModel);
        assert_eq!(classify_error(400, "Your credit balance is too low to access the API."), RateLimited);
    }
}
