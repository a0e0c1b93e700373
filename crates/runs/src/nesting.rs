//! Nesting limit for data from runners and tools.

use capstan_protocol::{ApiError, ApiErrorCode, Content, ContentPart, JsonObject, ToolCall, ToolOutput};
use capstan_tape::is_deeper_than;
use serde_json::Value;

/// Maximum nesting of such data: less than the limit of a tape, because the host wraps it in entries.
pub(crate) const MAX_RUNNER_NESTING: usize = 100;
const _: () = assert!(MAX_RUNNER_NESTING + 10 < capstan_tape::MAX_NESTING_DEPTH, "entries add some levels");

/// Data with a nesting limit.
pub(crate) trait NestingLimit {
    fn is_too_deep(&self) -> bool;
}

impl NestingLimit for Value {
    fn is_too_deep(&self) -> bool {
        is_deeper_than(self, MAX_RUNNER_NESTING)
    }
}

impl NestingLimit for JsonObject {
    fn is_too_deep(&self) -> bool {
        self.values().any(|value| is_deeper_than(value, MAX_RUNNER_NESTING - 1))
    }
}

impl NestingLimit for Content {
    fn is_too_deep(&self) -> bool {
        let is_part_too_deep = |part: &ContentPart| match part {
            ContentPart::Known(_) => false,
            ContentPart::Other(fields) => fields.is_too_deep(),
        };
        match self {
            Self::Text(_) => false,
            Self::Parts(parts) => parts.iter().any(is_part_too_deep),
        }
    }
}

impl NestingLimit for ToolCall {
    fn is_too_deep(&self) -> bool {
        self.extra.is_too_deep()
    }
}

/// Rejects data that could not be read back from a tape.
pub(crate) fn check_nesting(data: &impl NestingLimit) -> Result<(), ApiError> {
    if data.is_too_deep() { Err(ApiError::new(ApiErrorCode::InvalidArgument, nesting_error_message())) } else { Ok(()) }
}

/// Message of the errors about nesting.
pub(crate) fn nesting_error_message() -> String {
    format!("it is nested deeper than {MAX_RUNNER_NESTING} levels")
}

/// Replaces the output of a tool if it is nested too deeply to be read back.
pub(crate) fn replace_output_if_too_nested(output: ToolOutput) -> ToolOutput {
    if output.content.is_too_deep() {
        return ToolOutput::error(format!("the answer was left out: {}", nesting_error_message()));
    }
    output
}
