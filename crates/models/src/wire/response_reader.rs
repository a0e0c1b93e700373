//! Response reading shared by all protocols.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::Value;

use crate::frame_decoder::WireFrame;
use crate::json_weight;
use crate::provider_error::ResponseFault;

/// Maximum number of tool calls in a response; more are the output of a broken model.
pub(crate) const MAX_REPLY_CALLS: usize = 1_000;

/// Maximum size of the tool calls and the reasoning data of a response, which are held until it ends: several times what
/// the host accepts of a reply.
pub(crate) const MAX_HELD_BYTES: usize = 16 << 20;

/// Maximum memory of a parsed frame.
const MAX_FRAME_MEMORY_BYTES: usize = 256 << 20;

/// Decodes one response, frame by frame.
pub(crate) trait ResponseReader: Send {
    /// Decodes a frame and appends its events.
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault>;

    /// Number of tool calls that have started. Calls are emitted when complete, but a started call counts as output.
    fn call_count(&self) -> usize;

    /// Size of what was read and is emitted only at the end: tool calls, and reasoning data that goes back to the provider.
    fn held_bytes(&self) -> usize;

    /// True once the response named the reason for its end. Only token counts may follow.
    fn has_stop_reason(&self) -> bool;

    /// Handles the end of the frames and returns the remaining events, the stop last. Fails if the response named no reason
    /// for its end, because it is then incomplete.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault>;
}

/// Effect of a frame on the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameProgress {
    /// Keep-alive, or a frame that adds nothing to the response.
    KeepAlive,
    /// The frame adds something to the response, and more frames follow.
    More,
    /// The response is complete.
    Complete,
}

/// Reason for the end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The model finished.
    Completed,
    /// A token limit was reached.
    Truncated,
    /// A content filter intervened.
    Filtered,
}

impl StopReason {
    /// Gives calls without arguments an empty object, since some tools take none. The last call of a truncated response
    /// is left unchanged: its arguments are missing, not empty.
    pub(super) fn fill_missing_arguments(self, calls: &mut [ToolCall]) {
        let truncated = usize::from(self == Self::Truncated);
        let complete = calls.len().saturating_sub(truncated);
        for call in calls[..complete].iter_mut().filter(|call| call.function.arguments.trim().is_empty()) {
            "{}".clone_into(&mut call.function.arguments);
        }
    }

    /// Appends the events that end a response.
    pub(super) fn append_final_events(self, mut events: Vec<ModelEvent>) -> Result<Vec<ModelEvent>, ResponseFault> {
        match self {
            Self::Filtered => return Err(ResponseFault::Filtered),
            Self::Truncated => events.push(ModelEvent::Truncated),
            Self::Completed => {}
        }
        events.push(ModelEvent::Stop);
        Ok(events)
    }
}

/// Parses a frame as JSON.
pub(super) fn parse_json(data: &str) -> Result<Value, ResponseFault> {
    if json_weight::exceeds_memory(data, MAX_FRAME_MEMORY_BYTES) {
        return Err(ResponseFault::Malformed("an event has too many values"));
    }
    let parsed = serde_json::from_str(data).or_else(|_| serde_json::from_str(&replace_lone_surrogates(data)));
    parsed.map_err(|_| ResponseFault::Malformed("a frame is not JSON"))
}

/// Replaces each escaped half of a surrogate pair by U+FFFD: servers that cut text by UTF-16 units split pairs.
fn replace_lone_surrogates(data: &str) -> String {
    let unit_at = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut replaced = String::with_capacity(data.len());
    let mut rest = data;
    while let Some(start) = rest.find('\\') {
        replaced.push_str(&rest[..start]);
        rest = &rest[start..];
        let next_unit = |from: usize| rest.get(from..).and_then(unit_at);
        let len = match unit_at(rest) {
            Some(0xD800..=0xDBFF) if matches!(next_unit(6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => {
                replaced.push('\u{FFFD}');
                rest = &rest[6..];
                continue;
            }
            // The escaped character may be a backslash.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        replaced.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    replaced + rest
}

/// Fault of a response that ended without a reason.
pub(super) const MISSING_STOP_REASON: ResponseFault = ResponseFault::Incomplete("it ended before it was complete");

/// Fault for an error within the stream, with its status if the code is a number.
pub(super) fn reported_fault(error: &Value) -> ResponseFault {
    let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    ResponseFault::Reported { status, body: error.clone() }
}

/// String value, unless it is missing or empty.
pub(super) fn non_empty_str(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}
