//! What a dead process left: ended, taken up again, or counted.

pub mod conservation;
mod interrupted_runs;
pub(crate) mod recover;
pub(crate) mod unaddressed;
