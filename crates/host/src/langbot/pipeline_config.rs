//! What a pipeline of an older host is set to.

use capstan_protocol::{ChannelName, DeliveryPolicy, JsonObject, RunnerId};
use serde::Deserialize;
use serde_json::Value;

/// What older hosts call their own agent.
const LOCAL_AGENT_RUNNER: &str = "local-agent";
/// How long a history that one looks at may be. Here the agent's view of the tape decides.
const MAX_ROUND_KEY: &str = "max-round";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineConfig {
    pub(super) ai: AiConfig,
    #[serde(default)]
    pub(super) output: OutputConfig,
}

/// Which runner, and what each is set to: those that are not chosen do not matter.
#[derive(Debug, Deserialize)]
pub(super) struct AiConfig {
    runner: RunnerChoice,
    #[serde(flatten)]
    configs: JsonObject,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RunnerChoice {
    runner: String,
    /// After how many seconds a conversation begins anew; 0 is never.
    #[serde(default)]
    expire_time: u64,
}

impl AiConfig {
    /// The runner and its configuration.
    pub(super) fn into_runner(mut self) -> Result<(RunnerId, JsonObject), String> {
        let name = self.runner.runner;
        if self.runner.expire_time != 0 {
            return Err("ai.runner.expire-time asks for conversations that begin anew by themselves".to_owned());
        }
        let mut config = match self.configs.remove(&name) {
            None => JsonObject::new(),
            Some(Value::Object(config)) => config,
            Some(_) => return Err(format!("ai.{name} must be an object")),
        };
        if name == LOCAL_AGENT_RUNNER {
            config.remove(MAX_ROUND_KEY);
            return Ok(("builtin:agent".into(), config));
        }
        Ok((name.into(), config))
    }
}

/// Which extensions a pipeline uses.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExtensionPreferences {
    enable_all_plugins: bool,
    plugins: Vec<PipelinePlugin>,
    enable_all_mcp_servers: bool,
    mcp_servers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PipelinePlugin {
    author: String,
    name: String,
}

impl Default for ExtensionPreferences {
    fn default() -> Self {
        Self { enable_all_plugins: true, plugins: Vec::new(), enable_all_mcp_servers: true, mcp_servers: Vec::new() }
    }
}

impl ExtensionPreferences {
    /// The plugins whose tools are used, as `author/name`; none: all of them.
    pub(super) fn into_plugin_names(self) -> Result<Option<Vec<String>>, String> {
        if let Some(server) = self.mcp_servers.first().filter(|_| !self.enable_all_mcp_servers) {
            return Err(format!("extensions_preferences names the MCP server {server}, and this host has none"));
        }
        let named = || self.plugins.iter().map(|plugin| format!("{}/{}", plugin.author, plugin.name)).collect();
        Ok((!self.enable_all_plugins).then(named))
    }
}

/// How a pipeline answers. What asks for nothing is taken; what asks for more than this host does is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OutputConfig {
    long_text_processing: LongTextConfig,
    force_delay: DelayConfig,
    misc: MiscConfig,
    /// Whether answers are shown while they are made.
    stream: Option<bool>,
    /// The channel to answer on.
    channel: Option<ChannelName>,
    /// Whether nothing is sent.
    silent: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct LongTextConfig {
    #[serde(rename = "threshold")]
    _threshold: u64,
    strategy: Option<String>,
    #[serde(rename = "font-path")]
    _font_path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DelayConfig {
    min: f64,
    max: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a wire format of independent switches")]
struct MiscConfig {
    at_sender: bool,
    quote_origin: bool,
    track_function_calls: bool,
    /// No notice of this host shows what went wrong inside.
    #[serde(rename = "hide-exception")]
    _hide_exception: bool,
    /// Reasoning is never a part of an answer.
    #[serde(rename = "remove-think")]
    _remove_think: bool,
}

/// How a query is answered.
pub(super) struct QueryDelivery {
    pub(super) policy: DeliveryPolicy,
    /// Whether the answer refers to the message.
    pub(super) quotes_message: bool,
}

impl OutputConfig {
    pub(super) fn into_delivery(self) -> Result<QueryDelivery, String> {
        let asks_for_much = [
            ("long-text-processing.strategy", self.long_text_processing.strategy.is_some_and(|how| how != "none")),
            ("force-delay", self.force_delay.min > 0.0 || self.force_delay.max > 0.0),
            ("misc.at-sender", self.misc.at_sender),
            ("misc.track-function-calls", self.misc.track_function_calls),
        ];
        if let Some((key, _)) = asks_for_much.into_iter().find(|(_, asks)| *asks) {
            return Err(format!("output.{key} asks for something that this host does not do"));
        }
        let policy = DeliveryPolicy {
            no_stream: self.stream == Some(false),
            admission: None,
            output_channel: self.channel,
            chat_id: None,
            silent: self.silent,
        };
        Ok(QueryDelivery { policy, quotes_message: self.misc.quote_origin })
    }
}
