//! Registry of the platform actions that channels offer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use capstan_hooks::contracts::Channel;
use capstan_protocol::{ActionSpec, ApiErrorCode, BindingId, ChannelName, JsonObject, RunnerId};
use capstan_tape::{ActionDenier, is_deeper_than};
use jsonschema::Validator;
use serde_json::Value;

/// Maximum length of the name of an action, in bytes.
pub(crate) const MAX_ACTION_NAME_LEN: usize = 128;

/// Reason for refusing an action. The messages follow the name of the action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionDenial {
    /// The runner's permissions do not include the action.
    #[error("the runner {0} does not ask for it")]
    Runner(RunnerId),
    /// The binding's policy does not include the action.
    #[error("the binding {0} does not allow it")]
    Binding(BindingId),
    /// The channel of the event does not offer the action.
    #[error("the channel {0} has no such action")]
    Channel(ChannelName),
    /// The arguments do not match the schema of the action, or are nested too deeply.
    #[error("its arguments are not valid: {0}")]
    Arguments(String),
}

impl ActionDenial {
    pub(crate) fn denied_by(&self) -> ActionDenier {
        match self {
            Self::Runner(_) => ActionDenier::Runner,
            Self::Binding(_) => ActionDenier::Binding,
            Self::Channel(_) => ActionDenier::Channel,
            Self::Arguments(_) => ActionDenier::Arguments,
        }
    }

    pub(crate) fn code(&self) -> ApiErrorCode {
        match self {
            Self::Runner(_) | Self::Binding(_) => ApiErrorCode::Unauthorized,
            Self::Channel(_) => ApiErrorCode::NotFound,
            Self::Arguments(_) => ApiErrorCode::InvalidArgument,
        }
    }
}

/// Maximum nesting of arguments and answers, so that the JSON of their tape entries can be parsed.
const MAX_ACTION_NESTING: usize = 64;

/// Maximum number of schema violations in a denial.
const MAX_ARGUMENT_ERRORS: usize = 3;

/// Platform actions that the channels of a host offer, by channel.
#[derive(Default)]
pub(crate) struct ActionRegistry(HashMap<ChannelName, ChannelActions>);

/// A channel and its actions by name.
struct ChannelActions {
    channel: Arc<dyn Channel>,
    offered: BTreeMap<String, OfferedAction>,
}

/// An action with the validator of its arguments.
struct OfferedAction {
    spec: ActionSpec,
    validator: Validator,
}

impl ActionRegistry {
    /// Collects the actions of the channels. Skips an action whose name or schema is not valid, with a warning.
    pub(crate) fn from_channels(channels: &[Arc<dyn Channel>]) -> Self {
        let channel_actions = |channel: &Arc<dyn Channel>| ChannelActions {
            offered: offered_actions(channel.as_ref()),
            channel: Arc::clone(channel),
        };
        Self(channels.iter().map(|channel| (channel.name(), channel_actions(channel))).collect())
    }

    /// Returns the actions that a channel offers, sorted by name.
    pub(crate) fn actions_of(&self, channel: &ChannelName) -> impl Iterator<Item = &ActionSpec> {
        let actions = self.0.get(channel).into_iter();
        actions.flat_map(|actions| actions.offered.values().map(|action| &action.spec))
    }

    /// Returns the channel object to call, if the channel offers the action and the arguments are valid.
    pub(crate) fn resolve(
        &self,
        channel: &ChannelName,
        action: &str,
        arguments: &JsonObject,
    ) -> Result<&Arc<dyn Channel>, ActionDenial> {
        let unknown = || ActionDenial::Channel(channel.clone());
        let actions = self.0.get(channel).ok_or_else(unknown)?;
        let validator = &actions.offered.get(action).ok_or_else(unknown)?.validator;
        if arguments.values().any(|value| is_deeper_than(value, MAX_ACTION_NESTING)) {
            return Err(ActionDenial::Arguments(format!("they are nested deeper than {MAX_ACTION_NESTING} levels")));
        }
        let arguments = Value::Object(arguments.clone());
        let problems: Vec<String> =
            validator.iter_errors(&arguments).take(MAX_ARGUMENT_ERRORS).map(|error| error.to_string()).collect();
        if problems.is_empty() { Ok(&actions.channel) } else { Err(ActionDenial::Arguments(problems.join("; "))) }
    }
}

fn offered_actions(channel: &dyn Channel) -> BTreeMap<String, OfferedAction> {
    let mut offered = BTreeMap::new();
    for spec in channel.actions() {
        match jsonschema::validator_for(&spec.parameters) {
            _ if spec.name.is_empty() || spec.name.len() > MAX_ACTION_NAME_LEN => {
                tracing::warn!(channel = %channel.name(), "skipping an action: its name is empty or too long");
            }
            Err(error) => {
                let (channel, action) = (channel.name(), spec.name);
                tracing::warn!(%channel, action, %error, "skipping an action: its schema is not valid");
            }
            Ok(validator) => _ = offered.insert(spec.name.clone(), OfferedAction { spec, validator }),
        }
    }
    offered
}

/// Replaces an answer that is too large or nested too deeply for the tape with a text that says so.
pub(crate) fn limit_answer(answer: Value, max_bytes: u64) -> Value {
    let bytes = answer.to_string().len() as u64;
    if bytes > max_bytes {
        return Value::String(format!(
            "the answer was left out: it has {bytes} bytes, more than the {max_bytes} allowed"
        ));
    }
    if is_deeper_than(&answer, MAX_ACTION_NESTING) {
        return Value::String(format!("the answer was left out: it is nested deeper than {MAX_ACTION_NESTING} levels"));
    }
    answer
}
