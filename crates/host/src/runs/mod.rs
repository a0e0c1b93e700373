//! Runs: who serves an event, with what authority, and what is on record about it.

pub(crate) mod active_turn;
pub(crate) mod cancel_watcher;
pub(crate) mod child_run;
pub mod model_call_log;
pub(crate) mod orchestrator;
pub(crate) mod plugin_runner;
pub(crate) mod run;
pub(crate) mod state;
pub(crate) mod state_commit;
pub(crate) mod steering;
pub(crate) mod tool_catalog;
