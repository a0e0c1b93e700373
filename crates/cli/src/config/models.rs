//! The providers of models: `[models.NAME]` in a file, `CAPSTAN_MODELS__NAME__KEY` in the environment, and the variables in
//! which people keep the keys of providers anyway.

use std::collections::BTreeSet;
use std::time::Duration;

use capstan_models::{Settings, Wire};
use capstan_protocol::{Map, ModelId, Reasoning};
use secrecy::SecretString;
use serde_json::Value;

use super::ConfigError;
use super::error::nearest_words;
use super::key::{Workspace, nearest};
use super::layer::{Layers, without_password};
use super::tables::{Form, NOT_EMPTY, Table, TableKey, is_not_empty};

const WIRE: &str = "wire";
const API_KEY: &str = "api_key";
const API_BASE: &str = "api_base";
const HEADERS: &str = "headers";
const BODY: &str = "body";

/// The table of all providers.
pub(super) static TABLE: Table = Table {
    name: "models",
    of: ("providers", "anthropic"),
    keys: &[
        TableKey::new(WIRE, Form::Text),
        TableKey::secret(API_KEY, Form::Text),
        TableKey::new(API_BASE, Form::Text),
        // They may hold keys too.
        TableKey::secret(HEADERS, Form::Table),
        TableKey::new(BODY, Form::Table),
    ],
    required: None,
    is_name: is_not_empty,
    name_rule: NOT_EMPTY,
    spelled,
    workspace: Workspace::MayNot,
};

/// A variable cannot have a dash in its name.
fn spelled(provider: &str) -> String {
    let dashed = provider.replace('_', "-");
    if Wire::parse(&dashed).is_some() { dashed } else { provider.to_owned() }
}

/// What of a body the conversation itself decides.
const NOT_IN_BODY: &[&str] = &["model", "messages", "contents", "input", "tools", "stream", "system", "instructions"];
/// What is wrong with an address.
pub(super) const NO_ADDRESS: &str = "it must be an address such as http://127.0.0.1:11434/v1";
/// Where Ollama listens.
const OLLAMA_PORT: u16 = 11434;

/// A provider of models as it is set.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The name before the colon of a model.
    pub name: String,
    /// What it speaks.
    pub wire: Wire,
    /// How it is reached.
    pub settings: Settings,
}

impl ProviderConfig {
    /// Whether it will refuse to answer for want of a key.
    pub fn lacks_key(&self) -> bool {
        self.wire.needs_key() && self.settings.api_key.is_none() && self.settings.api_base.is_none()
    }

    /// Scheme, host and port of where its key goes.
    pub(crate) fn origin(&self) -> Option<String> {
        self.wire.origin(self.settings.api_base.as_deref())
    }
}

/// What the usual variables of providers hold that must not be shown: also of those that another setting stands over.
pub(super) fn usual_secrets(environment: &[(String, String)]) -> Vec<String> {
    let names: BTreeSet<&str> = Wire::ALL.iter().flat_map(|wire| wire.key_variables()).copied().collect();
    let set = environment.iter().filter(|(name, _)| names.contains(name.as_str()));
    set.map(|(_, value)| value.clone()).collect()
}

/// The names of the settings that the usual variables of providers make, their values, and those variables.
pub(super) fn of_usual_variables(environment: &[(String, String)]) -> Vec<(String, String, String)> {
    let set = |names: &'static [&'static str]| {
        let found =
            names.iter().find_map(|name| environment.iter().find(|(key, value)| key == name && !value.is_empty()));
        found.map(|(name, value)| (name.clone(), value.clone()))
    };
    let mut settings = Vec::new();
    for wire in Wire::ALL {
        let key = |key| TABLE.name_of(wire.name(), key);
        settings.extend(set(wire.key_variables()).map(|(name, value)| (key(API_KEY), value, name)));
        settings.extend(set(wire.base_variables()).map(|(name, value)| {
            let base = if wire == Wire::Ollama { ollama_host(&value) } else { value };
            (key(API_BASE), base, name)
        }));
    }
    settings
}

/// The address in `OLLAMA_HOST`, which is also what the server listens on: without scheme or port, or for all addresses.
fn ollama_host(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |rest| format!("127.0.0.1{rest}"));
    let has_port =
        rest.rsplit_once(':').is_some_and(|(_, port)| port.chars().next().is_some_and(|c| c.is_ascii_digit()));
    let port = if has_port || scheme == "https" { String::new() } else { format!(":{OLLAMA_PORT}") };
    format!("{scheme}://{rest}{port}")
}

/// The names of what the files of the home keep that is sent to a provider and may be a secret.
pub(super) fn kept_secrets(layers: &Layers, provider: &str) -> Vec<String> {
    let name = |key| TABLE.name_of(provider, key);
    let (key, headers) = (name(API_KEY), name(HEADERS));
    let kept = layers.of_provider(&key, API_KEY, provider).filter(|found| found.origin.is_home());
    let kept = kept.map(|found| found.key.to_owned());
    let headers = layers.find(&headers).filter(|(_, origin)| origin.is_home()).map(|_| headers.clone());
    kept.into_iter().chain(headers).collect()
}

