//! One configuration, in layers: defaults, the home's `config.toml` and `secrets.toml`, the workspace's `capstan.toml`
//! and `.env`, the environment. Every value knows where it came from.

mod channels;
mod error;
mod file_reader;
mod key;
mod knowledge;
mod layer;
mod limits;
mod models;
mod tables;
mod tools;
mod written;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_hooks::contracts::IntakeOptions;
use capstan_host::RunLimits;
use capstan_protocol::{ChannelName, ModelId, Reasoning};
use secrecy::{ExposeSecret as _, SecretString};

pub use error::ConfigError;
pub(crate) use file_reader::read_home_file as read_of_home;
pub use key::{CONFIG_KEYS, ConfigKey};
pub use knowledge::KnowledgeConfig;
pub use layer::SettingOrigin;
pub use models::ProviderConfig;
pub use tools::ToolConfig;
pub(crate) use written::{edit_toml, write_private_file};

use layer::{ConfigLayer, ConfigLayers};
use limits::{MAX_TIMEOUT_SECONDS, required_in_range};

/// The file of a home that has its settings.
pub(crate) const CONFIG_FILE: &str = "config.toml";
/// The file of a home that has its secrets, apart from what one shows to others.
pub(crate) const SECRETS_FILE: &str = "secrets.toml";

/// Where the entries of tapes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapeStoreKind {
    /// In the database of the home.
    Sqlite,
    /// In files of one JSON object per line, under the home.
    Jsonl,
}

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where Capstan keeps what it must not lose.
    pub home: PathBuf,
    /// The model, as `provider:name`.
    pub model: ModelId,
    /// The models to try when that one fails, in order.
    pub fallback_models: Vec<ModelId>,
    /// The providers of models.
    pub providers: Vec<ProviderConfig>,
    /// How much the model should think before it answers.
    pub reasoning: Option<Reasoning>,
    /// How many steps a run may take.
    pub max_steps: u32,
    /// How much a run may do.
    pub limits: RunLimits,
    /// How many tokens a reply may have.
    pub max_tokens: Option<u32>,
    /// How large a message may be.
    pub max_message_bytes: usize,
    /// How long a run may take.
    pub run_timeout: Duration,
    /// How long a message waits for a session another process works on.
    pub session_wait: Duration,
    /// How many messages of a session may wait for their turn.
    pub session_queue: usize,
    /// How long running turns may take to end when serving is stopped.
    pub stop_grace: Duration,
    /// How what a channel hears is taken in, where that is not left to the channel.
    pub intakes: BTreeMap<ChannelName, IntakeOptions>,
    /// Where the entries of tapes are kept.
    pub tape_store: TapeStoreKind,
    /// What the user sets for the agent's tools and prompts.
    pub tools: ToolConfig,
    /// The folders that agents can be allowed to search.
    pub knowledge: Vec<KnowledgeConfig>,
    layers: ConfigLayers,
    /// What the usual variables of providers hold.
    provider_variable_secrets: Vec<SecretString>,
}

/// A setting as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SettingListing {
    /// Its name.
    pub key: String,
    /// Its value, masked where it is a secret; absent where it is not set.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: String,
}

/// Where a configuration is read from.
pub struct ConfigSources {
    /// The home of Capstan.
    pub home: PathBuf,
    /// The workspace.
    pub workspace: PathBuf,
    /// The environment.
    pub environment: Vec<(String, String)>,
}

impl ConfigSources {
    /// The sources of this process for a workspace. The home is `CAPSTAN_HOME`, else `.capstan` in the user's own.
    pub fn from_process(workspace: &Path) -> Result<Self, ConfigError> {
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let set = |name: &str| environment.iter().find(|(key, value)| key == name && !value.is_empty());
        let home = match (set("CAPSTAN_HOME"), set("HOME")) {
            (Some((_, home)), _) => PathBuf::from(home),
            (None, Some((_, home))) => Path::new(home).join(".capstan"),
            (None, None) => return Err(ConfigError::NoHome),
        };
        Ok(Self { home, workspace: workspace.to_owned(), environment })
    }
}

impl Config {
    /// Reads every layer. Nothing is written.
    pub fn load(sources: ConfigSources) -> Result<Self, ConfigError> {
        if sources.home.exists() && !sources.home.is_dir() {
            return Err(ConfigError::HomeNotDirectory { path: sources.home.display().to_string() });
        }
        let layers = vec![
            ConfigLayer::from_home_file(&sources.home.join(CONFIG_FILE))?,
            ConfigLayer::from_home_file(&sources.home.join(SECRETS_FILE))?,
            ConfigLayer::from_workspace_file(&sources.workspace, "capstan.toml")?,
            ConfigLayer::from_dotenv(&sources.workspace, ".env")?,
        ];
        Self::from_layers(sources.home, layers, sources.environment)
    }

