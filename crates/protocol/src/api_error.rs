//! Errors of the run API.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::FailureCode;

/// Error response of the run API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// Kind of error.
    pub code: ApiErrorCode,
    /// Description that may be shown to users.
    pub message: String,
    /// True if the same call may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// Stable code of the cause, if there is one (`model-unreachable`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCode>,
}

impl ApiError {
    /// Error that a retry does not resolve.
    pub fn new(code: ApiErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, cause: None }
    }

    /// Adds the code of the cause.
    pub fn with_cause(self, cause: impl Into<FailureCode>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }
}

/// Kinds of run-API errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiErrorCode {
    /// The grant does not cover the call.
    Unauthorized,
    /// The requested object does not exist.
    NotFound,
    /// The run timed out or was cancelled.
    DeadlineExceeded,
    /// The request or response exceeds a size limit.
    PayloadTooLarge,
    /// The call exceeds a rate limit.
    RateLimited,
    /// The arguments are invalid.
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
