//! Sessions that are awake: one turn at a time, under a lease, over all processes of a home.

pub(crate) mod attending;
pub(crate) mod authority;
pub(crate) mod awake;
pub(crate) mod item;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod owners;
