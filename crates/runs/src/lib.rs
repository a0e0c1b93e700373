//! Runs: the orchestrator, the run API, results, actions, child runs and the state of runners.
//!
//! [`Orchestrator`] runs the model stage of a turn: it resolves the runner of the binding, computes the grant, opens
//! the run in the ledger and lets the model hooks or the runner work. A runner reaches the host through the run API
//! only, and every call is checked against the grant. A run writes through the [`Journal`] of its turn.
//!
//! [`RunEnvironment`] holds everything that runs share: hooks, tools, models, runners, knowledge. [`state_admin`] is
//! for operators who inspect or change the stored state of runners, [`artifact_admin`] for those who inspect or remove
//! artifacts.
//!
//! The crate knows neither sessions nor delivery: a turn passes itself to the orchestrator as an [`ActiveTurn`].

mod action_registry;
mod actions;
mod active_runs;
mod active_turn;
mod api;
mod api_error;
mod api_limits;
pub mod artifact_admin;
mod artifacts;
mod attachments;
mod cancel_grace;
mod cancel_watcher;
mod child_run;
mod environment;
mod journal;
pub mod model_call_log;
mod nesting;
mod options;
mod orchestrator;
mod payload_size;
mod plugin_runner;
mod results;
mod run;
mod runner_registry;
mod spill;
mod state;
pub mod state_admin;
mod steering;
mod tool_catalog;

pub use actions::{RecordedActions, collect_family_actions, read_recorded_actions};
pub use active_runs::{ActiveRunGuard, ActiveRuns};
pub use active_turn::ActiveTurn;
pub use api_limits::ApiLimits;
pub use cancel_watcher::CancelWatcher;
pub use child_run::{has_open_fork, open_runs_with_children};
pub use environment::{RunDependencies, RunEnvironment, model_provider_names, tool_names};
pub use journal::Journal;
pub use options::{ResultLimits, RunLimits, RunOptions, WorkspaceDir};
pub use orchestrator::{Orchestrator, RunReport};
pub use runner_registry::{RefusedRunner, RunnerRegistry};
pub use steering::{OfferedEvent, Steering, SteeringOutcome};
pub use tool_catalog::ToolCatalog;
