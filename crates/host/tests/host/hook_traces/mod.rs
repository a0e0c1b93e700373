//! Golden hook traces: the hook calls of a turn in order, with their results and the fallbacks used when no plugin answers.
//!
//! Each test is named after the requirement rows it proves; each snapshot is a log of the turn, followed by its outcome.
//! [`recorder::HookRecorder`] writes the log, [`scenario::TurnScenario`] runs the turn.

mod recorder;
mod scenario;
mod test_plugins;

mod dispatch_outbound;
mod lifespan;
mod load_state_and_prompt;
mod model_stage;
mod on_error;
mod plain;
mod registration;
mod render_outbound;
mod resolve_session;
mod save_state;
mod stream;
