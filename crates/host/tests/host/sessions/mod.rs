//! Sessions in a host of this process: admission during a turn, isolation of failures, delivery of replies, recovery of
//! orphaned events, and several hosts on one store.

mod acceptance;
mod admission;
mod authority;
mod backpressure;
mod concurrent_commands;
mod debounce;
mod delivery;
mod delivery_policy;
mod event_order;
mod fault_isolation;
mod faulty_store;
mod full_queue;
mod held_messages;
mod hook_effects;
mod host_shutdown;
mod media;
mod message_events;
mod notices;
mod origins;
mod orphaned_events;
mod orphaned_queries;
mod platform_actions;
mod scripted_conversation;
mod stop_deadline;
mod store_failures;
mod stream_order;
mod support;
mod test_channel;
mod turn_limit;
mod two_hosts;
