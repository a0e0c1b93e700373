//! Configuration layers. A later layer overrides earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::key::{ConfigKey, WorkspaceRule, find_key, nearest_name};
use super::plugins::{PLUGIN_TABLE, PluginSetting, PluginSettings};
use super::tables::{CONFIG_TABLES, ConfigTable, TableSetting};
use super::url_secrets::{mask_url_secrets, url_secrets};
use super::{CONFIG_KEYS, ConfigError, SettingListing, file_reader, models};

/// Prefix of settings in the environment.
const ENV_PREFIX: &str = "CAPSTAN_";
/// Variables with the prefix that are not configuration keys.
const NON_SETTING_VARIABLES: &[&str] = &["CAPSTAN_HOME", "CAPSTAN_LOG"];

/// Replacement for secrets in output.
pub(super) const CONFIG_SECRET_MASK: &str = "********";

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built-in default.
    Default,
    /// File of the home.
    HomeFile(PathBuf),
    /// File of the workspace.
    WorkspaceFile(PathBuf),
    /// `.env` file of the workspace.
    DotEnv(PathBuf),
    /// Conventional variable of a provider, shared with other programs, such as `OPENAI_API_KEY`.
    ProviderVariable(String),
    /// `CAPSTAN_*` variable.
    Environment(String),
}

impl SettingOrigin {
    /// Checks if the author of the workspace controls the value.
    pub(super) fn is_workspace(&self) -> bool {
        matches!(self, Self::WorkspaceFile(_) | Self::DotEnv(_))
    }

    /// Checks if the value is stored in the home.
    pub(super) fn is_home(&self) -> bool {
        matches!(self, Self::HomeFile(_))
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::HomeFile(path) | Self::WorkspaceFile(path) | Self::DotEnv(path) => write!(f, "{}", path.display()),
            Self::ProviderVariable(name) | Self::Environment(name) => write!(f, "environment {name}"),
        }
    }
}

/// Settings of one source.
#[derive(Debug, Clone, Default)]
pub(super) struct ConfigLayer {
    values: BTreeMap<String, (String, SettingOrigin)>,
    plugins: Vec<PluginSetting>,
    unknown: Vec<String>,
}

impl ConfigLayer {
    pub(super) fn defaults() -> Self {
        let values = CONFIG_KEYS
            .iter()
            .filter_map(|key| Some((key.name.to_owned(), (key.default?.to_owned(), SettingOrigin::Default))));
        Self { values: values.collect(), ..Self::default() }
    }

    /// Settings of the conventional provider variables.
    pub(super) fn from_provider_variables(environment: &[(String, String)]) -> Self {
        let settings = models::provider_variable_settings(environment).into_iter();
        let values = settings.map(|(key, value, name)| (key, (value, SettingOrigin::ProviderVariable(name))));
        Self { values: values.collect(), ..Self::default() }
    }

    /// Settings of a TOML file of the home; none if it does not exist.
    pub(super) fn from_home_file(path: &Path) -> Result<Self, ConfigError> {
        match file_reader::read_home_file(path)? {
            Some(text) => Self::from_text(path, &text, SettingOrigin::HomeFile),
            None => Ok(Self::default()),
        }
    }

    /// Settings of a TOML file of the workspace; none if it does not exist.
    pub(super) fn from_workspace_file(workspace: &Path, name: &str) -> Result<Self, ConfigError> {
        match file_reader::read_workspace_file(workspace, name)? {
            Some(text) => Self::from_text(&workspace.join(name), &text, SettingOrigin::WorkspaceFile),
            None => Ok(Self::default()),
        }
    }

