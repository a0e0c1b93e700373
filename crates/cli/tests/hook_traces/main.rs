//! Golden hook traces: what is called in a turn, in which order, with what result, and what is used when nobody answers.
//!
//! Each test is named after the rows of the specification it proves; each snapshot reads as a log of the turn, then its
//! outcome. [`recorder::Recorder`] keeps the log, [`scenario::Scenario`] runs the turn.

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
