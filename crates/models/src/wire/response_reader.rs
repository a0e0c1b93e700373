//! Response reading shared by all protocols.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::Value;

use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;

/// Decodes one response, frame by frame.
pub(crate) trait ResponseReader: Send {
    /// Decodes a frame and appends its events.
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault>;

    /// True once a tool call has started. Calls are emitted when complete, but a started call counts as output.
    fn has_started_call(&self) -> bool;

    /// Handles the end of the frames and returns the remaining events, the stop last. Fails if the response named no reason
    /// for its end, because it is then incomplete.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault>;
}

/// Effect of a frame on the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameProgress {
    /// Keep-alive without content.
    KeepAlive,
    /// More frames follow.
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
    serde_json::from_str(data).map_err(|_| ResponseFault::Malformed("a frame is not JSON"))
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
