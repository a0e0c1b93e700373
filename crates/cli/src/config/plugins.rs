//! Settings of plugins: `[plugins.NAME]` in a file, `CAPSTAN_PLUGINS__NAME__KEY` in the environment.
//!
//! The valid keys are those of the schema that the plugin declares. Invalid settings prevent only that plugin from
//! loading, so they are validated when the plugin registers and not when the files are read.

use std::collections::{BTreeMap, BTreeSet};

use capstan_hooks::{HookPermission, HookPermissions, PluginConfig};
use capstan_protocol::JsonObject;
use serde_json::Value;

use super::error::format_suggestion;
use super::key::nearest_name;
use super::layer::{CONFIG_SECRET_MASK, SettingOrigin};
use super::{ConfigError, SettingListing};

/// Name of the table in files, and prefix of the variable names (after `CAPSTAN_`, in lower case).
pub(crate) const PLUGIN_TABLE: &str = "plugins";
/// Separator of the parts of a variable name.
const VARIABLE_SEPARATOR: &str = "__";
/// Key that limits the permissions of a plugin's hooks; reserved in every section.
const PERMISSIONS_KEY: &str = "permissions";
/// Maximum number of reported schema violations of a plugin.
const MAX_SCHEMA_ERRORS: usize = 3;

/// Value of one key of a plugin in one layer.
#[derive(Debug, Clone)]
pub(super) struct PluginSetting {
    plugin: String,
    key: String,
    value: PluginValue,
    origin: SettingOrigin,
}

#[derive(Debug, Clone)]
enum PluginValue {
    /// Value from a file.
    Typed(Value),
    /// Text from a variable; only the schema knows its type.
    Text(String),
}

impl PluginSetting {
    /// Parses the table `[plugins]` of a file.
    pub(super) fn from_file_table(
        path: &str,
        table: toml::Value,
        origin: &SettingOrigin,
    ) -> Result<Vec<Self>, ConfigError> {
        let malformed = |detail: String| ConfigError::Malformed { path: path.to_owned(), detail };
        let toml::Value::Table(plugins) = table else {
            return Err(malformed(format!("{PLUGIN_TABLE} must be a table of plugins, as in [{PLUGIN_TABLE}.NAME]")));
        };
        let mut settings = Vec::new();
        for (plugin, table) in plugins {
            let toml::Value::Table(table) = table else {
                return Err(malformed(format!("{PLUGIN_TABLE}.{plugin} must be a table")));
            };
            for (key, value) in table {
                // The error is dropped: it would quote the value, which may be secret.
                let value = serde_json::to_value(value)
                    .map_err(|_| malformed(format!("{PLUGIN_TABLE}.{plugin}.{key} cannot be read")))?;
                let value = PluginValue::Typed(value);
                settings.push(Self { plugin: plugin.clone(), key, value, origin: origin.clone() });
            }
        }
        Ok(settings)
    }

    /// Parses a variable. `name` is in lower case and without `capstan_`. `None` if it names no key of a plugin.
    pub(super) fn from_variable(name: &str, value: &str, origin: SettingOrigin) -> Option<Self> {
        let rest = name.strip_prefix(PLUGIN_TABLE)?.strip_prefix(VARIABLE_SEPARATOR)?;
        let (plugin, key) = rest.split_once(VARIABLE_SEPARATOR)?;
        let is_complete = !plugin.is_empty() && !key.is_empty();
        let value = PluginValue::Text(value.to_owned());
        is_complete.then(|| Self { plugin: plugin.to_owned(), key: key.to_owned(), value, origin })
    }

    pub(super) fn origin(&self) -> &SettingOrigin {
        &self.origin
    }

    /// Returns `plugins.NAME.KEY`.
    pub(super) fn full_name(&self) -> String {
        format!("{PLUGIN_TABLE}.{}.{}", self.plugin, self.key)
    }

    fn matches_plugin(&self, plugin: &str) -> bool {
        match &self.value {
            PluginValue::Typed(_) => self.plugin == plugin,
            PluginValue::Text(_) => self.plugin == to_variable_form(plugin),
        }
    }

    /// Returns the key as the schema spells it: a variable name has lost the case, dashes and dots of its key.
    fn schema_key(&self, schema: &Value) -> String {
        let is_variable = matches!(self.value, PluginValue::Text(_));
        let declared = property_names(schema).find(|name| is_variable && to_variable_form(name) == self.key);
        declared.unwrap_or(&self.key).to_owned()
    }

