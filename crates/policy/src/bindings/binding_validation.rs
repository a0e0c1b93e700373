//! Validation of bindings before they are saved.

use capstan_protocol::{
    Binding, BindingId, ChannelName, ChatId, CodedError, Descriptor, Event, EventFilter, HostStateRequirement, RunnerId,
};
use capstan_tape::StoreError;

use super::UnreadableBinding;
use super::conflict::ambiguous_event_type;
use super::runner_config::{RunnerConfigValidator, check_known_tools, check_model_providers, check_named_resources};
use super::specificity::{SCOPE_FIELDS, scope_values};
use crate::approval;

/// Error of a binding operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum BindingError {
    /// The binding is invalid.
    #[error("the binding {binding_id} cannot be saved: {detail}")]
    #[code(BindingInvalid)]
    Invalid {
        /// The binding.
        binding_id: BindingId,
        /// Problem.
        detail: String,
    },
    /// Another binding would match some events with equal specificity.
    #[error("the binding {binding_id} matches events of type {event_type} with the same specificity as {other}")]
    #[code(BindingAmbiguous)]
    Ambiguous {
        /// The binding.
        binding_id: BindingId,
        /// The other binding.
        other: BindingId,
        /// Event type that both match.
        event_type: String,
    },
    /// The runner is unknown.
    #[error("there is no runner {runner_id}; known: {known}")]
    #[code(RunnerUnknown, exit = Usage)]
    UnknownRunner {
        /// The runner.
        runner_id: RunnerId,
        /// Known runners.
        known: String,
    },
    /// The binding is unknown.
    #[error("there is no binding {binding_id}")]
    #[code(BindingUnknown)]
    Unknown {
        /// The binding.
        binding_id: BindingId,
    },
    /// The stored binding cannot be parsed.
    #[error("the binding {binding_id} cannot be read: {reason}")]
    #[code(BindingUnreadable)]
    Unreadable {
        /// The binding.
        binding_id: BindingId,
        /// Parse error.
        reason: String,
    },
    /// The store refused or failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
}

impl BindingError {
    /// Error for a runner that is not among `runners`.
    pub fn unknown_runner(runner_id: &RunnerId, runners: &[Descriptor]) -> Self {
        let known: Vec<&str> = runners.iter().map(|runner| runner.id.as_str()).collect();
        Self::UnknownRunner { runner_id: runner_id.clone(), known: known.join(", ") }
    }
}

impl From<&UnreadableBinding> for BindingError {
    fn from(unreadable: &UnreadableBinding) -> Self {
        Self::Unreadable { binding_id: unreadable.binding_id.clone(), reason: unreadable.reason.clone() }
    }
}

/// Maximum length of binding ids and event type patterns, in bytes.
const MAX_BINDING_NAME_LEN: usize = 128;

/// Checks a binding by itself and against its runner.
pub fn validate_binding(binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
    let invalid = |detail| BindingError::Invalid { binding_id: binding.binding_id.clone(), detail };
    check_fields(binding).map_err(invalid)?;
    let Some(runner) = runners.iter().find(|runner| runner.id == binding.runner_id) else {
        return Err(BindingError::unknown_runner(&binding.runner_id, runners));
    };
    check_runner(binding, runner, &RunnerConfigValidator::new(runner)).map_err(invalid)
}

/// Checks that a binding still fits its runner, or returns the problem. A stored binding may be older than the runner, or
/// than the settings of the host.
pub fn check_runner(binding: &Binding, runner: &Descriptor, config: &RunnerConfigValidator) -> Result<(), String> {
    config.check(binding, runner)?;
    check_grant(binding, runner)?;
    check_named_resources(binding, runner)
}

/// Reason why every run under a stored binding fails, if its runner is there and does not fit any more.
pub fn find_misfit(binding: &Binding, runners: &[Descriptor]) -> Option<String> {
    let runner = runners.iter().find(|runner| runner.id == binding.runner_id)?;
    check_runner(binding, runner, &RunnerConfigValidator::new(runner)).err()
}

/// Checks that the models in the configuration of a binding have a provider.
pub(super) fn check_models(
    binding: &Binding,
    runners: &[Descriptor],
    providers: &[String],
) -> Result<(), BindingError> {
    check_model_providers(binding, runners, providers)
        .map_err(|detail| BindingError::Invalid { binding_id: binding.binding_id.clone(), detail })
}

/// Checks that the tools in the configuration of a binding are there.
pub(super) fn check_tools(binding: &Binding, runners: &[Descriptor], tools: &[String]) -> Result<(), BindingError> {
    check_known_tools(binding, runners, tools)
        .map_err(|detail| BindingError::Invalid { binding_id: binding.binding_id.clone(), detail })
}

