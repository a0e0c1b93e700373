//! New contents of the configuration files of a home.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use capstan_hooks::merge_onboard_config;
use capstan_host::HostError;
use capstan_protocol::{ErrorCode, JsonObject};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::answers::OnboardAnswers;
use super::{CommandContext, answered_settings, set_provider_setting};
use crate::config::{
    CONFIG_FILE, CONFIG_KEYS, Config, ConfigSources, PLUGIN_TABLE, ProviderConfig, SECRETS_FILE, edit_toml,
    is_secret_property, read_home_file, write_private_file,
};
use crate::{CommandError, home};

/// Paths and new contents of `config.toml` and `secrets.toml`. The second overrides the first.
pub(super) struct HomeFiles([(PathBuf, String); 2]);

impl HomeFiles {
    /// Merges the answers into the files.
    ///
    /// A top-level `api_base` or `api_key` moves to `[models.PROVIDER]` of the provider it was set for, because the new
    /// model may belong to another provider.
    pub(super) fn with_answers(context: &CommandContext<'_>, answers: &OnboardAnswers) -> Result<Self, CommandError> {
        let home = &context.config.home;
        let (config, secrets) =
            (ExistingFile::read(home.join(CONFIG_FILE))?, ExistingFile::read(home.join(SECRETS_FILE))?);
        let schemas = context.capstan.plugin_schemas(&context.config);
        let present = config.present_settings(&schemas);
        let merged = merge_onboard_config(&context.build_hooks(), answered_settings(answers, &present))
            .map_err(HostError::from)?;
        let mut in_config = changed_settings(merged, &present);
        let mut in_secrets = take_plugin_secrets(&mut in_config, &schemas);
        let layers = [&secrets, &config];
        let owner = layers.iter().find_map(|text| text.get(&["model"])).and_then(|model| model.split_once(':'));
        let owner = owner.map(|(provider, _)| provider).filter(|provider| *provider != "demo");
        for (key, is_answered) in [("api_base", answers.api_base.is_some()), ("api_key", answers.api_key.is_some())] {
            let Some(holder) = layers.iter().find(|text| text.get(&[key]).is_some()) else { continue };
            let in_new = if key == "api_key" { &mut in_secrets } else { &mut in_config };
            match owner {
                Some(owner) => {
                    let found = layers.iter().find_map(|text| {
                        text.get(&["models", owner, key]).map(|_| None).or_else(|| text.get(&[key]).map(Some))
                    });
                    let is_replaced = is_answered && owner == answers.model.provider();
                    if let Some(Some(plain)) = found.filter(|_| !is_replaced) {
                        set_provider_setting(in_new, owner, key, json!(plain));
                    }
                }
                None if is_answered => {}
                // The offline provider does not use it.
                None if answers.is_offline() => continue,
                None => return Err(unassigned_key_error(key, holder)),
            }
            in_config.entry(key).or_insert(Value::Null);
            in_secrets.insert(key.to_owned(), Value::Null);
        }
        if let Some(key) = &answers.api_key {
            let provider = answers.model.provider();
            set_provider_setting(&mut in_secrets, provider, "api_key", json!(key.expose_secret()));
            // A key must not be stored twice.
            if config.get(&["models", provider, "api_key"]).is_some() {
                set_provider_setting(&mut in_config, provider, "api_key", Value::Null);
            }
        }
        Ok(Self([config.with_settings(&in_config)?, secrets.with_settings(&in_secrets)?]))
    }

    /// Loads the configuration from the new contents, so that a key can be tested before it is written anywhere.
    pub(super) fn load_config(
        &self,
        context: &CommandContext<'_>,
        answers: &OnboardAnswers,
    ) -> Result<Config, CommandError> {
        let home = &context.config.home;
        let environment = ConfigSources::from_process(home)?.environment.into_iter();
        let environment = environment.filter(|(name, _)| !answers.overriding_variable_names().contains(name)).collect();
        let mut config = Config::from_texts(home.clone(), &self.0, environment)?;
        config.declare_plugins(context.capstan.plugin_schemas(&context.config));
        check_secret_origin(context, answers, &config)?;
        Ok(config)
    }

    /// Writes the files that have changed, and returns their paths.
    pub(super) fn write(self) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        // Secrets first: a key without its model does no harm, but a model without its key fails.
        let [(config, settings), (secrets, keys)] = self.0;
        if !has_content(&secrets, &keys) || !is_private(&secrets) {
            write_private_file(&secrets, &keys)?;
            written.push(secrets);
        }
        if !has_content(&config, &settings) {
            write_private_file(&config, &settings)?;
            written.push(config);
        }
        Ok(written)
    }
}

/// Refuses to send a stored secret to another server than the one it was stored for.
fn check_secret_origin(
    context: &CommandContext<'_>,
    answers: &OnboardAnswers,
    config: &Config,
) -> Result<(), CommandError> {
    let provider = answers.model.provider();
    let is_key = |name: &String| name.ends_with("api_key");
    let stored =
        config.stored_secret_names(provider).into_iter().find(|name| answers.api_key.is_none() || !is_key(name));
    let Some(stored) = stored else { return Ok(()) };
    let origin = |config: &Config| config.provider(provider).and_then(ProviderConfig::origin);
    let (before, after) = (origin(&context.config), origin(config));
    if before == after {
        return Ok(());
    }
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let message = format!("{stored} was stored for {before}, and is not sent to {after}");
    let failure = CommandError::new(ErrorCode::KeyElsewhere, message);
    Err(if is_key(&stored) || stored.ends_with("api_keys") { failure } else { failure.with_hint(STORED_HEADERS_HINT) })
}

