//! Delivery: the channels of a host, the routes of replies, and the outbox.
//!
//! [`Outbox`] sends committed messages in order per chat and retries them until they are sent or given up. [`ChannelTarget`]
//! shows the stream events of a turn and routes its messages by the delivery policy of its binding.
//! [`ChannelDirectory`] lists the channels and those of them that listen in this process.
//!
//! The crate uses channels and the store through their contracts. It depends on neither sessions nor runs.

mod channel_directory;
mod channel_target;
mod chat_queue;
mod event_delivery;
mod held_messages;
mod isolated_channel;
mod media;
mod ordering;
mod ordering_wait;
mod orphaned_messages;
mod outbox;
mod resend_watcher;
mod route;

pub use channel_directory::ChannelDirectory;
pub use channel_target::ChannelTarget;
pub use chat_queue::{ChatAddress, QueueOverflow};
pub use event_delivery::{EventDelivery, LocalCallerReceipt, OutboxRow};
pub use held_messages::{StalePolicy, drop_request, request_revision, resend_request};
pub use isolated_channel::stop_channel;
pub use outbox::{CALLER_DISCONNECTED_REASON, Outbox, OutboxOptions, OwnerRegistry};
pub use resend_watcher::ResendWatcher;
pub use route::route_outbound;
