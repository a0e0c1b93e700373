//! What reading an answer has in common.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::Value;

use crate::failure::Fault;
use crate::frames::Frame;

/// Reads one answer, frame by frame.
pub(crate) trait Reader: Send {
    /// Takes a frame in and gives what it says.
    fn read(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<Progress, Fault>;

    /// Whether a call has begun. It is handed on when it is whole, but the provider has spoken.
    fn is_calling(&self) -> bool;

    /// No more frames come: gives what is left to say, the stop last. An answer that has not said why it ended is cut.
    fn finish(&mut self) -> Result<Vec<ModelEvent>, Fault>;
}

/// How far a frame brought the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nowhere: it only keeps the connection alive.
    Idle,
    /// Something came.
    More,
    /// It is whole.
    Complete,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The model was done.
    Done,
    /// It reached a limit of tokens.
    Truncated,
    /// A filter ended it.
    Filtered,
}

impl Ending {
    /// Gives calls without arguments an empty object, since some tools take none. Only the last call of an answer that
    /// reached its limit stays as it is: it had no time for its arguments.
    pub(super) fn fill(self, calls: &mut [ToolCall]) {
        let cut = usize::from(self == Self::Truncated);
        let whole = calls.len().saturating_sub(cut);
        for call in calls[..whole].iter_mut().filter(|call| call.function.arguments.trim().is_empty()) {
            "{}".clone_into(&mut call.function.arguments);
        }
    }

    /// The events an answer ends with, after what its wire has left to say.
    pub(super) fn close(self, mut events: Vec<ModelEvent>) -> Result<Vec<ModelEvent>, Fault> {
        match self {
            Self::Filtered => return Err(Fault::Filtered),
            Self::Truncated => events.push(ModelEvent::Truncated),
            Self::Done => {}
        }
        events.push(ModelEvent::Stop);
        Ok(events)
    }
}

/// A frame as JSON.
pub(super) fn json(data: &str) -> Result<Value, Fault> {
    serde_json::from_str(data).map_err(|_| Fault::Senseless("it sent something that is not JSON"))
}

/// An answer that ended without a reason.
pub(super) const NO_REASON: Fault = Fault::Cut("it ended before it was complete");

/// An error in mid-stream; its status, where it names one by number.
pub(super) fn reported(error: &Value) -> Fault {
    let number = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    Fault::Reported { status: number, body: error.clone() }
}

/// Text that is there and not empty.
pub(super) fn some(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}