/// Hint for stored headers, which onboarding cannot change.
const STORED_HEADERS_HINT: &str =
    "change or remove the headers in the home's files, or add the server as a provider of its own; nothing was written";

/// Checks if a file already has this text. A missing file counts as empty.
fn has_content(path: &Path, text: &str) -> bool {
    read_home_file(path).ok().flatten().unwrap_or_default() == text
}

fn is_private(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.permissions().mode() & home::SHARED_MODE_BITS == 0)
}

/// Current contents of a file.
struct ExistingFile {
    path: PathBuf,
    text: String,
    table: toml::Table,
}

impl ExistingFile {
    /// Reads a file; a missing one is empty.
    fn read(path: PathBuf) -> Result<Self, CommandError> {
        let text = read_home_file(&path)?.unwrap_or_default();
        let table = text.parse().map_err(|_| invalid_toml_error(&path))?;
        Ok(Self { path, text, table })
    }

    /// String value at a path of keys.
    fn get(&self, keys: &[&str]) -> Option<&str> {
        let (key, tables) = keys.split_last()?;
        let table = tables.iter().try_fold(&self.table, |table, name| table.get(*name)?.as_table())?;
        table.get(*key)?.as_str()
    }

    /// Settings that plugins may see: plain keys and sections of plugins, without secrets.
    fn present_settings(&self, schemas: &BTreeMap<String, Option<Value>>) -> JsonObject {
        let is_public = |key: &str| CONFIG_KEYS.iter().any(|known| known.name == key && !known.secret);
        let to_json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        let plain = self.table.iter().filter(|(key, _)| is_public(key));
        let mut settings: JsonObject = plain.map(|(key, value)| (key.clone(), to_json(value))).collect();
        let Some(plugins) = self.table.get(PLUGIN_TABLE) else { return settings };
        let mut plugins = to_json(plugins);
        for (plugin, schema) in schemas {
            if let (Some(section), Some(schema)) = (plugins.get_mut(plugin).and_then(Value::as_object_mut), schema) {
                section.retain(|key, _| !is_secret_property(schema, key));
            }
        }
        if let Value::Object(sections) = &mut plugins {
            sections.retain(|plugin, _| schemas.contains_key(plugin));
        }
        settings.insert(PLUGIN_TABLE.to_owned(), plugins);
        settings
    }

    /// The file with these settings applied.
    fn with_settings(self, settings: &JsonObject) -> Result<(PathBuf, String), CommandError> {
        let text = edit_toml(&self.text, settings).map_err(|_| invalid_toml_error(&self.path))?;
        Ok((self.path, text))
    }
}

/// Settings that differ from the present ones. The others stay as they are in the file.
fn changed_settings(merged: JsonObject, present: &JsonObject) -> JsonObject {
    let mut changed = JsonObject::new();
    for (key, value) in merged {
        match (value, present.get(&key)) {
            (value, Some(present)) if value == *present => {}
            (Value::Object(merged), Some(Value::Object(present))) => {
                changed.insert(key, Value::Object(changed_settings(merged, present)));
            }
            (value, _) => {
                changed.insert(key, value);
            }
        }
    }
    changed
}

/// Moves the secrets of plugins out of the settings, and returns them in the same form.
fn take_plugin_secrets(settings: &mut JsonObject, schemas: &BTreeMap<String, Option<Value>>) -> JsonObject {
    let mut secrets = JsonObject::new();
    for (plugin, schema) in schemas {
        let section = settings.get_mut(PLUGIN_TABLE).and_then(|plugins| plugins.get_mut(plugin));
        let (Some(section), Some(schema)) = (section.and_then(Value::as_object_mut), schema) else { continue };
        let keys: Vec<String> = section.keys().filter(|key| is_secret_property(schema, key)).cloned().collect();
        let taken: JsonObject = keys.into_iter().filter_map(|key| section.remove_entry(&key)).collect();
        if taken.is_empty() {
            continue;
        }
        // A secret must not be stored twice.
        section.extend(taken.keys().map(|key| (key.clone(), Value::Null)));
        secrets.insert(plugin.clone(), Value::Object(taken));
    }
    if secrets.is_empty() {
        secrets
    } else {
        JsonObject::from_iter([(PLUGIN_TABLE.to_owned(), Value::Object(secrets))])
    }
}

/// Omits the parser's message, because it quotes the text, which may contain a secret. Unlikely, because the file was
/// parsed when the configuration was loaded.
fn invalid_toml_error(path: &Path) -> CommandError {
    CommandError::new(ErrorCode::ConfigInvalid, format!("{} is not valid TOML", path.display()))
}

/// A key of an unknown provider is not sent to the chosen one.
fn unassigned_key_error(key: &str, file: &ExistingFile) -> CommandError {
    let message = format!("{} sets {key} without a provider", file.path.display());
    CommandError::new(ErrorCode::ConfigInvalid, message)
        .with_hint("move it to [models.PROVIDER] in that file, or give a new one; nothing was written")
}
