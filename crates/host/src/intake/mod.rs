//! Events on their way in: the channels that listen, and acceptance, which makes an event durable.

pub(crate) mod acceptance;
pub(crate) mod channel_listeners;
pub(crate) mod intake_queue;
