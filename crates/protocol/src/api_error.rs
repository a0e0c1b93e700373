//! How the host refuses a runner.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::FailureCode;

/// An answer of the run API that is not a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// What kind of refusal it is.
    pub code: ApiErrorCode,
    /// What happened, fit to be shown.
    pub message: String,
    /// Whether the same call may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// A stable code of the cause, where there is one (`model-unreachable`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCode>,
}

impl ApiError {
    /// A refusal that will not change by asking again.
    pub fn new(code: ApiErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, cause: None }
    }

    /// The same refusal, naming its cause.
    pub fn with_cause(self, cause: impl Into<FailureCode>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiErrorCode {
    /// The grant does not cover it.
    Unauthorized,
    /// There is no such thing.
    NotFound,
    /// The run's time is up, or it was cancelled.
    DeadlineExceeded,
    /// More than the host takes.
    PayloadTooLarge,
    /// Too often.
    RateLimited,
    /// The call makes no sense.
    InvalidArgument,
    /// The host or the provider failed.
    RuntimeError,
}

impl fmt::Display for ApiErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::PayloadTooLarge => "payload_too_large",
            Self::RateLimited => "rate_limited",
            Self::InvalidArgument => "invalid_argument",
            Self::RuntimeError => "runtime_error",
        })
    }
}
