//! `capstan onboard`.

mod answers;
mod ask;
mod trial;

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use capstan_channels::{Cli, Printer};
use capstan_hooks::Deadlines;
use capstan_host::HostError;
use capstan_protocol::Map;
use clap::Args;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::print;
use crate::command_line::{Context, WorkspaceFlag};
use crate::config::{CONFIG_FILE, Config, SECRETS_FILE, Sources, edited, write_private};
use crate::{Exit, Failure, builder};
use answers::Answers;

/// What can be answered on the command line.
#[derive(Args)]
pub(crate) struct Onboard {
    /// The provider, as in openai.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model: its name at the provider, or provider:name where no --provider is given.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The provider's address, where it is not the usual one; an empty one is the usual one.
    #[arg(long, value_name = "URL")]
    pub(crate) api_base: Option<String>,
    /// Reads the key from the standard input.
    #[arg(long)]
    pub(crate) api_key_stdin: bool,
    /// Does not try the model.
    #[arg(long)]
    pub(crate) skip_test: bool,
    /// Asks nothing: what is not given stays as it is.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// What nobody may be left to find out by themselves.
const OPEN: &str = "Tools work without a sandbox so far: bash runs as you, and can read and change whatever you can.";

/// What can be done with answers that do not work.
const AGAIN: &str = "again";
const KEEP: &str = "keep";
const QUIT: &str = "quit";

/// Nothing is written before everything is known to be right, or whoever sits there wants it all the same.
pub(crate) async fn onboard(context: Context<'_>, arguments: Onboard) -> Result<(), Failure> {
    let home = context.config.home.clone();
    let mut answers = Answers::get(&context, &arguments, None)?;
    let files = loop {
        let files = Files::changed(&context, &answers)?;
        let (failure, choices) = match files.config(&context, &answers) {
            // What could not be read again is not written.
            Err(failure) => (failure, [AGAIN, QUIT].as_slice()),
            Ok(config) => match try_model(&context, &answers, &config, arguments.skip_test).await {
                Ok(()) => break files,
                Err(failure) => (failure, [AGAIN, KEEP, QUIT].as_slice()),
            },
        };
        if !answers.were_asked {
            return Err(failure);
        }
        eprintln!("{failure}");
        match ask::choice("And now?", choices)? {
            AGAIN => answers = Answers::get(&context, &arguments, Some(&answers))?,
            KEEP => break files,
            _ => return Err(ask::given_up()),
        }
    };
    builder::make_home(&home).map_err(|error| Failure::home(&home, &error))?;
    for path in files.write().map_err(|error| Failure::home(&home, &error))? {
        print(&format!("written: {}", path.display()))?;
    }
    for name in answers.overridden() {
        eprintln!("warning: {name} is set in your environment, and goes before what was written");
    }
    eprintln!("{OPEN}");
    eprintln!("`capstan chat` begins a conversation.");
    Ok(())
}

/// Tries the model of a configuration, where that makes sense.
async fn try_model(context: &Context<'_>, answers: &Answers, config: &Config, is_skipped: bool) -> Result<(), Failure> {
    if is_skipped || answers.is_offline() {
        eprintln!("{} was not tried.", config.model);
        return Ok(());
    }
    eprintln!("Asking {} one short question, to see that it answers ...", config.model);
    let hooks = context.capstan.hooks(config, &Cli::new(Printer::silent()), Deadlines::default());
    trial::run(&hooks, config).await?;
    eprintln!("It answers.");
    Ok(())
}

/// What plugins are asked about: everything but the key.
fn settings(answers: &Answers) -> Map {
    let base = answers.api_base.as_ref().map_or(Value::Null, |base| json!(base));
    let settings = json!({ "model": answers.model.to_string(), "api_base": base });
    settings.as_object().cloned().unwrap_or_default()
}

/// The files as they are to be.
struct Files {
    config: (PathBuf, String),
    secrets: Option<(PathBuf, String)>,
}

impl Files {
    fn changed(context: &Context<'_>, answers: &Answers) -> Result<Self, Failure> {
        let home = &context.config.home;
        let mut settings = context.hooks().onboard_config(settings(answers)).map_err(HostError::from)?;
        let secrets = match &answers.api_key {
            None => None,
            Some(key) => {
                // It must not stand in two places.
                settings.insert("api_key".to_owned(), Value::Null);
                let key = Map::from_iter([("api_key".to_owned(), json!(key.expose_secret()))]);
                Some(change(home.join(SECRETS_FILE), &key)?)
            }
        };
        Ok(Self { config: change(home.join(CONFIG_FILE), &settings)?, secrets })
    }

    /// The configuration they make, read as at every start, from a folder that is gone afterwards.
    fn config(&self, context: &Context<'_>, answers: &Answers) -> Result<Config, Failure> {
        let home = &context.config.home;
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let trial = std::env::temp_dir().join(format!("capstan-onboard-{}-{now}", std::process::id()));
        let unusable = |error: std::io::Error| Failure::home(&trial, &error);
        // One that is there already, in a place where everybody can make some, would be somebody else's.
        DirBuilder::new().mode(0o700).create(&trial).map_err(unusable)?;
        let _removed = Removed(trial.clone());
        write_private(&trial.join(CONFIG_FILE), &self.config.1).map_err(unusable)?;
        let secrets = match &self.secrets {
            Some((_, text)) => text.clone(),
            None => std::fs::read_to_string(home.join(SECRETS_FILE)).unwrap_or_default(),
        };
        write_private(&trial.join(SECRETS_FILE), &secrets).map_err(unusable)?;
        let environment = Sources::of_process(&trial)?.environment;
        let environment = environment.into_iter().filter(|(name, _)| !answers.names().contains(&name.as_str()));
        let sources = Sources { home: trial.clone(), workspace: trial.clone(), environment: environment.collect() };
        Config::load(sources).map_err(|error| {
            let failure = Failure::from(error);
            let message = failure.message.replace(&trial.display().to_string(), &home.display().to_string());
            Failure { message, ..failure }
        })
    }

    /// Writes what has changed, and says what that was.
    fn write(self) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        // A key without its model does no harm; a model without its key fails.
        if let Some((path, text)) = self.secrets
            && !(says(&path, &text) && is_private(&path))
        {
            write_private(&path, &text)?;
            written.push(path);
        }
        let (path, text) = self.config;
        if !says(&path, &text) {
            write_private(&path, &text)?;
            written.push(path);
        }
        Ok(written)
    }
}

fn says(path: &Path, text: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|present| present == text)
}

/// What others than the owner of a file may do with it.
const OTHERS: u32 = 0o077;

fn is_private(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS == 0)
}

fn change(path: PathBuf, settings: &Map) -> Result<(PathBuf, String), Failure> {
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            let message = format!("cannot read {}: {error}", path.display());
            return Err(Failure::new("config-invalid", message, Exit::Config));
        }
    };
    // It was read before, so it is valid; its text, which may hold a secret, is not repeated.
    let broken = |_| Failure::new("config-invalid", format!("{} is not valid TOML", path.display()), Exit::Config);
    let text = edited(&text, settings).map_err(broken)?;
    Ok((path, text))
}

/// A folder that is removed at the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // What is left of it is only its owner's to read.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
