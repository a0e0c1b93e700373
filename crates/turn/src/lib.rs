//! The turn: one event passing through the hooks.
//!
//! [`TurnPipeline::process`] is the pipeline, in the order of the stages: `load_state`, `build_prompt`, the model stage,
//! `save_state`, `render_outbound`, `dispatch_outbound`. The session was resolved when the event was accepted. The turn
//! knows hooks and nothing of channels, stores or runners: what runs in the model stage is behind [`ModelStage`]. The host
//! passes its side of a turn in as a [`TurnContext`] and gets everything that the turn produced back as a [`TurnReport`].
//!
//! [`SessionMailbox`] decides what becomes of events that arrive in a session: which wait, which join a run, which become one
//! turn together.

mod context;
mod error;
mod mailbox;
mod model_stage;
mod pipeline;

pub use context::{DispatchReport, ReplyTarget, TurnContext, TurnReport};
pub use error::{RunError, TurnError};
pub use mailbox::{ArrivalKind, EventArrival, MailboxDecision, SessionActivity, SessionMailbox};
pub use model_stage::{ModelStage, StageEventSink, StageInput, StageOutcome, StageReport};
pub use pipeline::{TurnPipeline, build_prompt};