    /// What a home would make whose files have these texts, outside of any workspace.
    pub(crate) fn from_texts(
        home: PathBuf,
        texts: &[(PathBuf, String)],
        environment: Vec<(String, String)>,
    ) -> Result<Self, ConfigError> {
        let layer = |(path, text): &(PathBuf, String)| ConfigLayer::from_text(path, text, SettingOrigin::HomeFile);
        Self::from_layers(home, texts.iter().map(layer).collect::<Result<_, _>>()?, environment)
    }

    fn from_layers(
        home: PathBuf,
        files: Vec<ConfigLayer>,
        environment: Vec<(String, String)>,
    ) -> Result<Self, ConfigError> {
        let user = environment.iter().find(|(name, value)| name == "HOME" && !value.is_empty());
        let user = user.map(|(_, folder)| PathBuf::from(folder));
        let usual_secrets =
            models::provider_variable_secrets(&environment).into_iter().map(SecretString::from).collect();
        let mut layers = vec![ConfigLayer::defaults(), ConfigLayer::from_provider_variables(&environment)];
        layers.extend(files);
        layers.push(ConfigLayer::from_environment(environment));
        let layers = ConfigLayers::new(layers);
        layers.check_trust()?;
        check_api_base(&layers)?;
        let model = configured_model(&layers)?;
        Ok(Self {
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
            session_wait: Duration::from_secs(required_in_range(
                &layers,
                "session_wait_seconds",
                0..=MAX_TIMEOUT_SECONDS,
            )?),
            session_queue: layers.required_positive::<u32>("session_queue")? as usize,
            stop_grace: Duration::from_secs(required_in_range(&layers, "stop_grace_seconds", 0..=MAX_TIMEOUT_SECONDS)?),
            intakes: channels::intakes(&layers)?,
            tape_store: match layers.text("tape_store").as_deref() {
                Some("sqlite") => TapeStoreKind::Sqlite,
                Some("jsonl") => TapeStoreKind::Jsonl,
                _ => return Err(layers.invalid_error("tape_store", "it must be sqlite or jsonl")),
            },
            tools: ToolConfig::load(&layers, user.as_deref())?,
            knowledge: knowledge::knowledge_bases(&layers, user.as_deref())?,
            layers,
            provider_variable_secrets: usual_secrets,
        })
    }

    /// The model that the files of the home name, whatever else says of it.
    pub(crate) fn home_model(&self) -> Option<ModelId> {
        self.layers.home_value("model")?.parse().ok()
    }

    /// The provider of this name, as it is set.
    pub fn provider(&self, name: &str) -> Option<&ProviderConfig> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// The names of what the files of the home keep that is sent to a provider and may be a secret.
    pub(crate) fn stored_secret_names(&self, provider: &str) -> Vec<String> {
        models::stored_secret_names(&self.layers, provider)
    }

    /// Every text that must not be shown: the keys of all providers, from wherever they could be read, and passwords in
    /// addresses.
    pub fn secrets(&self) -> Vec<String> {
        let usual = self.provider_variable_secrets.iter().map(|secret| secret.expose_secret().to_owned());
        usual.chain(self.layers.secrets()).collect()
    }

    /// Every setting with its origin, secrets masked.
    pub fn list_settings(&self) -> Vec<SettingListing> {
        self.layers.list_settings()
    }

    /// What is set for channels that are none of these, a line for each: it does nothing, which somebody should be told.
    pub fn unprovided_channels(&self, known: &[ChannelName]) -> Vec<String> {
        channels::describe_unprovided(&self.layers, known)
    }

    /// Variables that look like settings and are none.
    pub fn unknown_variables(&self) -> &[String] {
        self.layers.unknown_variables()
    }
}

/// Only the offline model has no name.
fn configured_model(layers: &ConfigLayers) -> Result<ModelId, ConfigError> {
    let model: ModelId = layers.required("model")?;
    if model.name().is_empty() && model.provider() != "demo" {
        return Err(layers.invalid_error("model", "the name after the colon is missing"));
    }
    Ok(model)
}

/// One that belongs to no provider that is used must be right too.
fn check_api_base(layers: &ConfigLayers) -> Result<(), ConfigError> {
    match layers.text("api_base") {
        Some(base) if !models::is_http_address(&base) => Err(layers.invalid_error("api_base", models::ADDRESS_RULE)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
