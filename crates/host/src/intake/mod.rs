//! Events on their way in: the channels that listen, and acceptance, which makes an event durable.

pub(crate) mod gateway;
pub(crate) mod listening;
pub(crate) mod order;
