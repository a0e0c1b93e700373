//! Model providers: `[models.NAME]` in a file, `CAPSTAN_MODELS__NAME__KEY` in the environment, and the conventional variables
//! of each provider, such as `OPENAI_API_KEY`.

use std::collections::BTreeSet;
use std::time::Duration;

use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{JsonObject, ModelId, Reasoning};
use secrecy::SecretString;
use serde_json::Value;

use super::ConfigError;
use super::error::format_suggestion;
use super::key::{WorkspaceRule, nearest_name};
use super::layer::{ConfigLayers, LayerValue};
use super::tables::{ConfigTable, NAME_NOT_EMPTY_RULE, TableKey, ValueForm, is_not_empty, split_list};
use super::url_secrets::mask_url_secrets;

const WIRE_FIELD: &str = "wire";
const API_KEY_FIELD: &str = "api_key";
const API_KEYS_FIELD: &str = "api_keys";
const API_BASE_FIELD: &str = "api_base";
const HEADERS_FIELD: &str = "headers";
const BODY_FIELD: &str = "body";

/// The table of all providers.
pub(super) static PROVIDER_TABLE: ConfigTable = ConfigTable {
    name: "models",
    kind_and_example: ("providers", "anthropic"),
    keys: &[
        TableKey::new(WIRE_FIELD, ValueForm::Text),
        TableKey::secret(API_KEY_FIELD, ValueForm::Text),
        TableKey::secret(API_KEYS_FIELD, ValueForm::List),
        TableKey::new(API_BASE_FIELD, ValueForm::Text),
        // Headers may contain keys.
        TableKey::secret(HEADERS_FIELD, ValueForm::Table),
        TableKey::new(BODY_FIELD, ValueForm::Table),
    ],
    required: None,
    is_valid_name: is_not_empty,
    name_rule: NAME_NOT_EMPTY_RULE,
    canonical_name: canonical_provider_name,
    workspace: WorkspaceRule::Forbidden,
};

/// Restores the dashes in the name of a built-in provider, which a variable name cannot contain.
fn canonical_provider_name(provider: &str) -> String {
    let dashed = provider.replace('_', "-");
    if WireProtocol::parse(&dashed).is_some() { dashed } else { provider.to_owned() }
}

/// Fields of a request body that each request sets itself.
const RESERVED_BODY_FIELDS: &[&str] =
    &["model", "messages", "contents", "input", "tools", "stream", "system", "instructions"];
/// Rule for base URLs, for error messages.
pub(super) const ADDRESS_RULE: &str = "must be a URL such as http://127.0.0.1:11434/v1";
/// Default port of Ollama.
const OLLAMA_DEFAULT_PORT: u16 = 11434;

/// A configured model provider.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Name before the colon of a model.
    pub name: String,
    /// Wire protocol.
    pub wire: WireProtocol,
    /// Connection options.
    pub settings: ProviderOptions,
}

impl ProviderConfig {
    /// Checks if requests will fail for lack of a key.
    pub fn is_missing_key(&self) -> bool {
        self.wire.needs_key() && self.settings.api_keys.is_empty() && self.settings.api_base.is_none()
    }

    /// Scheme, host and port that the key is sent to.
    pub(crate) fn origin(&self) -> Option<String> {
        self.wire.origin(self.settings.api_base.as_deref())
    }
}

/// Secrets in conventional provider variables, including overridden ones.
pub(super) fn provider_variable_secrets(environment: &[(String, String)]) -> Vec<String> {
    let names: BTreeSet<&str> = WireProtocol::PROTOCOLS.iter().flat_map(|wire| wire.key_variables()).copied().collect();
    let variables = environment.iter().filter(|(name, _)| names.contains(name.as_str()));
    variables.map(|(_, value)| value.clone()).collect()
}

