//! Pipeline configuration of LangBot.

use capstan_protocol::{ChannelName, DeliveryPolicy, JsonObject, ModelId, RunnerId};
use serde::Deserialize;
use serde_json::Value;

/// LangBot's names for its own agent: up to 4.10, and those of the plugins that replaced it.
const LOCAL_AGENT_RUNNERS: [&str; 3] =
    ["local-agent", "plugin:langbot/local-agent/default", "plugin:langbot-team/LocalAgent/default"];
/// LangBot's limit for the length of the history. Here the agent's view of the tape decides.
const MAX_ROUND_KEY: &str = "max-round";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineConfig {
    pub(super) ai: AiConfig,
    #[serde(default)]
    pub(super) output: OutputConfig,
    /// Accepted without effect: LangBot applies its trigger rules before it asks a runner.
    #[serde(default, rename = "trigger")]
    _trigger: JsonObject,
    /// Accepted without effect: LangBot applies its filters and rate limits itself.
    #[serde(default, rename = "safety")]
    _safety: JsonObject,
}

/// The chosen runner, and the configurations of all runners: only that of the chosen one is used.
#[derive(Debug, Deserialize)]
pub(super) struct AiConfig {
    runner: RunnerChoice,
    /// Configurations by runner, since LangBot 4.11.
    #[serde(default)]
    runner_config: JsonObject,
    /// Configurations by runner, up to LangBot 4.10.
    #[serde(flatten)]
    configs: JsonObject,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RunnerChoice {
    /// Id of the runner. The key was `runner` up to LangBot 4.10.
    #[serde(alias = "runner")]
    id: String,
    /// Seconds after which a new conversation begins; 0 means never.
    #[serde(default)]
    expire_time: u64,
}

impl AiConfig {
    /// The runner, its configuration, and the knowledge bases that it may query.
    pub(super) fn into_runner(mut self) -> Result<PipelineRunner, String> {
        let name = self.runner.id;
        if name.is_empty() {
            return Err("ai.runner.id is empty: select a runner in the pipeline".to_owned());
        }
        if self.runner.expire_time != 0 {
            return Err("ai.runner.expire-time requests conversations that expire, which is not supported".to_owned());
        }
        let mut config = match self.runner_config.remove(&name).or_else(|| self.configs.remove(&name)) {
            None => JsonObject::new(),
            Some(Value::Object(config)) => config,
            Some(_) => return Err(format!("the configuration of the runner {name} must be an object")),
        };
        if LOCAL_AGENT_RUNNERS.contains(&name.as_str()) {
            config.remove(MAX_ROUND_KEY);
            return LocalAgentConfig::parse(config)?.into_runner();
        }
        Ok(PipelineRunner { id: name.into(), config, knowledge_bases: None })
    }
}

/// The runner of a pipeline.
pub(super) struct PipelineRunner {
    pub(super) id: RunnerId,
    pub(super) config: JsonObject,
    /// Knowledge bases that the runner may query; `None` means all.
    pub(super) knowledge_bases: Option<Vec<String>>,
}

/// Configuration of LangBot's own agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct LocalAgentConfig {
    model: LocalAgentModel,
    prompt: Vec<PromptMessage>,
    knowledge_bases: Option<Vec<String>>,
    /// The one knowledge base that LangBot up to 4.5 supports.
    knowledge_base: Option<String>,
}

/// A model: its name, or since LangBot 4.9 a name with fallbacks. An empty name means none.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "model must be a string, or an object with primary and fallbacks")]
enum LocalAgentModel {
    Name(String),
    WithFallbacks {
        #[serde(default)]
        primary: String,
        #[serde(default)]
        fallbacks: Vec<String>,
    },
}