    /// Settings of a TOML text.
    pub(super) fn from_text(
        path: &Path,
        text: &str,
        origin: fn(PathBuf) -> SettingOrigin,
    ) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let malformed = |detail: String| ConfigError::Malformed { path: name.clone(), detail };
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| malformed(describe_toml_error(text, &error)))?;
        let mut layer = Self::default();
        for (key, value) in table {
            if key == PLUGIN_TABLE {
                layer.plugins = PluginSetting::from_file_table(&name, value, &origin(path.to_owned()))?;
                continue;
            }
            if let Some(table) = CONFIG_TABLES.into_iter().find(|table| table.name == key) {
                for (setting, text) in table.parse_file_table(&name, value)? {
                    layer.values.insert(setting.to_string(), (text, origin(path.to_owned())));
                }
                continue;
            }
            let Some(known) = find_key(&key) else {
                let names = CONFIG_KEYS
                    .iter()
                    .map(|key| key.name)
                    .chain(CONFIG_TABLES.map(|table| table.name))
                    .chain([PLUGIN_TABLE]);
                let nearest = nearest_name(&key, names).map(str::to_owned);
                return Err(ConfigError::UnknownKey { path: name, key, nearest });
            };
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                toml::Value::Array(entries) if known.is_list && entries.iter().all(toml::Value::is_str) => {
                    entries.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(",")
                }
                _ => return Err(malformed(format!("{key} must be a string or a number"))),
            };
            layer.values.insert(known.name.to_owned(), (text, origin(path.to_owned())));
        }
        Ok(layer)
    }

    /// Settings of the `.env` file of a workspace. Reads only `CAPSTAN_*` lines, because others belong to other programs and
    /// may have any form.
    pub(super) fn from_dotenv(workspace: &Path, name: &str) -> Result<Self, ConfigError> {
        let Some(text) = file_reader::read_workspace_file(workspace, name)? else { return Ok(Self::default()) };
        let path = workspace.join(name);
        let name = path.display().to_string();
        let mut variables = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if !line.strip_prefix("export ").unwrap_or(line).trim_start().starts_with(ENV_PREFIX) {
                continue;
            }
            // The error of the parser quotes the line, which may contain a secret, so only the line number is reported.
            let malformed = |_| ConfigError::Malformed {
                path: name.clone(),
                detail: format!("line {} is not KEY=VALUE", index + 1),
            };
            for pair in dotenvy::from_read_iter(line.as_bytes()) {
                variables.push(pair.map_err(malformed)?);
            }
        }
        Ok(Self::from_variables(variables, |_| SettingOrigin::DotEnv(path.clone())))
    }

    pub(super) fn from_environment(variables: Vec<(String, String)>) -> Self {
        Self::from_variables(variables, |name| SettingOrigin::Environment(name.to_owned()))
    }

    fn from_variables(variables: Vec<(String, String)>, origin: impl Fn(&str) -> SettingOrigin) -> Self {
        let mut layer = Self::default();
        for (name, value) in variables {
            let Some(key) = name.strip_prefix(ENV_PREFIX) else { continue };
            let key = key.to_lowercase();
            if let Some(setting) = PluginSetting::from_variable(&key, &value, origin(&name)) {
                layer.plugins.extend((!value.is_empty()).then_some(setting));
                continue;
            }
            let table_key = TableSetting::from_variable(&key).map(|setting| setting.to_string());
            let key = table_key.or_else(|| find_key(&key).map(|key| key.name.to_owned()));
            match key {
                // An empty variable counts as not set, as in shells.
                Some(_) if value.is_empty() => {}
                Some(key) => {
                    layer.values.insert(key, (value, origin(&name)));
                }
                None if NON_SETTING_VARIABLES.contains(&name.as_str()) => {}
                None => layer.unknown.push(name),
            }
        }
        layer
    }
}

fn describe_toml_error(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Describes an invalid value. The messages of the standard library about numbers speak of digits and strings.
fn describe_parse_error<E: fmt::Display + 'static>(error: &E) -> String {
    use std::num::IntErrorKind;
    let number_error = (error as &dyn std::any::Any).downcast_ref::<std::num::ParseIntError>();
    match number_error.map(std::num::ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "the number is too large".to_owned(),
        Some(_) => "expected a whole number of at least 0".to_owned(),
        None => error.to_string(),
    }
}

/// A setting of a layer.
pub(super) struct LayerValue<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    pub(super) origin: &'a SettingOrigin,
}

impl LayerValue<'_> {
    /// Error for a value of the workspace above this limit.
    pub(super) fn raised_error(&self, limit: String) -> ConfigError {
        let (key, value, origin) = (self.key.to_owned(), self.value.to_owned(), self.origin.to_string());
        ConfigError::LimitRaised { key, value, origin, limit }
    }
}

/// All layers, in increasing precedence.
#[derive(Debug, Clone)]
pub(super) struct ConfigLayers {
    layers: Vec<ConfigLayer>,
    plugins: PluginSettings,
    unknown: Vec<String>,
}

impl ConfigLayers {
    pub(super) fn new(layers: Vec<ConfigLayer>) -> Self {
        let unknown = layers.iter().flat_map(|layer| layer.unknown.clone()).collect();
        let plugins = layers.iter().flat_map(|layer| layer.plugins.clone()).collect();
        Self { layers, plugins: PluginSettings::new(plugins), unknown }
    }

    /// Effective value of a setting, with its origin.
    pub(super) fn find(&self, key: &str) -> Option<(&str, &SettingOrigin)> {
        let (value, origin) = self.layers.iter().rev().find_map(|layer| layer.values.get(key))?;
        Some((value, origin))
    }

