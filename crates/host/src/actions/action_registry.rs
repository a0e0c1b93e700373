//! Registry of the platform actions that channels offer.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_hooks::contracts::Channel;
use capstan_protocol::{ChannelName, JsonObject};
use capstan_tape::is_deeper_than;
use jsonschema::Validator;
use serde_json::Value;

use super::{ActionDenial, MAX_ACTION_NAME_LEN};

/// Maximum nesting of arguments and answers, so that their entries on the tape stay readable.
const MAX_ACTION_NESTING: usize = 64;

/// The actions of all channels, with the validators of their arguments.
#[derive(Default)]
pub(crate) struct ActionRegistry(HashMap<ChannelName, HashMap<String, Validator>>);

impl ActionRegistry {
    /// Collects the actions of the channels. An action whose schema is not valid is skipped with a warning.
    pub(crate) fn from_channels(channels: &[Arc<dyn Channel>]) -> Self {
        Self(channels.iter().map(|channel| (channel.name(), channel_validators(channel.as_ref()))).collect())
    }

    /// Rejects an action that the channel does not offer, and arguments that its schema does not allow.
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
                tracing::warn!(channel = %channel.name(), "skipping an action: its name is empty or too long");
            }
            Err(error) => {
                let (channel, action) = (channel.name(), action.name);
                tracing::warn!(%channel, action, %error, "skipping an action: its schema is not valid");
            }
            Ok(validator) => _ = actions.insert(action.name, validator),
        }
    }
    actions
}

/// Replaces an answer that is too large or nested too deeply for the tape.
pub(super) fn limit_answer(answer: Value, most: u64) -> Value {
    let bytes = answer.to_string().len() as u64;
    if bytes > most {
        return Value::String(format!("the answer was left out: it has {bytes} bytes, more than the {most} allowed"));
    }
    if is_deeper_than(&answer, MAX_ACTION_NESTING) {
        return Value::String(format!("the answer was left out: it is nested deeper than {MAX_ACTION_NESTING} levels"));
    }
    answer
}
