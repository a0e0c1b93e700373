//! Turns: the pipeline that takes one event through the hooks, and the mailbox that decides about arriving events.
//!
//! - [`TurnPipeline::process`] runs the stages in order: `load_state`, `build_prompt`, the model stage, `save_state`,
//!   `render_outbound`, `dispatch_outbound`. The session is resolved earlier, when the event is accepted.
//! - [`ModelStage`] is implemented by the host and runs the model stage. The host passes its data for a turn as a
//!   [`TurnContext`] and receives a [`TurnReport`].
//! - [`SessionMailbox`] decides for each event of a session if it waits, joins a run, is dropped, or shares a turn with
//!   others.
//!
//! The crate knows hooks, but no channels, stores or runners.

mod context;
mod error;
mod lifespan;
mod mailbox;
mod model_stage;
mod pipeline;

pub use context::{DispatchReport, ReplyTarget, TurnContext, TurnReport};
pub use error::{RunError, TurnError};
pub use mailbox::{ArrivalKind, EventArrival, MailboxDecision, SessionActivity, SessionMailbox};
pub use model_stage::{ModelStage, StageEventSink, StageInput, StageOutcome, StageReport};
pub use pipeline::{TurnPipeline, build_prompt};
