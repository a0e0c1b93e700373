//! The configuration, merged from layers, each value with its origin.
//!
//! # Layers
//!
//! From lowest to highest precedence: defaults, conventional provider variables (`OPENAI_API_KEY`), `config.toml` and
//! `secrets.toml` of the home, `capstan.toml` and `.env` of the workspace, `CAPSTAN_*` variables.
//!
//! # Trust
//!
//! The author of a workspace may not be the user. Each key says if an untrusted workspace may set it, may only lower it, or
//! may not set it at all.

mod channels;
mod error;
mod file_reader;
mod file_writer;
mod key;
mod knowledge;
mod layer;
mod limits;
mod models;
mod plugins;
mod tables;
mod tools;
mod url_secrets;
mod workspace_trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_agent::WorkspaceTrust;
use capstan_hooks::contracts::IntakeOptions;
use capstan_hooks::{PluginConfig, SecretMasker};
use capstan_host::RunLimits;
use capstan_protocol::{ChannelName, ModelId, Reasoning};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

pub use error::ConfigError;
pub(crate) use file_reader::read_home_file;
pub(crate) use file_writer::{edit_toml, find_abandoned_files, write_private_file};
pub use key::{CONFIG_KEYS, ConfigKey};
pub use knowledge::KnowledgeConfig;
pub use layer::SettingOrigin;
pub use models::ProviderConfig;
pub(crate) use plugins::{PLUGIN_TABLE, is_secret_property};
pub use tools::ToolConfig;
pub use workspace_trust::TrustDecision;
pub(crate) use workspace_trust::{TRUST_FILE, TrustRecord, instruction_files};

use layer::{ConfigLayer, ConfigLayers};
use limits::{MAX_TIMEOUT_SECONDS, required_in_range};

/// Maximum of `cancel_grace_seconds`: a stop cancels the remaining turns and ends at most five seconds later.
const MAX_CANCEL_GRACE_SECONDS: u64 = 4;
/// Settings file of a home.
pub(crate) const CONFIG_FILE: &str = "config.toml";
/// Secrets file of a home, separate so that the settings can be shared.
pub(crate) const SECRETS_FILE: &str = "secrets.toml";

/// Storage of tape entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapeStoreKind {
    /// The database of the home.
    Sqlite,
    /// Files with one JSON object per line in the home.
    Jsonl,
}

/// The merged configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Home directory of Capstan.
    pub home: PathBuf,
    /// Model, as `provider:name`.
    pub model: ModelId,
    /// Models to try if the first one fails, in order.
    pub fallback_models: Vec<ModelId>,
    /// Model providers.
    pub providers: Vec<ProviderConfig>,
    /// Reasoning effort of the model.
    pub reasoning: Option<Reasoning>,
    /// Maximum number of steps of a run.
    pub max_steps: u32,
    /// Limits of a run.
    pub limits: RunLimits,
    /// Maximum number of tokens of a reply.
    pub max_tokens: Option<u32>,
    /// Maximum size of a message.
    pub max_message_bytes: usize,
    /// Timeout of a run.
    pub run_timeout: Duration,
    /// Time for a cancelled run to yield its last results.
    pub cancel_grace: Duration,
    /// Maximum wait for a session that another process works on.
    pub session_wait: Duration,
    /// Age from which a message in the outbox is held for the operator; `None`: messages are never held.
    pub delivery_stale_after: Option<Duration>,
    /// Maximum number of queued messages of a session.
    pub session_queue: usize,
    /// Maximum number of turns that run at the same time; without it the limit of open files decides.
    pub max_active_turns: Option<usize>,
    /// Time for running turns to finish when serving stops.
    pub stop_grace: Duration,
    /// Channels that `capstan serve` listens on: names, `all`, and `!NAME` to exclude one.
    pub enabled_channels: Vec<String>,
    /// Intake options that override those of a channel.
    pub intakes: BTreeMap<ChannelName, IntakeOptions>,
    /// Storage of tape entries.
    pub tape_store: TapeStoreKind,
    /// Configuration of the agent's tools and prompts.
    pub tools: ToolConfig,
    /// Knowledge bases.
    pub knowledge: Vec<KnowledgeConfig>,
    /// Decision of the user about the workspace.
    pub trust: TrustDecision,
    layers: ConfigLayers,
    /// Secrets in conventional provider variables.
    provider_variable_secrets: Vec<SecretString>,
}

/// A setting as listed by `capstan config show`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SettingListing {
    /// Full name of the key.
    pub key: String,
    /// Value, masked if secret; absent if not set.
    pub value: Option<String>,
    /// Origin of the value.
    pub origin: String,
}

