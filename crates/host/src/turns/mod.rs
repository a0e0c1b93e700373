//! What a turn writes, what it wants sent, and how it ends.

pub(crate) mod ending;
pub(crate) mod journal;
pub(crate) mod notices;
pub(crate) mod staging;
mod to_the_end;
