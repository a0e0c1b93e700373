//! `capstan onboard`.

mod answers;
mod ask;
mod files;
mod trial;

use capstan_channels::{Cli, Printer};
use capstan_hooks::Deadlines;
use capstan_protocol::Map;
use clap::Args;
use serde_json::{Value, json};

use super::print;
use crate::command_line::{Context, WorkspaceFlag};
use crate::config::Config;
use crate::{Failure, builder};
use answers::Answers;
use files::Files;

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
        complain!("{failure}");
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
        complain!("warning: {name} is set in your environment, and goes before what was written");
    }
    complain!("{OPEN}");
    complain!("`capstan chat` begins a conversation.");
    Ok(())
}

/// Tries the model of a configuration, where that makes sense.
async fn try_model(context: &Context<'_>, answers: &Answers, config: &Config, is_skipped: bool) -> Result<(), Failure> {
    if is_skipped || answers.is_offline() {
        complain!("{} was not tried.", config.model);
        return Ok(());
    }
    complain!("Asking {} one short question, to see that it answers ...", config.model);
    let hooks = context.capstan.hooks(config, &Cli::new(Printer::silent()), Deadlines::default());
    trial::run(&hooks, config).await?;
    complain!("It answers.");
    Ok(())
}

/// What plugins are asked about: everything but the key.
fn settings(answers: &Answers) -> Map {
    let mut settings = Map::from_iter([("model".to_owned(), json!(answers.model.to_string()))]);
    if let Some(base) = &answers.api_base {
        let base = if base.is_empty() { Value::Null } else { json!(base) };
        set_for_provider(&mut settings, answers.model.provider(), "api_base", base);
    }
    settings
}

/// Sets `[models.PROVIDER]`: what is set there goes to this provider and to no other, whichever model is asked.
fn set_for_provider(settings: &mut Map, provider: &str, key: &str, value: Value) {
    let mut inside = settings;
    for name in ["models", provider] {
        let table = inside.entry(name).or_insert(Value::Null);
        if !table.is_object() {
            *table = Value::Object(Map::new());
        }
        // It is an object by now.
        let Some(table) = table.as_object_mut() else { return };
        inside = table;
    }
    inside.insert(key.to_owned(), value);
}

#[cfg(test)]
mod tests;
