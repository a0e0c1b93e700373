//! How deep what runners and tools hand over may be nested.

use capstan_protocol::{ApiError, ApiErrorCode, Content, ContentPart, Map, ToolCall, ToolOutput};
use capstan_tape::is_deeper;
use serde_json::Value;

/// How deep it may be: less than a tape takes, since the host puts it into what it writes.
pub(crate) const DEEPEST: usize = 100;
const _: () = assert!(DEEPEST + 10 < capstan_tape::DEEPEST, "the host puts some levels around it");

/// Something that may be nested.
pub(crate) trait Nested {
    fn is_too_deep(&self) -> bool;
}

impl Nested for Value {
    fn is_too_deep(&self) -> bool {
        is_deeper(self, DEEPEST)
    }
}

impl Nested for Map {
    fn is_too_deep(&self) -> bool {
        self.values().any(|value| is_deeper(value, DEEPEST - 1))
    }
}

impl Nested for Content {
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

impl Nested for ToolCall {
    fn is_too_deep(&self) -> bool {
        self.extra.is_too_deep()
    }
}

/// Refuses what could not be read back.
pub(crate) fn check(what: &impl Nested) -> Result<(), ApiError> {
    if what.is_too_deep() { Err(ApiError::new(ApiErrorCode::InvalidArgument, reason())) } else { Ok(()) }
}

/// Why something is refused, or left out.
pub(crate) fn reason() -> String {
    format!("it is nested deeper than {DEEPEST} levels")
}

/// The output of a tool, as far as it can be read back.
pub(crate) fn answer(output: ToolOutput) -> ToolOutput {
    if output.content.is_too_deep() {
        return ToolOutput::error(format!("the answer was left out: {}", reason()));
    }
    output
}