/// Checks that no other binding matches some event with equal specificity.
pub(super) fn check_conflicts(binding: &Binding, others: &[Binding]) -> Result<(), BindingError> {
    for other in others.iter().filter(|other| other.binding_id != binding.binding_id) {
        if let Some(event_type) = ambiguous_event_type(binding, other) {
            let (binding_id, other) = (binding.binding_id.clone(), other.binding_id.clone());
            return Err(BindingError::Ambiguous { binding_id, other, event_type });
        }
    }
    Ok(())
}

/// Checks that the output channel of a binding exists.
pub(super) fn check_output_channel(binding: &Binding, channels: &[ChannelName]) -> Result<(), BindingError> {
    match &binding.delivery_policy.output_channel {
        Some(channel) if !channels.contains(channel) => {
            let known: Vec<&str> = channels.iter().map(ChannelName::as_str).collect();
            let detail = format!(
                "its delivery_policy names the channel {channel}, which is not there; known: {}",
                known.join(", ")
            );
            Err(BindingError::Invalid { binding_id: binding.binding_id.clone(), detail })
        }
        _ => Ok(()),
    }
}

fn check_fields(binding: &Binding) -> Result<(), String> {
    let id = binding.binding_id.as_str();
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/".contains(c));
    if id.is_empty() || id.len() > MAX_BINDING_NAME_LEN || !is_plain(id) {
        return Err(format!("its id must have 1 to {MAX_BINDING_NAME_LEN} characters: letters, digits and - _ . : /"));
    }
    for (field, name) in SCOPE_FIELDS.into_iter().zip(scope_values(&binding.scope)) {
        if name.is_some_and(|name| name.trim().is_empty()) {
            return Err(format!("the {field} of its scope is empty; leave it out to apply everywhere"));
        }
    }
    let scope = &binding.scope;
    if scope.thread_id.is_some() && scope.conversation_id.is_none() {
        return Err("its scope names a thread_id without the conversation_id it is in".to_owned());
    }
    if scope.conversation_id.is_some() && scope.channel.is_none() {
        return Err("its scope names a conversation_id without the channel it is on".to_owned());
    }
    if scope.actor_id.is_some() && scope.channel.is_none() {
        return Err(
            "its scope names an actor_id without the channel it is known on: ids of people are those of a channel"
                .to_owned(),
        );
    }
    if binding.delivery_policy.chat_id.as_ref().is_some_and(|chat: &ChatId| chat.as_str().trim().is_empty()) {
        return Err("the chat_id of its delivery_policy is empty".to_owned());
    }
    if binding.timeout_seconds == Some(0) {
        return Err("its timeout_seconds is 0: every run would end at once".to_owned());
    }
    binding.event_types.iter().try_for_each(|pattern| check_event_type(pattern))?;
    binding.filters.iter().try_for_each(check_filter)?;
    binding.resource_policy.approvals.iter().find_map(approval::rule_error).map_or(Ok(()), Err)
}

fn check_event_type(pattern: &str) -> Result<(), String> {
    let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let is_good = !pattern.is_empty()
        && pattern.len() <= MAX_BINDING_NAME_LEN
        && beginning.chars().all(is_name)
        && (beginning == pattern || beginning.is_empty() || beginning.ends_with('.'));
    if is_good {
        return Ok(());
    }
    Err(format!("the event type {pattern:?} is neither a name like message.received nor a pattern like message.*"))
}

fn check_filter(filter: &EventFilter) -> Result<(), String> {
    let field = filter.field.split('.').next().unwrap_or_default();
    if !Event::ENVELOPE_FIELDS.contains(&field) {
        return Err(format!(
            "a filter is about {:?}; an event has {}",
            filter.field,
            Event::ENVELOPE_FIELDS.join(", ")
        ));
    }
    if filter.one_of.is_empty() && filter.contains.is_none() && filter.exists.is_none() {
        return Err(format!("the filter on {} says nothing: give one_of, contains or exists", filter.field));
    }
    Ok(())
}

/// Checks that a binding grants the permissions its runner requires: otherwise every run would fail.
fn check_grant(binding: &Binding, runner: &Descriptor) -> Result<(), String> {
    let cap = binding.max_permissions();
    let missing = cap.missing_permissions(&runner.requires);
    if !missing.is_empty() {
        let (id, missing) = (&runner.id, missing.join(", "));
        return Err(format!("the runner {id} cannot do without {missing}, which it does not grant"));
    }
    if runner.capabilities.host_state == HostStateRequirement::Required && cap.state.is_empty() {
        return Err(format!("the runner {} cannot do without state: its state_policy must be enabled", runner.id));
    }
    Ok(())
}
