//! The door for pipelines of older hosts: a query, with the pipeline it ran in, becomes an event and a binding of its own
//! and takes the road of every event.
//!
//! The configuration of the pipeline's runner becomes the binding's runner and its configuration, the preferences about
//! extensions become the resource policy, the output settings become the delivery policy. What asks for something that
//! this host cannot do is refused, and so is every field that is not known: nothing is dropped in silence.

mod message_chain;
mod pipeline_config;

use capstan_policy::bindings::{PIPELINE_BINDING_PREFIX, validate_binding};
use capstan_policy::{BindingError, default_binding};
use capstan_protocol::{
    Binding, ChannelName, CodedError, EnvelopeError, Event, JsonObject, ResourceAccess, ResourcePolicy,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::message_chain::MessageChain;
use self::pipeline_config::{ExtensionPreferences, PipelineConfig};
use crate::{Host, IncomingEvent};

/// Why a query was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum LangBotQueryError {
    /// It is no query, or asks for what cannot be done.
    #[error("the query cannot be taken: {0}")]
    #[code(QueryInvalid)]
    Invalid(String),
    /// The binding that it becomes makes no sense.
    #[error(transparent)]
    #[code(transparent)]
    Binding(#[from] BindingError),
}

impl From<EnvelopeError> for LangBotQueryError {
    fn from(error: EnvelopeError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A query, as older hosts have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LangBotQuery {
    /// Its number there, which begins anew with each start of that host: it does not tell events apart.
    query_id: Option<TextOrNumber>,
    /// Tells events apart, where the sender wants that.
    event_id: Option<String>,
    adapter: String,
    bot_uuid: Option<String>,
    pipeline_uuid: String,
    launcher_type: LauncherType,
    launcher_id: TextOrNumber,
    sender_id: TextOrNumber,
    sender_name: Option<String>,
    text: Option<String>,
    message_chain: Option<MessageChain>,
    #[serde(default)]
    variables: JsonObject,
    pipeline_config: PipelineConfig,
    #[serde(default)]
    extensions_preferences: ExtensionPreferences,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LauncherType {
    Person,
    Group,
}

/// A name that some platforms write as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a name is a text or a number")]
enum TextOrNumber {
    Text(String),
    Number(i64),
}

impl TextOrNumber {
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// A query as this host sees it.
#[derive(Debug, PartialEq)]
struct MappedQuery {
    event: Event,
    /// Without the tools that its plugins have.
    binding: Binding,
    /// The plugins whose tools it may use; absent: all.
    plugins: Option<Vec<String>>,
}

/// Reads a query. Nothing is looked up.
fn map_query(query: Value) -> Result<MappedQuery, LangBotQueryError> {
    let invalid = |detail: String| LangBotQueryError::Invalid(detail);
    let query: LangBotQuery = serde_json::from_value(query).map_err(|error| invalid(error.to_string()))?;
    let said = match (query.text, query.message_chain) {
        (Some(text), None) => message_chain::QueryMessage::from_text(text),
        (None, Some(chain)) => chain.into_message().map_err(invalid)?,
        _ => return Err(invalid("it has either a text or a message_chain".to_owned())),
    };
    let launcher = match query.launcher_type {
        LauncherType::Person => "person",
        LauncherType::Group => "group",
    };
    let output = query.pipeline_config.output.into_delivery().map_err(invalid)?;
    let mut metadata = JsonObject::from_iter([("pipeline_uuid".to_owned(), json!(query.pipeline_uuid))]);
    metadata.extend(query.query_id.map(|id| ("query_id".to_owned(), json!(id.to_text()))));
    metadata.extend(said.id.as_ref().map(|id| ("message_id".to_owned(), json!(id))));
    if !query.variables.is_empty() {
        metadata.insert("variables".to_owned(), Value::Object(query.variables));
    }
    let event = Event::from_envelope(json!({
        "event_type": "message.received",
        "event_id": query.event_id,
        "event_time": said.time,
        "source": query.adapter,
        "bot_id": query.bot_uuid,
        "conversation_id": format!("{launcher}_{}", query.launcher_id.to_text()),
        "actor": { "id": query.sender_id.to_text(), "name": query.sender_name },
        "input": { "text": said.text, "contents": said.contents },
        "delivery": { "reply_to": said.id.filter(|_| output.quotes_message) },
        "metadata": metadata,
    }))?;
    let (runner_id, runner_config) = query.pipeline_config.ai.into_runner().map_err(invalid)?;
    let binding = Binding {
        binding_id: format!("{PIPELINE_BINDING_PREFIX}{}", query.pipeline_uuid).into(),
        runner_id,
        runner_config,
        delivery_policy: output.policy,
        ..default_binding()
    };
    let plugins = query.extensions_preferences.into_plugin_names().map_err(invalid)?;
    Ok(MappedQuery { event, binding, plugins })
}

impl Host {
    /// A query of an older host as an event of this one, with the binding that its pipeline becomes. Whoever
    /// [serves](Self::serve) it has that binding recorded with the event; no other is looked for.
    ///
    /// It is answered on `channel` where its pipeline names none.
    pub fn map_langbot_query(&self, query: Value, channel: &ChannelName) -> Result<IncomingEvent, LangBotQueryError> {
        let MappedQuery { mut event, mut binding, plugins } = map_query(query)?;
        let output = binding.delivery_policy.output_channel.get_or_insert_with(|| channel.clone());
        event.delivery.output_channel = Some(output.clone());
        if let Some(plugins) = plugins {
            let tools = self.tools().names_of_plugins(&plugins).map_err(LangBotQueryError::Invalid)?;
            binding.resource_policy =
                ResourcePolicy { tools: Some(ResourceAccess::only(tools)), ..ResourcePolicy::default() };
        }
        validate_binding(&binding, &self.runners())?;
        Ok(IncomingEvent { event: event.into(), binding: Some(binding) })
    }
}

#[cfg(test)]
mod tests;
