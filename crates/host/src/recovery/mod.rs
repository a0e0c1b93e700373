//! What a dead process left: ended, taken up again, or counted.

pub mod conservation;
mod cut_off;
pub(crate) mod left;
pub(crate) mod overheard;
