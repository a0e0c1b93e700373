//! Context of one turn, passed to the pipeline as an argument, and the report it returns.

use capstan_hooks::{HookEffect, HookTurn};
use capstan_protocol::{OutboundMessage, PluginName};

use crate::{StageEventSink, TurnError};

/// The host's side of one turn.
#[derive(Clone, Copy)]
pub struct TurnContext<'a, T> {
    /// Host data for the [model stage](crate::ModelStage::Turn).
    pub turn: &'a T,
    /// Destination of the replies.
    pub reply_target: &'a dyn ReplyTarget,
    /// The turn, for the handles of its hooks. The pipeline closes it.
    pub hook_turn: &'a HookTurn,
}

/// Destination of the replies of a turn. As a sink it shows stream events to the channel.
pub trait ReplyTarget: StageEventSink {
    /// Sets the destination of a rendered message; `None` if the message is not sent.
    fn route_outbound(&self, outbound: OutboundMessage) -> Option<OutboundMessage>;
}

/// Everything that a turn produced, after success or failure.
#[derive(Debug)]
pub struct TurnReport<R> {
    /// The output of the model stage, or the error that ended the turn.
    pub result: Result<String, TurnError>,
    /// Dispatched messages, in order.
    pub dispatched: Vec<DispatchReport>,
    /// The notice that an observer of errors requested for the user.
    pub notice: Option<String>,
    /// The report of the run, where one was opened.
    pub run: Option<R>,
    /// Effects that the hooks requested, to be written with the end of the turn.
    pub effects: Vec<HookEffect>,
}

impl<R> TurnReport<R> {
    /// Report of a turn that has not produced anything yet.
    pub(crate) fn started() -> Self {
        Self { result: Ok(String::new()), dispatched: Vec::new(), notice: None, run: None, effects: Vec::new() }
    }

    /// Report of a turn that ended before its first stage.
    pub fn failed(error: TurnError, notice: Option<String>) -> Self {
        Self { result: Err(error), notice, ..Self::started() }
    }
}

/// Dispatched message with the answer of every plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct DispatchReport {
    /// The message.
    pub outbound: OutboundMessage,
    /// Answer of each plugin: true if it sent or staged the message.
    pub answers: Vec<(PluginName, bool)>,
    /// The message goes to the outbox.
    pub is_staged: bool,
}
