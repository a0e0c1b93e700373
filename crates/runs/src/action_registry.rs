//! Registry of the platform actions that channels offer.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_hooks::contracts::Channel;
use capstan_protocol::{ApiErrorCode, BindingId, ChannelName, JsonObject, RunnerId};
use capstan_tape::{ActionDenier, is_deeper_than};
use jsonschema::Validator;
use serde_json::Value;

/// Maximum length of the name of an action, in bytes.
pub(crate) const MAX_ACTION_NAME_LEN: usize = 128;

/// Reason why an action is refused.
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
    /// The arguments do not match the schema of the action.
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

/// Maximum nesting of arguments and answers, so that their entries on the tape stay readable.
const MAX_ACTION_NESTING: usize = 64;

/// Platform actions that the channels of a host offer.
#[derive(Default)]
pub(crate) struct ActionRegistry(HashMap<ChannelName, ChannelActions>);

/// Actions of one channel, with the validators of their arguments.
struct ChannelActions {
    channel: Arc<dyn Channel>,
    validators: HashMap<String, Validator>,
}

impl ActionRegistry {
    /// Collects the actions of the channels. An action whose schema is not valid is skipped with a warning.
    pub(crate) fn from_channels(channels: &[Arc<dyn Channel>]) -> Self {
        let actions_of = |channel: &Arc<dyn Channel>| ChannelActions {
            validators: channel_validators(channel.as_ref()),
            channel: Arc::clone(channel),
        };
        Self(channels.iter().map(|channel| (channel.name(), actions_of(channel))).collect())
    }

    /// Returns the channel that performs an action with these arguments, or the reason why none does.
    pub(crate) fn resolve(
        &self,
        channel: &ChannelName,
        action: &str,
        arguments: &JsonObject,
    ) -> Result<&Arc<dyn Channel>, ActionDenial> {
        let unknown = || ActionDenial::Channel(channel.clone());
        let actions = self.0.get(channel).ok_or_else(unknown)?;
        let validator = actions.validators.get(action).ok_or_else(unknown)?;
        if arguments.values().any(|value| is_deeper_than(value, MAX_ACTION_NESTING)) {
            return Err(ActionDenial::Arguments(format!("they are nested deeper than {MAX_ACTION_NESTING} levels")));
        }
        let arguments = Value::Object(arguments.clone());
        let problems: Vec<String> = validator.iter_errors(&arguments).take(3).map(|error| error.to_string()).collect();
        if problems.is_empty() { Ok(&actions.channel) } else { Err(ActionDenial::Arguments(problems.join("; "))) }
    }
}

fn channel_validators(channel: &dyn Channel) -> HashMap<String, Validator> {
    let mut validators = HashMap::new();
    for action in channel.actions() {
        match jsonschema::validator_for(&action.parameters) {
            _ if action.name.is_empty() || action.name.len() > MAX_ACTION_NAME_LEN => {
                tracing::warn!(channel = %channel.name(), "skipping an action: its name is empty or too long");
            }
            Err(error) => {
                let (channel, action) = (channel.name(), action.name);
                tracing::warn!(%channel, action, %error, "skipping an action: its schema is not valid");
            }
            Ok(validator) => _ = validators.insert(action.name, validator),
        }
    }
    validators
}

/// Replaces an answer that is too large or nested too deeply for the tape.
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