impl Default for LocalAgentModel {
    fn default() -> Self {
        Self::Name(String::new())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptMessage {
    role: String,
    content: String,
}

impl LocalAgentConfig {
    fn parse(config: JsonObject) -> Result<Self, String> {
        serde_json::from_value(Value::Object(config))
            .map_err(|error| format!("the configuration of LangBot's own agent cannot be mapped: {error}"))
    }

    /// Maps the configuration to that of the built-in agent. The prompt is added to that of the host: a pipeline comes
    /// with an event, and cannot take away the instructions of the operator.
    fn into_runner(self) -> Result<PipelineRunner, String> {
        let (primary, fallbacks) = match self.model {
            LocalAgentModel::Name(name) => (name, Vec::new()),
            LocalAgentModel::WithFallbacks { primary, fallbacks } => (primary, fallbacks),
        };
        let mut config = JsonObject::new();
        if !primary.is_empty() {
            config.insert("model".to_owned(), Value::from(check_model(primary)?));
        }
        if !fallbacks.is_empty() {
            let fallbacks = fallbacks.into_iter().map(check_model).collect::<Result<Vec<_>, _>>()?;
            config.insert("fallbacks".to_owned(), Value::from(fallbacks));
        }
        if let Some(message) = self.prompt.iter().find(|message| message.role != "system") {
            let role = &message.role;
            return Err(format!("the prompt has a message of the role {role}; only system messages are supported"));
        }
        let prompt: Vec<String> = self.prompt.into_iter().map(|message| message.content).collect();
        if prompt.iter().any(|text| !text.trim().is_empty()) {
            config.insert("prompt".to_owned(), Value::from(prompt.join("\n\n")));
        }
        let single = self.knowledge_base.filter(|base| !base.is_empty()).map(|base| vec![base]);
        Ok(PipelineRunner { id: "builtin:agent".into(), config, knowledge_bases: self.knowledge_bases.or(single) })
    }
}

/// Checks that a model is written as `PROVIDER:NAME`. LangBot's own model ids mean nothing here.
fn check_model(name: String) -> Result<String, String> {
    match name.parse::<ModelId>() {
        Ok(_) => Ok(name),
        Err(_) => Err(format!(
            "the model {name:?} is not of the form PROVIDER:NAME (ids of LangBot's database are not supported); correct it, \
             or leave it empty"
        )),
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

/// Output settings of a pipeline.
///
/// A reply without a channel returns to LangBot, which applies its own output settings to it. Unsupported settings are
/// therefore rejected only if the pipeline names a channel of this host, except `misc.track-function-calls`, which is always
/// rejected.
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
#[serde(default, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a wire format of independent switches")]
struct MiscConfig {
    at_sender: bool,
    quote_origin: bool,
    track_function_calls: bool,
    exception_handling: ExceptionHandling,
    /// Accepted without effect: notices of this host never show internal errors.
    #[serde(rename = "hide-exception")]
    _hide_exception: bool,
    /// Accepted without effect: reasoning is never part of a reply.
    #[serde(rename = "remove-think")]
    _remove_think: bool,
    /// Texts of LangBot's notices, such as `failure-hint`.
    #[serde(flatten)]
    hints: JsonObject,
}

/// Notice of a failed run.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExceptionHandling {
    /// Accepted as a notice: this host never shows internal errors in a chat.
    ShowError,
    #[default]
    ShowHint,
    Hide,
}

impl MiscConfig {
    /// Key of the first notice with a custom text.
    fn custom_hint(&self) -> Result<Option<&str>, String> {
        for (key, value) in &self.hints {
            match value {
                Value::String(_) if !key.ends_with("-hint") => return Err(format!("unknown field `{key}`")),
                Value::String(text) if text.is_empty() => {}
                Value::String(_) => return Ok(Some(key)),
                _ => return Err(format!("unknown field `{key}`")),
            }
        }
        Ok(None)
    }
}

/// Delivery settings of a query.
pub(super) struct QueryDelivery {
    pub(super) policy: DeliveryPolicy,
    /// The reply refers to the message of the query.
    pub(super) quotes_message: bool,
}

impl OutputConfig {
    pub(super) fn into_delivery(self) -> Result<QueryDelivery, String> {
        let custom_hint = self.misc.custom_hint()?.map(|hint| format!("misc.{hint}"));
        let unsupported = [
            ("long-text-processing.strategy", self.long_text_processing.strategy.is_some_and(|name| name != "none")),
            ("force-delay", self.force_delay.min > 0.0 || self.force_delay.max > 0.0),
            ("misc.at-sender", self.misc.at_sender),
            ("misc.exception-handling", self.misc.exception_handling == ExceptionHandling::Hide),
            (custom_hint.as_deref().unwrap_or_default(), custom_hint.is_some()),
        ];
        let rejected = unsupported.into_iter().find(|(_, is_requested)| *is_requested && self.channel.is_some());
        if let Some((key, _)) = rejected {
            return Err(format!(
                "output.{key} requests a feature that channels do not support; remove it, or output.channel, so that \
                 LangBot sends the reply"
            ));
        }
        if self.misc.track_function_calls {
            return Err("output.misc.track-function-calls requests a feature that is not supported".to_owned());
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
