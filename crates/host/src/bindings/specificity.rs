//! How closely a binding fits.

use std::fmt;

use capstan_protocol::{Binding, BindingScope, ChannelName, WorkspaceId};

/// How closely a binding fits an event. What is compared first counts most: whom and where it names, which event type, and
/// how much else it says.
///
/// A binding that names the actor fits closer than any that does not, then one that names the thread, then the
/// conversation, the channel, the bot, the workspace. Of two that name the same, the one with the longer event type
/// pattern fits closer, and a whole name closer than any pattern. Of two that are equal in that too, the one with more
/// conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindingSpecificity {
    named_fields: u8,
    event_type: EventTypeMatch,
    condition_count: usize,
}

/// How closely the event types of a binding fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventTypeMatch {
    /// It takes all.
    Any,
    /// The beginning of the name, of this length.
    Prefix(usize),
    /// The whole name.
    Exact,
}

/// What a scope can name, from what counts most to what counts least.
pub(super) const SCOPE_FIELDS: [&str; 6] =
    ["actor_id", "thread_id", "conversation_id", "channel", "bot_id", "workspace_id"];

/// What a scope names, in the order of [`NAMES`].
pub(super) fn scope_values(scope: &BindingScope) -> [Option<&str>; 6] {
    [
        scope.actor_id.as_deref(),
        scope.thread_id.as_deref(),
        scope.conversation_id.as_deref(),
        scope.channel.as_ref().map(ChannelName::as_str),
        scope.bot_id.as_deref(),
        scope.workspace_id.as_ref().map(WorkspaceId::as_str),
    ]
}

impl BindingSpecificity {
    pub(super) fn new(binding: &Binding, event_type: EventTypeMatch) -> Self {
        let named = scope_values(&binding.scope).iter().fold(0, |bits, name| bits << 1 | u8::from(name.is_some()));
        Self { named_fields: named, event_type, condition_count: count_conditions(binding) }
    }
}

/// How much the filters of a binding say.
pub(super) fn count_conditions(binding: &Binding) -> usize {
    let said = |filter: &capstan_protocol::EventFilter| {
        usize::from(!filter.one_of.is_empty())
            + usize::from(filter.contains.is_some())
            + usize::from(filter.exists.is_some())
    };
    binding.filters.iter().map(said).sum()
}

impl fmt::Display for BindingSpecificity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = (0..SCOPE_FIELDS.len()).rev();
        let named: Vec<&str> =
            bits.zip(SCOPE_FIELDS).filter(|(bit, _)| self.named_fields >> bit & 1 == 1).map(|(_, name)| name).collect();
        match named.as_slice() {
            [] => write!(f, "it applies everywhere")?,
            named => write!(f, "it names {}", named.join(", "))?,
        }
        match self.event_type {
            EventTypeMatch::Any => write!(f, ", takes every event type")?,
            EventTypeMatch::Prefix(_) => write!(f, ", takes event types that begin so")?,
            EventTypeMatch::Exact => write!(f, ", takes this event type")?,
        }
        match self.condition_count {
            0 => Ok(()),
            1 => write!(f, ", with one condition"),
            many => write!(f, ", with {many} conditions"),
        }
    }
}
