//! Intake options of channels, with the overrides of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_delivery::ChannelDirectory;
use capstan_hooks::contracts::IntakeOptions;
use capstan_protocol::{ChannelName, Event};

/// Intake options of every channel. Cheap to clone.
#[derive(Clone)]
pub(crate) struct IntakePolicy {
    pub(crate) channels: ChannelDirectory,
    /// Options from the configuration, which take precedence over those of the channel.
    pub(crate) overrides: Arc<BTreeMap<ChannelName, IntakeOptions>>,
}

impl IntakePolicy {
    /// Intake options for an event.
    pub(crate) fn options_for(&self, event: &Event) -> IntakeOptions {
        let channel_options =
            self.channels.get(&event.source).map(|channel| channel.intake_options()).unwrap_or_default();
        let overrides = self.overrides.get(&event.source).copied().unwrap_or_default();
        IntakeOptions {
            admission: overrides.admission.or(channel_options.admission),
            debounce: overrides.debounce.or(channel_options.debounce),
        }
    }
}