/// Settings from conventional provider variables: key, value, and name of the variable.
pub(super) fn provider_variable_settings(environment: &[(String, String)]) -> Vec<(String, String, String)> {
    let first_set = |names: &'static [&'static str]| {
        let variable =
            names.iter().find_map(|name| environment.iter().find(|(key, value)| key == name && !value.is_empty()));
        variable.map(|(name, value)| (name.clone(), value.clone()))
    };
    let mut settings = Vec::new();
    for wire in WireProtocol::PROTOCOLS {
        let key = |key| PROVIDER_TABLE.setting_name(wire.name(), key);
        settings.extend(first_set(wire.key_variables()).map(|(name, value)| (key(API_KEY_FIELD), value, name)));
        settings.extend(first_set(wire.base_variables()).map(|(name, value)| {
            let base = if wire == WireProtocol::Ollama { ollama_base_url(&value) } else { value };
            (key(API_BASE_FIELD), base, name)
        }));
    }
    settings
}

/// Base URL for `OLLAMA_HOST`, which is the listen address of the server: it may lack scheme and port, or be `0.0.0.0`.
fn ollama_base_url(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |rest| format!("127.0.0.1{rest}"));
    let has_port =
        rest.rsplit_once(':').is_some_and(|(_, port)| port.chars().next().is_some_and(|c| c.is_ascii_digit()));
    let port = if has_port || scheme == "https" { String::new() } else { format!(":{OLLAMA_DEFAULT_PORT}") };
    format!("{scheme}://{rest}{port}")
}

/// Keys of settings in the home's files that may hold secrets and are sent to the provider.
pub(super) fn stored_secret_names(layers: &ConfigLayers, provider: &str) -> Vec<String> {
    let name = |key| PROVIDER_TABLE.setting_name(provider, key);
    let (key, headers) = (name(API_KEY_FIELD), name(HEADERS_FIELD));
    let keys = name(API_KEYS_FIELD);
    let stored = layers.provider_values(&[&key, &keys], API_KEY_FIELD, provider).into_iter();
    let stored = stored.filter(|value| value.origin.is_home()).map(|value| value.key.to_owned());
    let headers = layers.find(&headers).filter(|(_, origin)| origin.is_home()).map(|_| headers.clone());
    stored.chain(headers).collect()
}

/// Loads all providers: the built-in ones, and those that the configuration adds.
pub(super) fn load_providers(layers: &ConfigLayers) -> Result<Vec<ProviderConfig>, ConfigError> {
    let configured = layers.table_settings(&PROVIDER_TABLE).into_iter().map(|setting| setting.item);
    let names: BTreeSet<String> =
        configured.chain(WireProtocol::PROTOCOLS.map(|wire| wire.name().to_owned())).collect();
    let timeout = Duration::from_secs(layers.required_positive::<u32>("model_timeout_seconds")?.into());
    let retries = layers.required("model_retries")?;
    let provider = |name: String| {
        let lookup = ProviderConfigLookup { layers, name: &name };
        let wire = lookup.wire()?;
        let settings = ProviderOptions {
            api_keys: lookup.api_keys(),
            api_base: lookup.api_base()?,
            headers: lookup.headers()?,
            body: lookup.body()?,
            timeout,
            retries,
            ..ProviderOptions::default()
        };
        Ok(ProviderConfig { name, wire, settings })
    };
    names.into_iter().map(provider).collect()
}

/// Reader of the settings of one provider.
struct ProviderConfigLookup<'a> {
    layers: &'a ConfigLayers,
    name: &'a str,
}

