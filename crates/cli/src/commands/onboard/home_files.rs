//! The files of a home as they are to be.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use capstan_host::HostError;
use capstan_protocol::{ErrorCode, JsonObject};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::answers::OnboardAnswers;
use super::{answered_settings, set_provider_setting};
use crate::CommandError;
use crate::command_line::CommandContext;
use crate::config::{
    CONFIG_FILE, Config, ConfigSources, ProviderConfig, SECRETS_FILE, edit_toml, read_of_home, write_private_file,
};

/// The files as they are to be, a later one over an earlier one.
pub(super) struct HomeFiles([(PathBuf, String); 2]);

impl HomeFiles {
    /// What is set for no provider in particular moves to the one it was set for: the next model may be another's.
    pub(super) fn with_answers(context: &CommandContext<'_>, answers: &OnboardAnswers) -> Result<Self, CommandError> {
        let home = &context.config.home;
        let (config, secrets) =
            (ExistingFile::read(home.join(CONFIG_FILE))?, ExistingFile::read(home.join(SECRETS_FILE))?);
        let mut in_config =
            context.build_hooks().onboard_config(answered_settings(answers)).map_err(HostError::from)?;
        let mut in_secrets = JsonObject::new();
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
                // Nobody is asked with it.
                None if answers.is_offline() => continue,
                None => return Err(unassigned_key_error(key, holder)),
            }
            in_config.entry(key).or_insert(Value::Null);
            in_secrets.insert(key.to_owned(), Value::Null);
        }
        if let Some(key) = &answers.api_key {
            let provider = answers.model.provider();
            set_provider_setting(&mut in_secrets, provider, "api_key", json!(key.expose_secret()));
            // It must not stand in two places.
            if config.get(&["models", provider, "api_key"]).is_some() {
                set_provider_setting(&mut in_config, provider, "api_key", Value::Null);
            }
        }
        Ok(Self([config.with_settings(&in_config)?, secrets.with_settings(&in_secrets)?]))
    }

    /// The configuration they make. A key that may be wrong is written nowhere for it.
    pub(super) fn load_config(
        &self,
        context: &CommandContext<'_>,
        answers: &OnboardAnswers,
    ) -> Result<Config, CommandError> {
        let home = &context.config.home;
        let environment = ConfigSources::from_process(home)?.environment.into_iter();
        let environment = environment.filter(|(name, _)| !answers.overriding_variable_names().contains(name)).collect();
        let config = Config::from_texts(home.clone(), &self.0, environment)?;
        check_secret_origin(context, answers, &config)?;
        Ok(config)
    }

    /// Writes what has changed, and says what that was.
    pub(super) fn write(self) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        // A key without its model does no harm; a model without its key fails.
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

/// What was kept for one server is not sent to another: that one may be anybody's.
fn check_secret_origin(
    context: &CommandContext<'_>,
    answers: &OnboardAnswers,
    config: &Config,
) -> Result<(), CommandError> {
    let provider = answers.model.provider();
    let is_key = |name: &String| name.ends_with("api_key");
    let kept = config.stored_secret_names(provider).into_iter().find(|name| answers.api_key.is_none() || !is_key(name));
    let Some(kept) = kept else { return Ok(()) };
    let origin = |config: &Config| config.provider(provider).and_then(ProviderConfig::origin);
    let (before, after) = (origin(&context.config), origin(config));
    if before == after {
        return Ok(());
    }
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let message = format!("{kept} was kept for {before}, and is not sent to {after}");
    let failure = CommandError::new(ErrorCode::KeyElsewhere, message);
    Err(if is_key(&kept) { failure } else { failure.with_hint(STORED_HEADERS_HINT) })
}

/// What to do about headers, which nobody is asked for.
const STORED_HEADERS_HINT: &str =
    "change or remove them in the file of the home, or give the server a name of its own there; nothing was written";

/// One that is not there says nothing.
fn has_content(path: &Path, text: &str) -> bool {
    read_of_home(path).ok().flatten().unwrap_or_default() == text
}

/// What others than the owner of a file may do with it.
const FILE_SHARED_MODE_BITS: u32 = 0o077;

fn is_private(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |found| found.permissions().mode() & FILE_SHARED_MODE_BITS == 0)
}

/// A file as it is.
struct ExistingFile {
    path: PathBuf,
    text: String,
    table: toml::Table,
}

impl ExistingFile {
    /// One that is not there is empty.
    fn read(path: PathBuf) -> Result<Self, CommandError> {
        let text = read_of_home(&path)?.unwrap_or_default();
        let table = text.parse().map_err(|_| invalid_toml_error(&path))?;
        Ok(Self { path, text, table })
    }

    /// The text that stands here.
    fn get(&self, keys: &[&str]) -> Option<&str> {
        let (key, tables) = keys.split_last()?;
        let table = tables.iter().try_fold(&self.table, |table, name| table.get(*name)?.as_table())?;
        table.get(*key)?.as_str()
    }

    /// The file with these settings in it.
    fn with_settings(self, settings: &JsonObject) -> Result<(PathBuf, String), CommandError> {
        let text = edit_toml(&self.text, settings).map_err(|_| invalid_toml_error(&self.path))?;
        Ok((self.path, text))
    }
}

/// It was read before, so it is valid; its text, which may hold a secret, is not repeated.
fn invalid_toml_error(path: &Path) -> CommandError {
    CommandError::new(ErrorCode::ConfigInvalid, format!("{} is not valid TOML", path.display()))
}

/// A key that may be another provider's is not sent to this one.
fn unassigned_key_error(key: &str, file: &ExistingFile) -> CommandError {
    let message = format!("{} sets {key}, and does not say for which provider", file.path.display());
    CommandError::new(ErrorCode::ConfigInvalid, message)
        .with_hint("move it to [models.PROVIDER] there, or give a new one; nothing was written")
}
