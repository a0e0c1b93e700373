//! What reading an answer has in common.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::Value;

use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;

/// Reads one answer, frame by frame.
pub(crate) trait ResponseReader: Send {
    /// Takes a frame in and gives what it says.
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault>;

    /// Whether a call has begun. It is handed on when it is whole, but the provider has spoken.
    fn has_started_call(&self) -> bool;

    /// No more frames come: gives what is left to say, the stop last. An answer that has not said why it ended is cut.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault>;
}

/// How far a frame brought the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameProgress {
    /// Nowhere: it only keeps the connection alive.
    KeepAlive,
    /// Something came.
    More,
    /// It is whole.
    Complete,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The model was done.
    Completed,
    /// It reached a limit of tokens.
    Truncated,
    /// A filter ended it.
    Filtered,
}

impl StopReason {
    /// Gives calls without arguments an empty object, since some tools take none. Only the last call of an answer that
    /// reached its limit stays as it is: it had no time for its arguments.
    pub(super) fn fill_missing_arguments(self, calls: &mut [ToolCall]) {
        let cut = usize::from(self == Self::Truncated);
        let whole = calls.len().saturating_sub(cut);
        for call in calls[..whole].iter_mut().filter(|call| call.function.arguments.trim().is_empty()) {
            "{}".clone_into(&mut call.function.arguments);
        }
    }

    /// The events an answer ends with, after what its wire has left to say.
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

/// A frame as JSON.
pub(super) fn parse_json(data: &str) -> Result<Value, ResponseFault> {
    serde_json::from_str(data).map_err(|_| ResponseFault::Malformed("it sent something that is not JSON"))
}

/// An answer that ended without a reason.
pub(super) const MISSING_STOP_REASON: ResponseFault = ResponseFault::Incomplete("it ended before it was complete");

/// An error in mid-stream; its status, where it names one by number.
pub(super) fn reported_fault(error: &Value) -> ResponseFault {
    let number = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    ResponseFault::Reported { status: number, body: error.clone() }
}

/// Text that is there and not empty.
pub(super) fn non_empty_str(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}
