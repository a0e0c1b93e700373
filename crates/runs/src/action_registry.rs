//! What channels can do on their platforms.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_hooks::contracts::Channel;
use capstan_protocol::{ApiErrorCode, BindingId, ChannelName, JsonObject, RunnerId};
use capstan_tape::{ActionDenier, is_deeper_than};
use jsonschema::Validator;
use serde_json::Value;

/// How long the name of an action may be.
pub(crate) const MAX_ACTION_NAME_LEN: usize = 128;

/// Who does not let an action be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionDenial {
    /// The runner's permissions do not name it.
    #[error("the runner {0} does not ask for it")]
    Runner(RunnerId),
    /// The binding's policy does not name it.
    #[error("the binding {0} does not allow it")]
    Binding(BindingId),
    /// The event came from where no such thing can be done.
    #[error("the channel {0} has no such action")]
    Channel(ChannelName),
    /// It cannot be done with these arguments.
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

/// How deep arguments and answers may be nested, so that the tape can be read again.
const MAX_ACTION_NESTING: usize = 64;

/// The actions of every channel, with what checks their arguments.
#[derive(Default)]
pub(crate) struct ActionRegistry(HashMap<ChannelName, ChannelActions>);

/// Actions of one channel, with the validators of their arguments.
struct ChannelActions {
    channel: Arc<dyn Channel>,
    validators: HashMap<String, Validator>,
}

impl ActionRegistry {
    /// Asks the channels. An action that cannot be checked is left out, and somebody is told.
    pub(crate) fn from_channels(channels: &[Arc<dyn Channel>]) -> Self {
        let actions = |channel: &Arc<dyn Channel>| ChannelActions {
            validators: channel_validators(channel.as_ref()),
            channel: Arc::clone(channel),
        };
        Self(channels.iter().map(|channel| (channel.name(), actions(channel))).collect())
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
    let mut actions = HashMap::new();
    for action in channel.actions() {
        match jsonschema::validator_for(&action.parameters) {
            _ if action.name.is_empty() || action.name.len() > MAX_ACTION_NAME_LEN => {
                tracing::warn!(channel = %channel.name(), "an action is left out: its name is empty or too long");
            }
            Err(error) => {
                let (channel, action) = (channel.name(), action.name);
                tracing::warn!(%channel, action, %error, "an action is left out: its schema is not valid");
            }
            Ok(validator) => _ = actions.insert(action.name, validator),
        }
    }
    actions
}

/// What the tape can take of a platform's answer: one that is too large or too deep is left out.
pub(crate) fn limit_answer(answer: Value, most: u64) -> Value {
    let bytes = answer.to_string().len() as u64;
    if bytes > most {
        return Value::String(format!("the answer of {bytes} bytes was left out: the host takes {most}"));
    }
    if is_deeper_than(&answer, MAX_ACTION_NESTING) {
        return Value::String(format!("the answer was left out: it is nested deeper than {MAX_ACTION_NESTING} levels"));
    }
    answer
}
