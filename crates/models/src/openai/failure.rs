//! What went wrong, in our own words.
//!
//! The messages of genai are never shown: one of them holds the whole request.

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use genai::webc::StreamTimeout;
use serde_json::Value;

use super::redact::Redactor;

/// What an error message needs to know of the call.
pub(super) struct Call {
    /// The model's name at the provider.
    pub model: String,
    /// Scheme, host and port of the endpoint.
    pub origin: String,
    /// What must not be in a message.
    pub redactor: Redactor,
}

impl Call {
    /// The error for what genai reports.
    pub(super) fn failure(&self, error: &genai::Error) -> ModelError {
        match error {
            genai::Error::HttpError { status, body, .. } => self.refused(status.as_u16(), body),
            genai::Error::WebStream { error, .. } => self.transport_failure(error.as_ref()),
            genai::Error::ChatResponse { body, .. } => self.error_in_stream(body),
            genai::Error::StreamParse { .. } => self.broken("it sent something that is not JSON"),
            genai::Error::ClientBuildFail { .. } => {
                ModelError::new(ModelErrorKind::Unreachable, "openai: the HTTP client could not be set up")
            }
            _ => ModelError::new(ModelErrorKind::Rejected, "openai: the request could not be built"),
        }
    }

    /// The stream broke off or made no sense.
    pub(super) fn broken(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Broken, format!("openai: the answer of {} broke off: {what}", self.origin))
    }

    /// The provider's filter ended the answer.
    pub(super) fn filtered(&self) -> ModelError {
        let message = format!("openai: the content filter of {} stopped the answer", self.origin);
        ModelError::new(ModelErrorKind::Rejected, message)
    }

    fn refused(&self, status: u16, body: &str) -> ModelError {
        let kind = kind_of(status, body);
        let (model, origin) = (&self.model, &self.origin);
        let what = match kind {
            ModelErrorKind::Unauthorized => "the key was refused (it is set with CAPSTAN_API_KEY)".to_owned(),
            ModelErrorKind::UnknownModel => format!("there is no model {model:?}, or no chat endpoint"),
            ModelErrorKind::RateLimited => "it asks to come back later".to_owned(),
            ModelErrorKind::ContextOverflow => format!("the request is longer than {model:?} takes"),
            ModelErrorKind::Unreachable => "it is not available".to_owned(),
            ModelErrorKind::Rejected | ModelErrorKind::Broken => "the request was refused".to_owned(),
        };
        let excerpt = self.redactor.excerpt(body);
        let said = if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") };
        ModelError::new(kind, format!("openai: {origin} answered {status}, {what}{said}"))
    }

    fn error_in_stream(&self, body: &Value) -> ModelError {
        let text = body.to_string();
        let status = body["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let kind = match kind_of(status.unwrap_or(0), &text) {
            // Whatever it was, what came so far is half an answer.
            ModelErrorKind::Rejected => ModelErrorKind::Broken,
            kind => kind,
        };
        let excerpt = self.redactor.excerpt(&text);
        ModelError::new(kind, format!("openai: {} broke off its answer with an error: {excerpt}", self.origin))
    }

    fn transport_failure(&self, error: &(dyn std::error::Error + 'static)) -> ModelError {
        if let Some(inner) = error.downcast_ref::<genai::Error>() {
            return self.failure(inner);
        }
        if let Some(timeout) = error.downcast_ref::<StreamTimeout>() {
            return match timeout {
                StreamTimeout::Headers => self.unreachable("did not answer in time"),
                StreamTimeout::Read => self.broken("nothing more came in time"),
            };
        }
        match error.downcast_ref::<reqwest::Error>() {
            Some(error) if error.is_builder() => {
                let message = "openai: the request could not be built; is the key (CAPSTAN_API_KEY) one line of text?";
                ModelError::new(ModelErrorKind::Unauthorized, message)
            }
            Some(error) if error.is_timeout() && error.is_connect() => {
                self.unreachable("did not accept a connection in time")
            }
            Some(error) if error.is_connect() => self.unreachable("could not be connected to"),
            Some(error) if error.is_timeout() => self.unreachable("did not answer in time"),
            Some(error) if error.is_request() => self.unreachable("closed the connection without an answer"),
            Some(_) => self.broken("the connection was lost"),
            None => self.broken("it sent something that is not text"),
        }
    }

    fn unreachable(&self, what: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Unreachable, format!("openai: {} {what}", self.origin))
    }
}

/// The kind of a refusal. What a status says plainly comes first; a message about length counts for the others, since
/// a rate limit speaks of tokens too.
fn kind_of(status: u16, body: &str) -> ModelErrorKind {
    match status {
        401 | 403 => ModelErrorKind::Unauthorized,
        404 => ModelErrorKind::UnknownModel,
        429 | 529 => ModelErrorKind::RateLimited,
        _ if is_about_length(body) => ModelErrorKind::ContextOverflow,
        _ if body.contains("model_not_found") => ModelErrorKind::UnknownModel,
        408 | 502..=504 => ModelErrorKind::Unreachable,
        500..=599 => ModelErrorKind::Broken,
        _ => ModelErrorKind::Rejected,
    }
}

fn is_about_length(body: &str) -> bool {
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
    ];
    signs.iter().any(|sign| body.contains(sign))
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::ModelErrorKind::{
        Broken, ContextOverflow, RateLimited, Rejected, Unauthorized, UnknownModel, Unreachable,
    };

    use super::kind_of;

    #[test]
    fn a_status_says_what_kind_of_failure_it_is() {
        let cases = [
            (400, Rejected),
            (401, Unauthorized),
            (403, Unauthorized),
            (404, UnknownModel),
            (408, Unreachable),
            (422, Rejected),
            (429, RateLimited),
            (500, Broken),
            (502, Unreachable),
            (503, Unreachable),
            (504, Unreachable),
            (529, RateLimited),
        ];
        for (status, kind) in cases {
            assert_eq!(kind_of(status, "{}"), kind, "{status}");
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
        ] {
            assert_eq!(kind_of(400, message), ContextOverflow, "{message}");
        }
    }

    #[test]
    fn a_rate_limit_that_speaks_of_tokens_stays_one() {
        assert_eq!(kind_of(429, "token limit per minute reached"), RateLimited);
    }

    #[test]
    fn an_unknown_model_is_known_by_its_code_too() {
        assert_eq!(kind_of(400, r#"{"error": {"code": "model_not_found"}}"#), UnknownModel);
    }
}
