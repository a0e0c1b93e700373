//! What is printed, one type for each kind of line.

use std::borrow::Cow;

use capstan_hooks::Inbound;
use capstan_hooks::contracts::Answer;
use capstan_protocol::{Outbound, OutboundKind, Outcome, RunId, SessionId, StreamEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::asked::Asked;

/// The first line: from here on lines are read.
#[derive(Serialize)]
pub(super) struct Ready {
    ready: bool,
}

impl Ready {
    pub(super) const LINE: Self = Self { ready: true };
}

/// The end of an event.
#[derive(Serialize)]
pub(super) struct Answered<'a> {
    id: Option<&'a RawValue>,
    session: &'a SessionId,
    text: Cow<'a, str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a RunId>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

impl<'a> Answered<'a> {
    pub(super) fn new(answer: &'a Answer, asked: Option<&'a Asked>) -> Self {
        let (text, folded_into) = match &answer.outcome {
            Outcome::Replied { text } | Outcome::Failed { notice: text, .. } => (Cow::Borrowed(text.as_str()), None),
            Outcome::Folded { run_id } => (messages(answer), Some(run_id)),
            Outcome::Silent | Outcome::Dropped | Outcome::Cancelled => (messages(answer), None),
        };
        Self {
            id: asked.and_then(Asked::id),
            session: &answer.session,
            text,
            outcome: answer.outcome.name(),
            run_id: answer.run_id.as_ref().or(folded_into),
            duplicate: answer.duplicate,
        }
    }
}

/// What is said beside an outcome that says nothing itself.
fn messages(answer: &Answer) -> Cow<'_, str> {
    let texts: Vec<String> = answer.messages.iter().map(|message| message.content.text()).collect();
    Cow::Owned(texts.join("\n\n"))
}

/// What happens while a turn goes on.
#[derive(Serialize)]
pub(super) struct Streamed<'a> {
    id: Option<&'a RawValue>,
    session: Cow<'a, SessionId>,
    event: &'a StreamEvent,
}

impl<'a> Streamed<'a> {
    pub(super) fn new(event: &'a StreamEvent, message: &'a Inbound, asked: &'a Asked) -> Self {
        Self { id: asked.id(), session: session_of(message), event }
    }
}

/// An event whose end cannot be recorded for now. It follows when it is.
#[derive(Serialize)]
pub(super) struct Waits<'a> {
    id: Option<&'a RawValue>,
    session: Cow<'a, SessionId>,
    delayed: Error<'a>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(event: &'a Inbound, asked: Option<&'a Asked>, delayed: Error<'a>) -> Self {
        Self { id: asked.and_then(Asked::id), session: session_of(event), delayed }
    }
}

fn session_of(event: &Inbound) -> Cow<'_, SessionId> {
    let session = event.session_id.as_ref();
    session.map_or_else(|| Cow::Owned(event.fallback_session()), Cow::Borrowed)
}

/// A message that answers no line.
#[derive(Serialize)]
pub(super) struct Message<'a> {
    id: Option<&'a RawValue>,
    session: &'a SessionId,
    text: String,
    kind: OutboundKind,
}

impl<'a> From<&'a Outbound> for Message<'a> {
    fn from(message: &'a Outbound) -> Self {
        Self { id: None, session: &message.session_id, text: message.content.text(), kind: message.kind }
    }
}

/// A line that was not accepted. Nothing of it was kept.
#[derive(Serialize)]
pub(super) struct Refused<'a> {
    pub(super) id: Option<&'a RawValue>,
    pub(super) line: u64,
    pub(super) error: Error<'a>,
}

/// Why a line was not accepted, or has no end yet.
#[derive(Serialize)]
pub(super) struct Error<'a> {
    pub(super) code: &'static str,
    pub(super) message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) hint: &'static str,
}
