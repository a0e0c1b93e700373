//! The turn: one event passing through the hooks.
//!
//! [`Turn::process`] is the pipeline, in the order of the stages: `load_state`, `build_prompt`, the model stage,
//! `save_state`, `render_outbound`, `dispatch_outbound`. The session was resolved when the event was accepted. The turn
//! knows hooks and nothing of channels, stores or runners: what runs in the model stage is behind [`ModelStage`].
//!
//! [`Mailbox`] decides what becomes of events that arrive in a session: which wait, which join a run, which become one
//! turn together.

mod error;
mod mailbox;
mod model_stage;
mod pipeline;

pub use error::{RunError, TurnError};
pub use mailbox::{ArrivalKind, EventArrival, MailboxDecision, SessionActivity, SessionMailbox};
pub use model_stage::{ModelStage, StageEventSink, StageInput, StageOutcome};
pub use pipeline::{DispatchReport, TurnPipeline, TurnReport, build_prompt};
