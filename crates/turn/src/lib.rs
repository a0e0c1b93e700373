//! The turn: one event passing through the hooks.
//!
//! [`Turn::process`] is the pipeline, in the order of the stages: `load_state`, `build_prompt`, the model stage,
//! `save_state`, `render_outbound`, `dispatch_outbound`. The session was resolved when the event was accepted. The turn
//! knows hooks and nothing of channels, stores or runners: what runs in the model stage is behind [`ModelStage`].

mod error;
mod pipeline;
mod stage;

pub use error::{RunFailure, TurnError};
pub use pipeline::{Dispatched, Turn, TurnReport};
pub use stage::{ModelStage, StageEnd, StageEvents, StageInput};
