//! What channels can do on their platforms.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_hooks::contracts::Channel;
use capstan_protocol::{ChannelName, JsonObject};
use capstan_tape::is_deeper_than;
use jsonschema::Validator;
use serde_json::Value;

use super::{ActionDenial, MAX_ACTION_NAME_LEN};

/// How deep arguments and answers may be nested, so that the tape can be read again.
const MAX_ACTION_NESTING: usize = 64;

/// The actions of every channel, with what checks their arguments.
#[derive(Default)]
pub(crate) struct ActionRegistry(HashMap<ChannelName, HashMap<String, Validator>>);

impl ActionRegistry {
    /// Asks the channels. An action that cannot be checked is left out, and somebody is told.
    pub(crate) fn from_channels(channels: &[Arc<dyn Channel>]) -> Self {
        Self(channels.iter().map(|channel| (channel.name(), channel_validators(channel.as_ref()))).collect())
    }

    /// Refuses what the channel cannot do, and what it cannot do like this.
    pub(super) fn check(
        &self,
        channel: &ChannelName,
        action: &str,
        arguments: &JsonObject,
    ) -> Result<(), ActionDenial> {
        let validator = self.0.get(channel).and_then(|actions| actions.get(action));
        let validator = validator.ok_or_else(|| ActionDenial::Channel(channel.clone()))?;
        if arguments.values().any(|value| is_deeper_than(value, MAX_ACTION_NESTING)) {
            return Err(ActionDenial::Arguments(format!("they are nested deeper than {MAX_ACTION_NESTING} levels")));
        }
        let arguments = Value::Object(arguments.clone());
        let problems: Vec<String> = validator.iter_errors(&arguments).take(3).map(|error| error.to_string()).collect();
        if problems.is_empty() { Ok(()) } else { Err(ActionDenial::Arguments(problems.join("; "))) }
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
pub(super) fn limit_answer(answer: Value, most: u64) -> Value {
    let bytes = answer.to_string().len() as u64;
    if bytes > most {
        return Value::String(format!("the answer of {bytes} bytes was left out: the host takes {most}"));
    }
    if is_deeper_than(&answer, MAX_ACTION_NESTING) {
        return Value::String(format!("the answer was left out: it is nested deeper than {MAX_ACTION_NESTING} levels"));
    }
    answer
}