/// Sources of a configuration.
pub struct ConfigSources {
    /// Home directory of Capstan.
    pub home: PathBuf,
    /// Workspace directory.
    pub workspace: PathBuf,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

impl ConfigSources {
    /// Sources of this process. The home is `CAPSTAN_HOME`, or `.capstan` in the user's home directory.
    pub fn from_process(workspace: &Path) -> Result<Self, ConfigError> {
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let variable = |name: &str| environment.iter().find(|(key, value)| key == name && !value.is_empty());
        let home = match (variable("CAPSTAN_HOME"), variable("HOME")) {
            (Some((_, home)), _) => PathBuf::from(home),
            (None, Some((_, home))) => Path::new(home).join(".capstan"),
            (None, None) => return Err(ConfigError::NoHome),
        };
        Ok(Self { home, workspace: workspace.to_owned(), environment })
    }
}

impl Config {
    /// Reads and merges all layers. Writes nothing.
    pub fn load(sources: ConfigSources) -> Result<Self, ConfigError> {
        check_home(&sources.home)?;
        let layers = vec![
            ConfigLayer::from_home_file(&sources.home.join(CONFIG_FILE))?,
            ConfigLayer::from_home_file(&sources.home.join(SECRETS_FILE))?,
            ConfigLayer::from_workspace_file(&sources.workspace, "capstan.toml")?,
            ConfigLayer::from_dotenv(&sources.workspace, ".env")?,
        ];
        let trust = TrustRecord::load(&sources.home)?.decision(&sources.workspace);
        Self::from_layers(sources.home, layers, sources.environment, trust)
    }

    /// The configuration of a home whose files have these texts, without a workspace.
    pub(crate) fn from_texts(
        home: PathBuf,
        texts: &[(PathBuf, String)],
        environment: Vec<(String, String)>,
    ) -> Result<Self, ConfigError> {
        let layer = |(path, text): &(PathBuf, String)| ConfigLayer::from_text(path, text, SettingOrigin::HomeFile);
        let layers = texts.iter().map(layer).collect::<Result<_, _>>()?;
        Self::from_layers(home, layers, environment, TrustDecision::Undecided)
    }

    fn from_layers(
        home: PathBuf,
        files: Vec<ConfigLayer>,
        environment: Vec<(String, String)>,
        recorded: TrustDecision,
    ) -> Result<Self, ConfigError> {
        let user = environment.iter().find(|(name, value)| name == "HOME" && !value.is_empty());
        let user = user.map(|(_, folder)| PathBuf::from(folder));
        let provider_variable_secrets =
            models::provider_variable_secrets(&environment).into_iter().map(SecretString::from).collect();
        let mut layers = vec![ConfigLayer::defaults(), ConfigLayer::from_provider_variables(&environment)];
        layers.extend(files);
        layers.push(ConfigLayer::from_environment(environment));
        let layers = ConfigLayers::new(layers);
        let trust = if layers.trusts_every_workspace() { TrustDecision::BySetting } else { recorded };
        if !trust.is_trusted() {
            layers.check_workspace_rules()?;
            channels::check_workspace_rules(&layers)?;
        }
        check_api_base(&layers)?;
        let model = configured_model(&layers)?;
        let mut config = Self {
            home,
            providers: models::load_providers(&layers)?,
            fallback_models: models::load_fallback_models(&layers)?,
            reasoning: models::load_reasoning(&layers)?,
            model,
            max_steps: layers.required_positive("max_steps")?,
            limits: limits::load_limits(&layers)?,
            max_tokens: layers.optional_positive("max_tokens")?,
            max_message_bytes: layers.required_positive("max_message_bytes")?,
            run_timeout: Duration::from_secs(required_in_range(
                &layers,
                "run_timeout_seconds",
                1..=MAX_TIMEOUT_SECONDS,
            )?),
            cancel_grace: Duration::from_secs(required_in_range(
                &layers,
                "cancel_grace_seconds",
                0..=MAX_CANCEL_GRACE_SECONDS,
            )?),
            session_wait: Duration::from_secs(required_in_range(
                &layers,
                "session_wait_seconds",
                0..=MAX_TIMEOUT_SECONDS,
            )?),
            delivery_stale_after: match required_in_range(&layers, "delivery_stale_after", 0..=MAX_TIMEOUT_SECONDS)? {
                0 => None,
                seconds => Some(Duration::from_secs(seconds)),
            },
            session_queue: layers.required_positive::<u32>("session_queue")? as usize,
            max_active_turns: layers.optional_positive::<u32>("max_active_turns")?.map(|turns| turns as usize),
            stop_grace: Duration::from_secs(required_in_range(&layers, "stop_grace_seconds", 0..=MAX_TIMEOUT_SECONDS)?),
            enabled_channels: tools::comma_separated(&layers, "enabled_channels"),
            intakes: channels::intakes(&layers)?,
            tape_store: match layers.text("tape_store").as_deref() {
                Some("sqlite") => TapeStoreKind::Sqlite,
                Some("jsonl") => TapeStoreKind::Jsonl,
                _ => return Err(layers.invalid_error("tape_store", "must be sqlite or jsonl")),
            },
            tools: ToolConfig::load(&layers, user.as_deref())?,
            knowledge: knowledge::knowledge_bases(&layers, user.as_deref())?,
            trust,
            layers,
            provider_variable_secrets,
        };
        let rules = &mut config.tools.skills.rules;
        if trust.is_trusted() {
            rules.trust = WorkspaceTrust::Trusted;
        }
        rules.denied = vec![config.home.clone()];
        config.tools.skills.rules.secrets = SecretMasker::new(config.secrets());
        Ok(config)
    }