    /// Returns the value. The text of a variable is parsed as JSON unless the schema declares a string; text that is not
    /// JSON stays text.
    fn typed_value(&self, schema: &Value, key: &str) -> Value {
        match &self.value {
            PluginValue::Typed(value) => value.clone(),
            PluginValue::Text(text) => {
                let as_text = || Value::String(text.clone());
                let is_string = property(schema, key).is_some_and(|property| property["type"] == "string");
                if is_string { as_text() } else { serde_json::from_str(text).unwrap_or_else(|_| as_text()) }
            }
        }
    }
}

/// Converts a name to its form in a variable name, which has no dashes and dots.
fn to_variable_form(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

fn property_names(schema: &Value) -> impl Iterator<Item = &str> {
    schema["properties"].as_object().into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

fn property<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema["properties"].get(key)
}

/// Returns true if the schema marks a key as secret (`writeOnly`).
pub(crate) fn is_secret_property(schema: &Value, key: &str) -> bool {
    property(schema, key).is_some_and(|property| property["writeOnly"] == true)
}

/// Settings of all plugins from all layers, and the schemas that the plugins declare.
#[derive(Debug, Clone, Default)]
pub(super) struct PluginSettings {
    /// In increasing precedence.
    settings: Vec<PluginSetting>,
    /// Schemas by plugin; `None` for a plugin without settings.
    schemas: BTreeMap<String, Option<Value>>,
}

impl PluginSettings {
    pub(super) fn new(settings: Vec<PluginSetting>) -> Self {
        Self { settings, schemas: BTreeMap::new() }
    }

    pub(super) fn declare(&mut self, schemas: BTreeMap<String, Option<Value>>) {
        self.schemas = schemas;
    }

    /// Builds the configuration of a plugin. The error is the reason why it is not valid.
    pub(super) fn config(&self, plugin: &str, schema: Option<&Value>) -> Result<PluginConfig, String> {
        if schema.is_some_and(|schema| property(schema, PERMISSIONS_KEY).is_some()) {
            return Err(format!("its settings have the key {PERMISSIONS_KEY:?}, which is reserved"));
        }
        Ok(PluginConfig { settings: self.validate(plugin, schema)?, allowed: self.allowed_permissions(plugin)? })
    }

    /// Returns the permissions to which the configuration limits the hooks of a plugin; `None` if it sets no limit.
    fn allowed_permissions(&self, plugin: &str) -> Result<Option<HookPermissions>, String> {
        let is_permissions =
            |setting: &&PluginSetting| setting.matches_plugin(plugin) && setting.key == PERMISSIONS_KEY;
        let Some(setting) = self.settings.iter().rfind(is_permissions) else { return Ok(None) };
        let invalid = || {
            let (origin, name) = (&setting.origin, setting.full_name());
            format!("{origin} sets {name}, which must be a list of tape, note, anchor, model, send, send:CHANNEL")
        };
        let names: Vec<String> =
            serde_json::from_value(setting.typed_value(&Value::Null, PERMISSIONS_KEY)).map_err(|_| invalid())?;
        names.iter().map(|name| HookPermission::parse(name)).collect::<Option<_>>().map(Some).ok_or_else(invalid)
    }

    /// Validates the settings of a plugin and fills in the defaults of its schema. The error is the reason why they are not
    /// valid.
    fn validate(&self, plugin: &str, schema: Option<&Value>) -> Result<JsonObject, String> {
        let Some(schema) = schema else {
            let is_of_plugin =
                |setting: &&PluginSetting| setting.matches_plugin(plugin) && setting.key != PERMISSIONS_KEY;
            return match self.settings.iter().find(is_of_plugin) {
                None => Ok(JsonObject::new()),
                Some(setting) => {
                    Err(format!("{} sets {}, but the plugin has no settings", setting.origin, setting.full_name()))
                }
            };
        };
        let validator =
            jsonschema::validator_for(schema).map_err(|_| "the schema of its settings is not valid".to_owned())?;
        let (mut values, mut problems) = (JsonObject::new(), Vec::new());
        let allows_unknown_keys = ["additionalProperties", "patternProperties"]
            .iter()
            .any(|keyword| schema.get(keyword).is_some_and(|value| *value != Value::Bool(false)));
        for (key, setting) in
            self.effective_settings(plugin, schema).into_iter().filter(|(key, _)| key != PERMISSIONS_KEY)
        {
            if property(schema, &key).is_none() && !allows_unknown_keys {
                let suggestion = format_suggestion(nearest_name(&key, property_names(schema)));
                problems.push(format!("{} sets an unknown key {:?}{suggestion}", setting.origin, setting.full_name()));
            }
            values.insert(key.clone(), setting.typed_value(schema, &key));
        }
        for name in property_names(schema) {
            if let Some(default) = property(schema, name).and_then(|property| property.get("default")) {
                values.entry(name).or_insert_with(|| default.clone());
            }
        }
        let values = Value::Object(values);
        // Values are masked in the messages: they may be secret.
        let errors = validator.iter_errors(&values).map(|error| match error.instance_path().to_string() {
            path if path.is_empty() => error.masked_with("the section").to_string(),
            path => {
                let name = path.trim_start_matches('/').replace('/', ".");
                format!("{PLUGIN_TABLE}.{plugin}.{name}: {}", error.masked())
            }
        });
        problems.extend(errors.take(MAX_SCHEMA_ERRORS));
        match values {
            Value::Object(values) if problems.is_empty() => Ok(values),
            _ => Err(format!(
                "invalid settings: {}; correct [{PLUGIN_TABLE}.{plugin}] (`capstan config show` prints the origin of each)",
                problems.join("; ")
            )),
        }
    }

    /// Returns the setting with the highest precedence for each key of a plugin.
    fn effective_settings(&self, plugin: &str, schema: &Value) -> BTreeMap<String, &PluginSetting> {
        let settings = self.settings.iter().filter(|setting| setting.matches_plugin(plugin));
        settings.map(|setting| (setting.schema_key(schema), setting)).collect()
    }

    /// Returns the secret values of all layers, including overridden ones.
    pub(super) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for (plugin, schema) in &self.schemas {
            let Some(schema) = schema else { continue };
            for setting in self.settings.iter().filter(|setting| setting.matches_plugin(plugin)) {
                let key = setting.schema_key(schema);
                if is_secret_property(schema, &key) {
                    collect_texts(&setting.typed_value(schema, &key), &mut secrets);
                }
            }
        }
        secrets
    }

    /// Lists the effective settings with their origins. Secrets are masked, as is every value of an unknown plugin.
    pub(super) fn list(&self) -> Vec<SettingListing> {
        let mut listings = Vec::new();
        for (plugin, schema) in &self.schemas {
            let schema = schema.clone().unwrap_or_default();
            for (key, setting) in self.effective_settings(plugin, &schema) {
                let value = match setting.typed_value(&schema, &key) {
                    _ if is_secret_property(&schema, &key) => CONFIG_SECRET_MASK.to_owned(),
                    Value::String(text) => super::url_secrets::mask_url_secrets(&text),
                    value => value.to_string(),
                };
                let (key, origin) = (format!("{PLUGIN_TABLE}.{plugin}.{key}"), setting.origin.to_string());
                listings.push(SettingListing { key, value: Some(value), origin });
            }
        }
        let unknown = self.settings.iter().filter(|setting| self.is_of_unknown_plugin(setting));
        let unknown: BTreeMap<String, &PluginSetting> = unknown.map(|setting| (setting.full_name(), setting)).collect();
        listings.extend(unknown.into_iter().map(|(key, setting)| SettingListing {
            key,
            value: Some(CONFIG_SECRET_MASK.to_owned()),
            origin: setting.origin.to_string(),
        }));
        listings
    }

    /// Describes unknown plugins that have settings, one line per plugin, with the nearest known name.
    pub(super) fn describe_unknown(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let unknown = self.settings.iter().filter(|setting| self.is_of_unknown_plugin(setting));
        let line = |setting: &PluginSetting| {
            let suggestion = format_suggestion(nearest_name(&setting.plugin, self.schemas.keys().map(String::as_str)));
            format!("{} sets {PLUGIN_TABLE}.{}, an unknown plugin{suggestion}", setting.origin, setting.plugin)
        };
        unknown.filter(|setting| seen.insert(setting.plugin.clone())).map(line).collect()
    }

    fn is_of_unknown_plugin(&self, setting: &PluginSetting) -> bool {
        !self.schemas.keys().any(|plugin| setting.matches_plugin(plugin))
    }
}

/// Collects the strings and numbers in a value as texts, at any depth.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(values) => values.values().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}
