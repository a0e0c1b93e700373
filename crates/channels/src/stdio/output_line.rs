//! Output lines, one type for each kind.

use std::borrow::Cow;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{ErrorCode, FailureCode, OutboundKind, OutboundMessage, Outcome, RunId, SessionId, StreamEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::pending_request::PendingRequest;

/// First line: the channel accepts input from here on.
#[derive(Serialize)]
pub(super) struct ReadyLine {
    ready: bool,
}

impl ReadyLine {
    pub(super) const READY: Self = Self { ready: true };
}

/// Outcome of an event.
#[derive(Serialize)]
pub(super) struct OutcomeLine<'a> {
    id: Option<&'a RawValue>,
    session: &'a SessionId,
    text: Cow<'a, str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a RunId>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<OutcomeError<'a>>,
}

/// Error of a failed turn, or of a comma command that failed.
#[derive(Serialize)]
struct OutcomeError<'a> {
    code: FailureCode,
    message: &'a str,
}

impl<'a> OutcomeError<'a> {
    fn of_reply(reply: &'a ChannelReply) -> Option<Self> {
        if let Outcome::Failed { notice, code } = &reply.outcome {
            let code = code.clone().unwrap_or(ErrorCode::RunFailed.into());
            return Some(Self { code, message: notice });
        }
        let message = reply.command_error.as_deref()?;
        Some(Self { code: ErrorCode::CommandFailed.into(), message })
    }
}

impl<'a> OutcomeLine<'a> {
    pub(super) fn new(reply: &'a ChannelReply, request: Option<&'a PendingRequest>) -> Self {
        let (text, folded_into) = match &reply.outcome {
            Outcome::Replied { text } | Outcome::Failed { notice: text, .. } => (Cow::Borrowed(text.as_str()), None),
            Outcome::Folded { run_id } => (joined_messages(reply), Some(run_id)),
            Outcome::Silent | Outcome::Dropped | Outcome::Cancelled => (joined_messages(reply), None),
        };
        Self {
            id: request.and_then(PendingRequest::id),
            session: &reply.session,
            text,
            outcome: reply.outcome.name(),
            run_id: reply.run_id.as_ref().or(folded_into),
            duplicate: reply.is_duplicate,
            error: OutcomeError::of_reply(reply),
        }
    }
}

/// Text for an outcome that has none of its own.
fn joined_messages(reply: &ChannelReply) -> Cow<'_, str> {
    let texts: Vec<String> = reply.messages.iter().map(|message| message.content.text()).collect();
    Cow::Owned(texts.join("\n\n"))
}

/// Stream event of a running turn.
#[derive(Serialize)]
pub(super) struct StreamEventLine<'a> {
    id: Option<&'a RawValue>,
    session: Cow<'a, SessionId>,
    event: &'a StreamEvent,
}

impl<'a> StreamEventLine<'a> {
    pub(super) fn new(event: &'a StreamEvent, message: &'a InboundEvent, request: &'a PendingRequest) -> Self {
        Self { id: request.id(), session: event_session(message), event }
    }
}

/// Event whose outcome cannot be recorded for now. The outcome follows once it is.
#[derive(Serialize)]
pub(super) struct DelayedLine<'a> {
    id: Option<&'a RawValue>,
    session: Cow<'a, SessionId>,
    delayed: LineError<'a>,
}

impl<'a> DelayedLine<'a> {
    pub(super) fn new(event: &'a InboundEvent, request: Option<&'a PendingRequest>, delayed: LineError<'a>) -> Self {
        Self { id: request.and_then(PendingRequest::id), session: event_session(event), delayed }
    }
}

fn event_session(event: &InboundEvent) -> Cow<'_, SessionId> {
    let session = event.session_id.as_ref();
    session.map_or_else(|| Cow::Owned(event.fallback_session()), Cow::Borrowed)
}

/// Message that answers no line.
#[derive(Serialize)]
pub(super) struct MessageLine<'a> {
    id: Option<&'a RawValue>,
    session: &'a SessionId,
    text: String,
    kind: OutboundKind,
}

impl<'a> From<&'a OutboundMessage> for MessageLine<'a> {
    fn from(message: &'a OutboundMessage) -> Self {
        Self { id: None, session: &message.session_id, text: message.content.text(), kind: message.kind }
    }
}

/// Line that was not accepted and left no trace.
#[derive(Serialize)]
pub(super) struct RefusedLine<'a> {
    pub(super) id: Option<&'a RawValue>,
    pub(super) line: u64,
    pub(super) error: LineError<'a>,
}

/// Reason why a line was not accepted, or is delayed.
#[derive(Serialize)]
pub(super) struct LineError<'a> {
    code: ErrorCode,
    message: &'a str,
    hint: &'static str,
}

impl<'a> LineError<'a> {
    pub(super) fn new(code: ErrorCode, message: &'a str) -> Self {
        Self { code, message, hint: code.hint() }
    }
}