    /// The model in the home's files, even if another layer overrides it.
    pub(crate) fn home_model(&self) -> Option<ModelId> {
        self.layers.home_value("model")?.parse().ok()
    }

    /// The provider with this name.
    pub fn provider(&self, name: &str) -> Option<&ProviderConfig> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// Keys of settings in the home's files that may hold secrets and are sent to the provider.
    pub(crate) fn stored_secret_names(&self, provider: &str) -> Vec<String> {
        models::stored_secret_names(&self.layers, provider)
    }

    /// All secrets: API keys of all providers from all layers, and passwords in URLs.
    pub fn secrets(&self) -> Vec<String> {
        let variables = self.provider_variable_secrets.iter().map(|secret| secret.expose_secret().to_owned());
        variables.chain(self.layers.secrets()).collect()
    }

    /// Declares the plugins of the distribution, each with the schema of its settings, if it has any.
    pub(crate) fn declare_plugins(&mut self, schemas: BTreeMap<String, Option<Value>>) {
        self.layers.plugins_mut().declare(schemas);
    }

    /// Configuration of a plugin, or the reason why it is not valid.
    pub(crate) fn plugin_config(&self, plugin: &str, schema: Option<&Value>) -> Result<PluginConfig, String> {
        self.layers.plugins().config(plugin, schema)
    }

    /// Warnings about settings of unknown plugins, which have no effect, one line per plugin.
    pub(crate) fn unknown_plugins(&self) -> Vec<String> {
        self.layers.plugins().describe_unknown()
    }

    /// All settings with their origin, secrets masked.
    pub fn list_settings(&self) -> Vec<SettingListing> {
        self.layers.list_settings()
    }

    /// Warnings about settings of unknown channels, which have no effect, one line per channel.
    pub fn unprovided_channels(&self, known: &[ChannelName]) -> Vec<String> {
        channels::describe_unprovided(&self.layers, known)
    }

    /// `CAPSTAN_*` variables that match no configuration key.
    pub fn unknown_variables(&self) -> &[String] {
        self.layers.unknown_variables()
    }
}

/// Refuses a home that is not a directory, or that another user controls, before anything in it is used. The home may be
/// missing, and a home that cannot be inspected fails when it is read.
pub(crate) fn check_home(home: &Path) -> Result<(), ConfigError> {
    match std::fs::metadata(home) {
        Ok(found) if !found.is_dir() => Err(ConfigError::HomeNotDirectory { path: home.display().to_string() }),
        Ok(found) => file_reader::check_access(home, &found),
        Err(_) => Ok(()),
    }
}

/// Loads the model. Only the offline provider may lack a model name.
fn configured_model(layers: &ConfigLayers) -> Result<ModelId, ConfigError> {
    let model: ModelId = layers.required("model")?;
    if model.name().is_empty() && model.provider() != "demo" {
        return Err(layers.invalid_error("model", "the name after the colon is missing"));
    }
    Ok(model)
}

/// Validates the plain `api_base`, even if it belongs to no provider in use.
fn check_api_base(layers: &ConfigLayers) -> Result<(), ConfigError> {
    match layers.text("api_base") {
        Some(base) if !models::is_http_address(&base) => Err(layers.invalid_error("api_base", models::ADDRESS_RULE)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
