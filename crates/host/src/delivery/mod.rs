//! What goes out: in order per chat, until its fate is known.

pub(crate) mod channel_target;
pub(crate) mod chat_queue;
pub(crate) mod event_delivery;
pub(crate) mod isolated_channel;
pub(crate) mod ordering;
pub(crate) mod outbox;
pub(crate) mod route;
pub(crate) mod store_failure_notice;
