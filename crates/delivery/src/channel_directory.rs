//! Directory of the channels of a host, and of those that listen in this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::contracts::Channel;
use capstan_protocol::ChannelName;

/// The channels of a host. Cheap to clone; clones share the set of listening channels.
#[derive(Clone)]
pub struct ChannelDirectory {
    channels: Arc<[Arc<dyn Channel>]>,
    listening: Arc<Mutex<BTreeSet<ChannelName>>>,
}

impl ChannelDirectory {
    /// Directory of these channels; none of them listens yet.
    pub fn new(channels: Vec<Arc<dyn Channel>>) -> Self {
        Self { channels: channels.into(), listening: Arc::default() }
    }

    /// Every channel.
    pub fn all(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    /// A channel by its name.
    pub fn get(&self, name: &ChannelName) -> Option<&Arc<dyn Channel>> {
        self.channels.iter().find(|channel| channel.name() == *name)
    }

    /// Returns true if callers on this channel wait for their replies.
    pub fn has_waiting_caller(&self, name: &ChannelName) -> bool {
        self.get(name).is_some_and(|channel| channel.capabilities().has_waiting_callers)
    }

    /// Marks a channel as listening in this process. Returns true if it was not listening before.
    pub fn mark_listening(&self, name: &ChannelName) -> bool {
        self.listening().insert(name.clone())
    }

    /// Marks a channel as no longer listening.
    pub fn mark_stopped(&self, name: &ChannelName) {
        self.listening().remove(name);
    }

    /// Returns true if this process may deliver orphaned messages of a channel: the channel listens here, or its
    /// callers waited in a process that has died.
    pub fn can_deliver_orphaned(&self, name: &ChannelName) -> bool {
        self.listening().contains(name) || self.has_waiting_caller(name)
    }

    fn listening(&self) -> MutexGuard<'_, BTreeSet<ChannelName>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
