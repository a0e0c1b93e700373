//! How deep what runners and tools hand over may be nested.

use capstan_protocol::{ApiError, ApiErrorCode, Content, ContentPart, JsonObject, ToolCall, ToolOutput};
use capstan_tape::is_deeper_than;
use serde_json::Value;

/// How deep it may be: less than a tape takes, since the host puts it into what it writes.
pub(crate) const MAX_RUNNER_NESTING: usize = 100;
const _: () = assert!(MAX_RUNNER_NESTING + 10 < capstan_tape::MAX_NESTING_DEPTH, "the host puts some levels around it");

/// Something that may be nested.
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
        let is_deep = |part: &ContentPart| match part {
            ContentPart::Known(_) => false,
            ContentPart::Other(fields) => fields.is_too_deep(),
        };
        match self {
            Self::Text(_) => false,
            Self::Parts(parts) => parts.iter().any(is_deep),
        }
    }
}

impl NestingLimit for ToolCall {
    fn is_too_deep(&self) -> bool {
        self.extra.is_too_deep()
    }
}

/// Refuses what could not be read back.
pub(crate) fn check_nesting(what: &impl NestingLimit) -> Result<(), ApiError> {
    if what.is_too_deep() { Err(ApiError::new(ApiErrorCode::InvalidArgument, nesting_error_message())) } else { Ok(()) }
}

/// Why something is refused, or left out.
pub(crate) fn nesting_error_message() -> String {
    format!("it is nested deeper than {MAX_RUNNER_NESTING} levels")
}

/// The output of a tool, as far as it can be read back.
pub(crate) fn replace_deep_output(output: ToolOutput) -> ToolOutput {
    if output.content.is_too_deep() {
        return ToolOutput::error(format!("the answer was left out: {}", nesting_error_message()));
    }
    output
}
