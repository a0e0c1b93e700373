//! Specificity of binding matches.

use std::fmt;

use capstan_protocol::{Binding, BindingScope, ChannelName, WorkspaceId};

/// Specificity of a match, ordered: scope fields first, then the event type, then the number of conditions.
///
/// A binding that names the actor is more specific than any that does not, then one that names the thread, the
/// conversation, the channel, the bot, the workspace. Between equal scopes the longer event type pattern is more specific,
/// and an exact name more than any pattern. Between equal event types the binding with more conditions is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindingSpecificity {
    named_fields: u8,
    event_type: EventTypeMatch,
    condition_count: usize,
}

/// Specificity of the event type match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventTypeMatch {
    /// The binding takes all event types.
    Any,
    /// Prefix of this length.
    Prefix(usize),
    /// Exact name.
    Exact,
}

/// Fields of a scope, most specific first.
pub(super) const SCOPE_FIELDS: [&str; 6] =
    ["actor_id", "thread_id", "conversation_id", "channel", "bot_id", "workspace_id"];

/// Values of a scope in the order of [`SCOPE_FIELDS`].
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

/// Number of conditions in the filters of a binding.
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
