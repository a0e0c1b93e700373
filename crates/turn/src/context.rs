//! Context of one turn, passed to the pipeline as an argument, and the report it returns.

use capstan_protocol::{OutboundMessage, PluginName};

use crate::{StageEventSink, TurnError};

/// The host's side of one turn.
#[derive(Clone, Copy)]
pub struct TurnContext<'a, T> {
    /// Host data for the [model stage](crate::ModelStage::Turn).
    pub turn: &'a T,
    /// The place that the turn answers.
    pub reply_target: &'a dyn ReplyTarget,
}

/// The place that a turn answers. As a sink it shows stream events to the channel.
pub trait ReplyTarget: StageEventSink {
    /// Routes a rendered message to the place where it is sent; `None` where nothing is sent.
    fn route_outbound(&self, outbound: OutboundMessage) -> Option<OutboundMessage>;
}

/// Everything that a turn produced, whether it succeeded or not.
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
}

impl<R> TurnReport<R> {
    /// Report of a turn that ended before its first stage.
    pub fn failed(error: TurnError, notice: Option<String>) -> Self {
        Self { result: Err(error), dispatched: Vec::new(), notice, run: None }
    }
}

/// A dispatched message, with the answer of every plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct DispatchReport {
    /// The message.
    pub outbound: OutboundMessage,
    /// The flag that each plugin returned: it sent or staged the message, or did not.
    pub sent_by: Vec<(PluginName, bool)>,
    /// Whether the message goes to the outbox.
    pub is_staged: bool,
}
