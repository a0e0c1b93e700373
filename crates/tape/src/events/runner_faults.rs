//! Data of the events about rejected calls and results of a runner.

use capstan_protocol::ApiErrorCode;
use serde::{Deserialize, Serialize};

/// Refused calls of the run API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ApiRefusal {
    /// One call.
    Call {
        /// Method that was called.
        method: String,
        /// Code of the error.
        code: ApiErrorCode,
        /// Beginning of the error message.
        detail: String,
    },
    /// Calls beyond the limit of individual records, counted at the end of the run.
    Unrecorded {
        /// Number of calls.
        more: u64,
    },
}

/// A result of a runner that was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedResult {
    /// Type of the result.
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason, as text.
    pub reason: String,
}

/// Anomalies among the results of a run, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultAnomalies {
    /// Results of an unknown type.
    pub unknown: u64,
    /// Results whose fields do not match their type.
    pub malformed: u64,
    /// Results with a repeated or lower sequence number.
    pub duplicates: u64,
    /// Gaps in the sequence numbers.
    pub gaps: u64,
    /// Results larger than the host accepts.
    pub too_large: u64,
    /// Results that the grant does not cover, or that cannot be applied.
    pub refused: u64,
    /// Results after the one that ended the run, as far as they were available.
    pub after_end: u64,
}
