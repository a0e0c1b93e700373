//! Runs in a host of this process: runner results, the run API, grants, the agent's loop, and the isolation of sessions,
//! workspaces and channels from each other.

mod actions;
mod agent_config;
mod agent_loop;
mod api_runner;
mod approvals;
mod bindings;
mod channel_lifecycle;
mod children;
mod clock;
mod commands;
mod context_and_history;
mod context_selector;
mod forks;
mod grants;
mod hostile_calls;
mod hostile_results;
mod hostile_runner;
mod interception;
mod knowledge;
mod langbot_queries;
mod lifecycle;
mod parallel_tool_calls;
mod restricted_grants;
mod results;
mod run_api;
mod run_records;
mod runner_capabilities;
mod runner_identity;
mod schemas;
mod sessions;
mod spill;
mod state;
mod support;
mod tool_authority;
