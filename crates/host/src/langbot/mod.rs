//! LangBot queries: a query, with the configuration of its pipeline, becomes an event and a binding of its own, and is
//! then processed like every other event.
//!
//! # Mapping
//!
//! The configuration of the pipeline's runner becomes the binding's runner and its configuration, the extension
//! preferences become the resource policy, and the output settings become the delivery policy. Stages that LangBot runs
//! itself, before it asks a runner or after it has the reply, are accepted and have no effect here. Other settings that
//! this host does not support and unknown fields are rejected: nothing is ignored silently.

mod message_chain;
mod pipeline_config;

use capstan_policy::bindings::PIPELINE_BINDING_PREFIX;
use capstan_policy::{BindingError, default_binding};
use capstan_protocol::{
    AllowList, Binding, ChannelName, CodedError, ConversationKind, EnvelopeError, Event, JsonObject, ResourceAccess,
    ResourcePolicy,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::message_chain::MessageChain;
use self::pipeline_config::{ExtensionPreferences, PipelineConfig};
use crate::{Host, IncomingEvent};

/// Errors that reject a LangBot query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum LangBotQueryError {
    /// The document is not a query, or requests something that this host does not support.
    #[error("the query is not valid: {0}")]
    #[code(QueryInvalid)]
    Invalid(String),
    /// The binding made from the query is not valid.
    #[error(transparent)]
    #[code(transparent)]
    Binding(#[from] BindingError),
}

impl From<EnvelopeError> for LangBotQueryError {
    fn from(error: EnvelopeError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A query in the format of LangBot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LangBotQuery {
    /// Number of the query in LangBot. It restarts with each start of LangBot, so it does not identify an event.
    query_id: Option<TextOrNumber>,
    /// Identifies the event, if the sender wants duplicates detected.
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

/// An id that some platforms write as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "an id must be a string or a number")]
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

/// A query converted to the host's own types.
#[derive(Debug, PartialEq)]
struct MappedQuery {
    event: Event,
    /// The binding, without the tools of its plugins.
    binding: Binding,
    /// The plugins whose tools the binding may use; `None` means all.
    plugins: Option<Vec<String>>,
}

/// Converts a query, without looking anything up.
fn map_query(query: Value) -> Result<MappedQuery, LangBotQueryError> {
    let invalid = |detail: String| LangBotQueryError::Invalid(detail);
    let query: LangBotQuery = serde_json::from_value(query).map_err(|error| invalid(error.to_string()))?;
    let message = match (query.text, query.message_chain) {
        (Some(text), None) => message_chain::QueryMessage::from_text(text),
        (None, Some(chain)) => chain.into_message().map_err(invalid)?,
        _ => return Err(invalid("it needs either a text or a message_chain".to_owned())),
    };
    let (launcher, kind) = match query.launcher_type {
        LauncherType::Person => ("person", ConversationKind::Private),
        LauncherType::Group => ("group", ConversationKind::Group),
    };
    let output = query.pipeline_config.output.into_delivery().map_err(invalid)?;
    let mut metadata = JsonObject::from_iter([("pipeline_uuid".to_owned(), json!(query.pipeline_uuid))]);
    metadata.extend(query.query_id.map(|id| ("query_id".to_owned(), json!(id.to_text()))));
    metadata.extend(message.id.as_ref().map(|id| ("message_id".to_owned(), json!(id))));
    if !query.variables.is_empty() {
        metadata.insert("variables".to_owned(), Value::Object(query.variables));
    }
    let event = Event::from_envelope(json!({
        "event_type": "message.received",
        "event_id": query.event_id,
        "event_time": message.time,
        "source": query.adapter,
        "bot_id": query.bot_uuid,
        "conversation_id": format!("{launcher}_{}", query.launcher_id.to_text()),
        "conversation_kind": kind,
        "actor": { "id": query.sender_id.to_text(), "name": query.sender_name },
        "input": { "text": message.text, "contents": message.contents },
        "delivery": { "reply_to": message.id.filter(|_| output.quotes_message) },
        "metadata": metadata,
    }))?;
    let runner = query.pipeline_config.ai.into_runner().map_err(invalid)?;
    let bases = runner.knowledge_bases.map(ResourceAccess::only);
    let binding = Binding {
        binding_id: format!("{PIPELINE_BINDING_PREFIX}{}", query.pipeline_uuid).into(),
        runner_id: runner.id,
        runner_config: runner.config,
        resource_policy: ResourcePolicy { knowledge_bases: bases, ..ResourcePolicy::default() },
        delivery_policy: output.policy,
        ..default_binding()
    };
    let plugins = query.extensions_preferences.into_plugin_names().map_err(invalid)?;
    Ok(MappedQuery { event, binding, plugins })
}

impl Host {
    /// Converts a LangBot query into an event with the binding of its pipeline. When the event is
    /// [served](Self::serve), that binding is recorded with it and no other binding is looked up.
    ///
    /// The reply goes to `channel` if the pipeline names no channel.
    pub fn map_langbot_query(&self, query: Value, channel: &ChannelName) -> Result<IncomingEvent, LangBotQueryError> {
        let MappedQuery { mut event, mut binding, plugins } = map_query(query)?;
        let output = binding.delivery_policy.output_channel.get_or_insert_with(|| channel.clone());
        event.delivery.output_channel = Some(output.clone());
        if let Some(plugins) = plugins {
            let tools = self.tools().names_of_plugins(&plugins).map_err(LangBotQueryError::Invalid)?;
            binding.resource_policy.tools = Some(ResourceAccess::only(tools));
        }
        if let Some(unknown) = self.unknown_knowledge_base(&binding) {
            let message = format!("it names the knowledge base {unknown:?}, which is not there");
            return Err(LangBotQueryError::Invalid(message));
        }
        self.bindings().check_runner_fit(&binding, &self.runners())?;
        Ok(IncomingEvent { binding: Some(binding), ..event.into() })
    }

    /// A knowledge base that the policy of a binding names and the host does not have.
    fn unknown_knowledge_base(&self, binding: &Binding) -> Option<String> {
        let AllowList::Only(names) = &binding.resource_policy.knowledge_bases.as_ref()?.names else { return None };
        names.iter().find(|name| !self.has_knowledge_base(name)).cloned()
    }
}

#[cfg(test)]
mod tests;
