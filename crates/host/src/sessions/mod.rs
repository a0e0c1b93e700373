//! Sessions that are awake: one turn at a time, under a lease, over all processes of a home.

pub(crate) mod accepted_event;
pub(crate) mod active_sessions;
pub(crate) mod lease;
pub(crate) mod process_liveness;
pub(crate) mod running_turns;
pub(crate) mod session_actor;
pub(crate) mod split_by_binding;
