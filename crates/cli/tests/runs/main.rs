//! Runs: what the orchestrator makes of a runner's results, what the agent's loop leaves on the tape, and what sessions,
//! workspaces and channels do to each other.

mod actions;
mod agent_loop;
mod approvals;
mod bindings;
mod children;
mod clock;
mod driven;
mod grants;
mod hostile_calls;
mod hostile_results;
mod hostile_runner;
mod interception;
mod knowledge;
mod lifecycle;
mod listening;
mod little_grants;
mod parallel;
#[path = "../platform/mod.rs"]
mod platform;
mod queries;
#[path = "../registers/mod.rs"]
mod registers;
mod results;
mod run_api;
mod schemas;
mod sessions;
mod spill;
mod state;
mod support;
