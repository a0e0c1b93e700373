//! What a turn writes, what it wants sent, and how it ends.

pub(crate) mod close;
pub(crate) mod delay_notice;
mod detach_on_drop;
pub(crate) mod journal;
pub(crate) mod notices;
