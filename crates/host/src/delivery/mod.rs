//! What goes out: in order per chat, until its fate is known.

pub(crate) mod asking;
pub(crate) mod backoff;
pub(crate) mod chats;
pub(crate) mod delays;
pub(crate) mod outbox;
pub(crate) mod parcel;
pub(crate) mod precedence;
pub(crate) mod route;