    /// Value in the files of the home.
    pub(super) fn home_value(&self, key: &str) -> Option<&str> {
        let values = self.layers.iter().rev().filter_map(|layer| layer.values.get(key));
        let home = values.into_iter().find(|(_, origin)| origin.is_home());
        home.map(|(value, _)| value.as_str())
    }

    /// Effective value of a provider's setting.
    ///
    /// Within a layer, `own` (`models.PROVIDER.KEY`) precedes `plain` (`KEY`). A plain key belongs to the provider of the
    /// model that this layer or the ones below select: a later layer that selects another model must not redirect the key
    /// to that model's provider.
    pub(super) fn provider_value<'a>(&'a self, own: &'a str, plain: &'a str, provider: &str) -> Option<LayerValue<'a>> {
        self.provider_values(&[own], plain, provider).pop()
    }

    /// Effective values of several settings of a provider that form one: those of the highest layer that sets any of
    /// them, by the rules of [`provider_value`](Self::provider_value).
    pub(super) fn provider_values<'a>(
        &'a self,
        own: &[&'a str],
        plain: &'a str,
        provider: &str,
    ) -> Vec<LayerValue<'a>> {
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let get = |key: &'a str| layer.values.get(key).map(|(value, origin)| LayerValue { key, value, origin });
            let mut values: Vec<LayerValue<'a>> = own.iter().filter_map(|key| get(key)).collect();
            if values.is_empty() && self.model_provider(index) == Some(provider) {
                values.extend(get(plain));
            }
            if !values.is_empty() {
                return values;
            }
        }
        Vec::new()
    }

    /// Provider of the model selected by the layers up to this index.
    fn model_provider(&self, index: usize) -> Option<&str> {
        let (model, _) = self.layers[..=index].iter().rev().find_map(|layer| layer.values.get("model"))?;
        model.split_once(':').map(|(provider, _)| provider)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.find(key).map(|(value, _)| value.to_owned())
    }

    /// Effective value, parsed.
    pub(super) fn parsed<T: FromStr<Err: fmt::Display + 'static>>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some((value, _)) = self.find(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|error: T::Err| self.invalid_error(key, &describe_parse_error(&error)))
    }

    pub(super) fn required<T: FromStr<Err: fmt::Display + 'static>>(&self, key: &str) -> Result<T, ConfigError> {
        self.parsed(key)?.ok_or_else(|| ConfigError::missing(key))
    }

    pub(super) fn invalid_error(&self, key: &str, reason: &str) -> ConfigError {
        let (value, origin) = self.find(key).map(|(v, o)| (v.to_owned(), o.to_string())).unwrap_or_default();
        let is_secret = find_key(key).is_some_and(|key| key.secret);
        let value = if is_secret { "...".to_owned() } else { mask_url_secrets(&value) };
        ConfigError::Invalid { key: key.to_owned(), value, origin, reason: reason.to_owned() }
    }

    /// Checks if the user's own settings trust every workspace.
    pub(super) fn trusts_every_workspace(&self) -> bool {
        let values = self.layers.iter().rev().filter_map(|layer| layer.values.get("trust_workspace"));
        let trust = values.into_iter().find(|(_, origin)| !origin.is_workspace());
        trust.is_some_and(|(value, _)| value == "true")
    }

    /// Applies the [`WorkspaceRule`] of each key, for a workspace that is not trusted.
    pub(super) fn check_workspace_rules(&self) -> Result<(), ConfigError> {
        let plain =
            CONFIG_KEYS.iter().filter(|key| key.workspace == WorkspaceRule::Forbidden).map(|key| key.name.to_owned());
        let tables = CONFIG_TABLES.into_iter().filter(|table| table.workspace == WorkspaceRule::Forbidden);
        let table_keys = tables.flat_map(|table| self.table_settings(table)).map(|setting| setting.to_string());
        for key in plain.chain(table_keys) {
            let values = self.layers.iter().filter_map(|layer| layer.values.get(&key));
            if let Some((_, origin)) = values.into_iter().find(|(_, origin)| origin.is_workspace()) {
                return Err(ConfigError::Untrusted { key, origin: origin.to_string() });
            }
        }
        let mut plugins = self.layers.iter().flat_map(|layer| &layer.plugins);
        if let Some(setting) = plugins.find(|setting| setting.origin().is_workspace()) {
            return Err(ConfigError::Untrusted { key: setting.full_name(), origin: setting.origin().to_string() });
        }
        CONFIG_KEYS
            .iter()
            .filter(|key| key.workspace == WorkspaceRule::LowerOnly)
            .try_for_each(|key| self.check_not_raised(key))
    }

    /// Effective value of a setting, if the workspace sets it.
    pub(super) fn workspace_value(&self, key: &str) -> Option<LayerValue<'_>> {
        let (name, (value, origin)) = self
            .layers
            .iter()
            .rev()
            .find_map(|layer| layer.values.get_key_value(key))
            .map(|(k, v)| (k, (&v.0, &v.1)))?;
        origin.is_workspace().then_some(LayerValue { key: name, value, origin })
    }

    /// Value of a setting without the workspace.
    pub(super) fn user_value(&self, key: &str) -> Option<&str> {
        let mut values = self.layers.iter().rev().filter_map(|layer| layer.values.get(key));
        values.find(|(_, origin)| !origin.is_workspace()).map(|(value, _)| value.as_str())
    }

    /// Rejects a number of the workspace above the user's. A value that is not a number fails when it is parsed.
    fn check_not_raised(&self, key: &ConfigKey) -> Result<(), ConfigError> {
        let Some(set) = self.workspace_value(key.name) else { return Ok(()) };
        let default = || key.max_default.map(|max| max.to_string());
        let Some(limit) = self.user_value(key.name).map(str::to_owned).or_else(default) else { return Ok(()) };
        let number = |text: &str| match text.parse::<u64>() {
            Ok(0) if key.zero_is_unlimited => Some(u64::MAX),
            parsed => parsed.ok(),
        };
        match (number(set.value), number(&limit)) {
            (Some(number), Some(max)) if number > max => Err(set.raised_error(limit)),
            _ => Ok(()),
        }
    }

    /// Settings of a table in any layer, sorted.
    pub(super) fn table_settings(&self, table: &ConfigTable) -> BTreeSet<TableSetting> {
        let all = self.layers.iter().flat_map(|layer| layer.values.keys()).filter_map(|key| TableSetting::parse(key));
        all.filter(|setting| setting.is_in_table(table)).collect()
    }

    /// An optional number, at least 1.
    pub(super) fn optional_positive<T: FromStr<Err: fmt::Display + 'static> + PartialOrd + From<u8>>(
        &self,
        key: &str,
    ) -> Result<Option<T>, ConfigError> {
        if self.find(key).is_some() { self.required_positive(key).map(Some) } else { Ok(None) }
    }

    /// A number, at least 1.
    pub(super) fn required_positive<T: FromStr<Err: fmt::Display + 'static> + PartialOrd + From<u8>>(
        &self,
        key: &str,
    ) -> Result<T, ConfigError> {
        let number: T = self.required(key)?;
        if number < T::from(1) { Err(self.invalid_error(key, "must be at least 1")) } else { Ok(number) }
    }

    /// Secrets of all layers, including overridden ones, which are in a file or in the environment all the same.
    pub(super) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for (key, (value, _)) in self.layers.iter().flat_map(|layer| &layer.values) {
            if find_key(key).is_some_and(|key| key.secret) {
                secrets.push(value.clone());
            }
            secrets.extend(TableSetting::parse(key).into_iter().flat_map(|setting| setting.secrets(value)));
            secrets.extend(url_secrets(value));
        }
        secrets.extend(self.plugins.secrets());
        secrets
    }

    /// All settings with value and origin. Table settings are listed only if set.
    pub(super) fn list_settings(&self) -> Vec<SettingListing> {
        let listing = |key: String, secret: bool| match self.find(&key) {
            None => SettingListing { key, value: None, origin: "not set".to_owned() },
            Some((value, origin)) => {
                let setting = TableSetting::parse(&key);
                let value = match setting.filter(|_| !secret) {
                    _ if secret => CONFIG_SECRET_MASK.to_owned(),
                    Some(setting) => setting.mask(value),
                    None => mask_url_secrets(value),
                };
                SettingListing { key, value: Some(value), origin: origin.to_string() }
            }
        };
        let plain = CONFIG_KEYS.iter().map(|key| listing(key.name.to_owned(), key.secret));
        let table_settings = CONFIG_TABLES.into_iter().flat_map(|table| self.table_settings(table));
        let table_settings = table_settings.map(|setting| listing(setting.to_string(), setting.is_secret()));
        plain.chain(table_settings).chain(self.plugins.list()).collect()
    }

    pub(super) fn plugins(&self) -> &PluginSettings {
        &self.plugins
    }

    pub(super) fn plugins_mut(&mut self) -> &mut PluginSettings {
        &mut self.plugins
    }

    pub(super) fn unknown_variables(&self) -> &[String] {
        &self.unknown
    }
}
