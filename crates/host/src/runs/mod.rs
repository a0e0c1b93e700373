//! Runs: who serves an event, with what authority, and what is on record about it.

pub(crate) mod approval;
pub(crate) mod budget;
pub mod calls;
pub(crate) mod cancelling;
pub(crate) mod child;
pub mod grant;
pub(crate) mod kept;
pub(crate) mod offered;
pub(crate) mod orchestrator;
pub(crate) mod run;
pub(crate) mod stand_in;
pub(crate) mod state;
pub(crate) mod steering;
