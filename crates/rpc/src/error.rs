//! Errors of requests, and the reasons why a connection ends.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Codes of errors, as the plugin protocol defines them.
pub mod error_code {
    /// Not a valid message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Unknown method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Params of another form.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Failure of the code that serves the request.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Failure of the operation, described by `data`.
    pub const FAILED: i64 = -32000;
    /// Cancelled by the caller or with its run.
    pub const CANCELLED: i64 = -32001;
    /// The time of the request is over.
    pub const DEADLINE_EXCEEDED: i64 = -32002;
    /// Too many requests at a time.
    pub const OVERLOADED: i64 = -32003;
    /// Before `initialize` or after `shutdown`.
    pub const NOT_READY: i64 = -32004;
    /// No such run or call.
    pub const UNKNOWN_RUN: i64 = -32005;
    /// The request or the answer exceeds a limit.
    pub const TOO_LARGE: i64 = -32006;
}

/// Maximum length of an error message, in bytes.
const MAX_MESSAGE_LEN: usize = 2048;

/// Error that answers a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Code of the error.
    pub code: i64,
    /// Description, on one line.
    #[serde(default)]
    pub message: String,
    /// Details, by method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// Error without details.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        let mut message = message.into();
        capstan_protocol::truncate_bytes(&mut message, MAX_MESSAGE_LEN, "...");
        Self { code, message, data: None }
    }

    /// Error with details.
    pub fn with_data(self, data: &impl Serialize) -> Self {
        Self { data: serde_json::to_value(data).ok(), ..self }
    }

    /// Error for an unknown method.
    pub fn method_not_found(method: &str) -> Self {
        let shown: String = method.chars().take(64).collect();
        Self::new(error_code::METHOD_NOT_FOUND, format!("unknown method {shown:?}"))
    }

    /// Error for params of another form.
    pub fn invalid_params(reason: impl fmt::Display) -> Self {
        Self::new(error_code::INVALID_PARAMS, reason.to_string())
    }
}

/// Failure of a request to the other side.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RpcCallError {
    /// The other side answered with an error.
    #[error("{0}")]
    Remote(RpcError),
    /// The result has another form than the method's.
    #[error("the result of {method} cannot be read: {reason}")]
    Malformed {
        /// The method.
        method: &'static str,
        /// Description of the problem.
        reason: String,
    },
    /// No answer came in time.
    #[error("no answer in time")]
    DeadlineExceeded,
    /// The request exceeds a limit of the other side. It was not sent.
    #[error("the request exceeds the frame limit")]
    TooLarge,
    /// The connection ended.
    #[error("{0}")]
    Closed(RpcCloseReason),
}

/// Reason why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcCloseReason {
    /// The other side closed its output.
    InputEnded,
    /// The input cannot be read.
    ReadFailed(String),
    /// The output cannot be written.
    WriteFailed(String),
    /// The other side does not read.
    Stalled,
    /// The other side sent too many lines that are no messages.
    BadLines(String),
    /// Closed by this side.
    Closed(String),
}

impl fmt::Display for RpcCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputEnded => f.write_str("it closed its output"),
            Self::ReadFailed(error) => write!(f, "its output cannot be read: {error}"),
            Self::WriteFailed(error) => write!(f, "its input cannot be written: {error}"),
            Self::Stalled => f.write_str("it does not read its input"),
            Self::BadLines(last) => write!(f, "it sent too many lines that are no messages, the last one {last}"),
            Self::Closed(reason) => f.write_str(reason),
        }
    }
}
