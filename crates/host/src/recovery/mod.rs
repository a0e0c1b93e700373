//! What a dead process left: ended, taken up again, or counted.

pub mod conservation;
pub(crate) mod left;
mod open_calls;
pub(crate) mod overheard;
