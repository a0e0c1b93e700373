//! Delivery: the channels of a host, the routes of replies, and the outbox.

pub(crate) mod channel_directory;
pub(crate) mod channel_target;
pub(crate) mod chat_queue;
pub(crate) mod event_delivery;
pub(crate) mod isolated_channel;
pub(crate) mod ordering;
pub(crate) mod orphaned_messages;
pub(crate) mod outbox;
pub(crate) mod route;