/// Every provider: those that are built in, and those that somebody gave a name.
pub(super) fn providers(layers: &Layers) -> Result<Vec<ProviderConfig>, ConfigError> {
    let own = layers.settings(&TABLE).into_iter().map(|setting| setting.of);
    let names: BTreeSet<String> = own.chain(Wire::ALL.map(|wire| wire.name().to_owned())).collect();
    let timeout = Duration::from_secs(layers.positive::<u32>("model_timeout_seconds")?.into());
    let retries = layers.required("model_retries")?;
    let provider = |name: String| {
        let settings = Provider { layers, name: &name };
        let wire = settings.wire()?;
        let settings = Settings {
            api_key: settings.api_key(),
            api_base: settings.api_base()?,
            headers: settings.headers()?,
            body: settings.body()?,
            timeout,
            retries,
            ..Settings::default()
        };
        Ok(ProviderConfig { name, wire, settings })
    };
    names.into_iter().map(provider).collect()
}

/// What is set for one provider.
struct Provider<'a> {
    layers: &'a Layers,
    name: &'a str,
}

impl Provider<'_> {
    fn key(&self, key: &'static str) -> String {
        TABLE.name_of(self.name, key)
    }

    fn wire(&self) -> Result<Wire, ConfigError> {
        let key = self.key(WIRE);
        let names = || Wire::ALL.into_iter().map(Wire::name);
        match (self.layers.text(&key), Wire::parse(self.name)) {
            (None, Some(wire)) => Ok(wire),
            (Some(_), Some(_)) => Err(self.layers.invalid(&key, "only a provider of your own can have another")),
            // Most servers speak it.
            (None, None) => Ok(Wire::OpenAi),
            (Some(text), None) => Wire::parse(&text).ok_or_else(|| {
                let known: Vec<&str> = names().collect();
                let near = nearest_words(nearest(&text, names()));
                self.layers.invalid(&key, &format!("it must be one of {}{near}", known.join(", ")))
            }),
        }
    }

    fn api_key(&self) -> Option<SecretString> {
        let found = self.layers.of_provider(&self.key(API_KEY), API_KEY, self.name)?.value.to_owned();
        Some(SecretString::from(found))
    }

    fn api_base(&self) -> Result<Option<String>, ConfigError> {
        match self.layers.of_provider(&self.key(API_BASE), API_BASE, self.name) {
            Some(found) if !is_address(found.value) => Err(ConfigError::Invalid {
                key: found.key.to_owned(),
                value: without_password(found.value),
                origin: found.origin.to_string(),
                reason: NO_ADDRESS.to_owned(),
            }),
            None if Wire::parse(self.name).is_none() => Err(ConfigError::missing(&self.key(API_BASE))),
            found => Ok(found.map(|found| found.value.to_owned())),
        }
    }

    fn headers(&self) -> Result<Vec<(String, SecretString)>, ConfigError> {
        let header = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, SecretString::from(text))),
            _ => Err(self.refused(HEADERS, "every header must be a text")),
        };
        self.object(HEADERS)?.into_iter().map(header).collect()
    }

    fn body(&self) -> Result<Map, ConfigError> {
        let body = self.object(BODY)?;
        match NOT_IN_BODY.iter().find(|key| body.contains_key(**key)) {
            Some(key) => Err(self.refused(BODY, &format!("{key} is what each request says itself"))),
            None => Ok(body),
        }
    }

    fn object(&self, key: &'static str) -> Result<Map, ConfigError> {
        let Some(text) = self.layers.text(&self.key(key)) else { return Ok(Map::new()) };
        serde_json::from_str(&text).map_err(|_| self.refused(key, "it must be a JSON object"))
    }

    /// A value that may hold secrets is not repeated.
    fn refused(&self, key: &'static str, reason: &str) -> ConfigError {
        let name = self.key(key);
        let origin = self.layers.find(&name).map(|(_, origin)| origin.to_string()).unwrap_or_default();
        ConfigError::Invalid { key: name, value: "...".to_owned(), origin, reason: reason.to_owned() }
    }
}

/// Whether it is an address with a host.
pub(super) fn is_address(base: &str) -> bool {
    let rest = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

/// The models to try when the first fails, in order.
pub(super) fn fallbacks(layers: &Layers) -> Result<Vec<ModelId>, ConfigError> {
    let key = "fallback_models";
    let text = layers.text(key).unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let model = |name: &str| {
        let model = name.parse::<ModelId>().map_err(|error| layers.invalid(key, &error.to_string()))?;
        let is_whole = !model.name().is_empty() || model.provider() == "demo";
        if is_whole { Ok(model) } else { Err(layers.invalid(key, "a name after a colon is missing")) }
    };
    names.map(model).collect()
}

/// How much the model should think.
pub(super) fn reasoning(layers: &Layers) -> Result<Option<Reasoning>, ConfigError> {
    let Some(text) = layers.text("reasoning") else { return Ok(None) };
    let found = Reasoning::ALL.into_iter().find(|reasoning| reasoning.as_str() == text);
    found.map(Some).ok_or_else(|| layers.invalid("reasoning", "it must be none, low, medium or high"))
}
