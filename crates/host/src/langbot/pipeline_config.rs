//! Pipeline configuration of LangBot.

use capstan_protocol::{ChannelName, DeliveryPolicy, JsonObject, RunnerId};
use serde::Deserialize;
use serde_json::Value;

/// LangBot's name for its own agent.
const LOCAL_AGENT_RUNNER: &str = "local-agent";
/// LangBot's limit for the length of the history. Here the agent's view of the tape decides.
const MAX_ROUND_KEY: &str = "max-round";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineConfig {
    pub(super) ai: AiConfig,
    #[serde(default)]
    pub(super) output: OutputConfig,
}

/// The chosen runner, and the configurations of all runners: only that of the chosen one is used.
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
    /// Seconds after which a new conversation begins; 0 means never.
    #[serde(default)]
    expire_time: u64,
}

impl AiConfig {
    /// The runner and its configuration.
    pub(super) fn into_runner(mut self) -> Result<(RunnerId, JsonObject), String> {
        let name = self.runner.runner;
        if self.runner.expire_time != 0 {
            return Err("ai.runner.expire-time requests conversations that expire, which is not supported".to_owned());
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

/// The extensions that a pipeline uses.
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
    /// The plugins whose tools are used, as `author/name`; `None` means all.
    pub(super) fn into_plugin_names(self) -> Result<Option<Vec<String>>, String> {
        if let Some(server) = self.mcp_servers.first().filter(|_| !self.enable_all_mcp_servers) {
            return Err(format!("extensions_preferences names the MCP server {server}, which is not available here"));
        }
        let named = || self.plugins.iter().map(|plugin| format!("{}/{}", plugin.author, plugin.name)).collect();
        Ok((!self.enable_all_plugins).then(named))
    }
}

/// Output settings of a pipeline. Values that request nothing are accepted; values that request an unsupported feature
/// are rejected.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OutputConfig {
    long_text_processing: LongTextConfig,
    force_delay: DelayConfig,
    misc: MiscConfig,
    /// Streams the reply while it is generated.
    stream: Option<bool>,
    /// The channel that the reply goes to.
    channel: Option<ChannelName>,
    /// Sends no reply.
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
    /// Accepted without effect: notices of this host never show internal errors.
    #[serde(rename = "hide-exception")]
    _hide_exception: bool,
    /// Accepted without effect: reasoning is never part of a reply.
    #[serde(rename = "remove-think")]
    _remove_think: bool,
}

/// Delivery settings of a query.
pub(super) struct QueryDelivery {
    pub(super) policy: DeliveryPolicy,
    /// The reply refers to the message of the query.
    pub(super) quotes_message: bool,
}

impl OutputConfig {
    pub(super) fn into_delivery(self) -> Result<QueryDelivery, String> {
        let unsupported = [
            ("long-text-processing.strategy", self.long_text_processing.strategy.is_some_and(|name| name != "none")),
            ("force-delay", self.force_delay.min > 0.0 || self.force_delay.max > 0.0),
            ("misc.at-sender", self.misc.at_sender),
            ("misc.track-function-calls", self.misc.track_function_calls),
        ];
        if let Some((key, _)) = unsupported.into_iter().find(|(_, is_requested)| *is_requested) {
            return Err(format!("output.{key} requests a feature that is not supported"));
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
