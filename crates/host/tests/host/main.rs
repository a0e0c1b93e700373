//! Whole hosts in one process: hooks, models, runs and sessions.

mod hook_traces;
mod models;
mod platform;
mod runs;
mod sessions;