impl ProviderConfigLookup<'_> {
    fn setting_name(&self, key: &'static str) -> String {
        PROVIDER_TABLE.setting_name(self.name, key)
    }

    fn wire(&self) -> Result<WireProtocol, ConfigError> {
        let key = self.setting_name(WIRE_FIELD);
        let names = || WireProtocol::PROTOCOLS.into_iter().map(WireProtocol::name);
        match (self.layers.text(&key), WireProtocol::parse(self.name)) {
            (None, Some(wire)) => Ok(wire),
            (Some(_), Some(_)) => Err(self.layers.invalid_error(&key, "the wire of a built-in provider is fixed")),
            // Most servers implement it.
            (None, None) => Ok(WireProtocol::OpenAi),
            (Some(text), None) => WireProtocol::parse(&text).ok_or_else(|| {
                let known: Vec<&str> = names().collect();
                let suggestion = format_suggestion(nearest_name(&text, names()));
                self.layers.invalid_error(&key, &format!("must be one of {}{suggestion}", known.join(", ")))
            }),
        }
    }

    /// Keys in the order in which they are used: `api_key`, then `api_keys`.
    fn api_keys(&self) -> Vec<SecretString> {
        let (key, keys) = (self.setting_name(API_KEY_FIELD), self.setting_name(API_KEYS_FIELD));
        let values = self.layers.provider_values(&[&key, &keys], API_KEY_FIELD, self.name);
        let split = |value: LayerValue<'_>| -> Vec<SecretString> {
            let is_list = value.key == keys;
            let items = if is_list { split_list(value.value).collect() } else { vec![value.value] };
            items.into_iter().map(|item| SecretString::from(item.to_owned())).collect()
        };
        values.into_iter().flat_map(split).collect()
    }

    fn api_base(&self) -> Result<Option<String>, ConfigError> {
        match self.layers.provider_value(&self.setting_name(API_BASE_FIELD), API_BASE_FIELD, self.name) {
            Some(base) if !is_http_address(base.value) => Err(ConfigError::Invalid {
                key: base.key.to_owned(),
                value: mask_url_secrets(base.value),
                origin: base.origin.to_string(),
                reason: ADDRESS_RULE.to_owned(),
            }),
            None if WireProtocol::parse(self.name).is_none() => {
                Err(ConfigError::missing(&self.setting_name(API_BASE_FIELD)))
            }
            base => Ok(base.map(|base| base.value.to_owned())),
        }
    }

    fn headers(&self) -> Result<Vec<(String, SecretString)>, ConfigError> {
        let header = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, SecretString::from(text))),
            _ => Err(self.invalid_error(HEADERS_FIELD, "every header must be a string")),
        };
        self.json_object(HEADERS_FIELD)?.into_iter().map(header).collect()
    }

    fn body(&self) -> Result<JsonObject, ConfigError> {
        let body = self.json_object(BODY_FIELD)?;
        match RESERVED_BODY_FIELDS.iter().find(|key| body.contains_key(**key)) {
            Some(key) => {
                Err(self.invalid_error(BODY_FIELD, &format!("must not set {key}, which each request sets itself")))
            }
            None => Ok(body),
        }
    }

    fn json_object(&self, key: &'static str) -> Result<JsonObject, ConfigError> {
        let Some(text) = self.layers.text(&self.setting_name(key)) else { return Ok(JsonObject::new()) };
        serde_json::from_str(&text).map_err(|_| self.invalid_error(key, "must be a JSON object"))
    }

    /// An error that does not repeat the value, which may contain secrets.
    fn invalid_error(&self, key: &'static str, reason: &str) -> ConfigError {
        let name = self.setting_name(key);
        let origin = self.layers.find(&name).map(|(_, origin)| origin.to_string()).unwrap_or_default();
        ConfigError::Invalid { key: name, value: "...".to_owned(), origin, reason: reason.to_owned() }
    }
}

/// Checks for an HTTP URL with a host.
pub(super) fn is_http_address(base: &str) -> bool {
    let rest = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

/// Loads the fallback models, in order.
pub(super) fn load_fallback_models(layers: &ConfigLayers) -> Result<Vec<ModelId>, ConfigError> {
    let key = "fallback_models";
    let text = layers.text(key).unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let model = |name: &str| {
        let model = name.parse::<ModelId>().map_err(|error| layers.invalid_error(key, &error.to_string()))?;
        let is_complete = !model.name().is_empty() || model.provider() == "demo";
        if is_complete { Ok(model) } else { Err(layers.invalid_error(key, "a name after a colon is missing")) }
    };
    names.map(model).collect()
}

/// Loads the reasoning effort.
pub(super) fn load_reasoning(layers: &ConfigLayers) -> Result<Option<Reasoning>, ConfigError> {
    let Some(text) = layers.text("reasoning") else { return Ok(None) };
    let reasoning = Reasoning::LEVELS.into_iter().find(|level| level.as_str() == text);
    reasoning.map(Some).ok_or_else(|| layers.invalid_error("reasoning", "must be none, low, medium or high"))
}
