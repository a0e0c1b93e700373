//! `capstan onboard`.

mod answers;
mod home_files;
mod model_check;
mod prompt;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookDeadlines;
use capstan_protocol::JsonObject;
use clap::Args;
use serde_json::{Value, json};

use super::print;
use crate::command_line::{CommandContext, WorkspaceFlag};
use crate::config::Config;
use crate::{CommandError, builder};
use answers::OnboardAnswers;
use home_files::HomeFiles;

/// What can be answered on the command line.
#[derive(Args)]
pub(crate) struct OnboardArgs {
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
const NO_SANDBOX_NOTICE: &str =
    "Tools work without a sandbox so far: bash runs as you, and can read and change whatever you can.";

/// What can be done with answers that do not work.
const CHOICE_RETRY: &str = "again";
const CHOICE_KEEP: &str = "keep";
const CHOICE_QUIT: &str = "quit";

/// Nothing is written before everything is known to be right, or whoever sits there wants it all the same.
pub(crate) async fn run_onboard(context: CommandContext<'_>, arguments: OnboardArgs) -> Result<(), CommandError> {
    let home = context.config.home.clone();
    let mut answers = OnboardAnswers::collect(&context, &arguments, None)?;
    let files = loop {
        let files = HomeFiles::with_answers(&context, &answers)?;
        let (failure, choices) = match files.load_config(&context, &answers) {
            // What could not be read again is not written.
            Err(failure) => (failure, [CHOICE_RETRY, CHOICE_QUIT].as_slice()),
            Ok(config) => match try_model(&context, &answers, &config, arguments.skip_test).await {
                Ok(()) => break files,
                Err(failure) => (failure, [CHOICE_RETRY, CHOICE_KEEP, CHOICE_QUIT].as_slice()),
            },
        };
        if !answers.is_interactive {
            return Err(failure);
        }
        stderr_line!("{failure}");
        match prompt::prompt_choice("And now?", choices)? {
            CHOICE_RETRY => answers = OnboardAnswers::collect(&context, &arguments, Some(&answers))?,
            CHOICE_KEEP => break files,
            _ => return Err(prompt::cancelled_error()),
        }
    };
    builder::create_home(&home).map_err(|error| CommandError::home_error(&home, &error))?;
    for path in files.write().map_err(|error| CommandError::home_error(&home, &error))? {
        print(&format!("written: {}", path.display()))?;
    }
    for name in answers.overriding_variables() {
        stderr_line!("warning: {name} is set in your environment, and goes before what was written");
    }
    stderr_line!("{NO_SANDBOX_NOTICE}");
    stderr_line!("`capstan chat` begins a conversation.");
    Ok(())
}

/// Tries the model of a configuration, where that makes sense.
async fn try_model(
    context: &CommandContext<'_>,
    answers: &OnboardAnswers,
    config: &Config,
    is_skipped: bool,
) -> Result<(), CommandError> {
    if is_skipped || answers.is_offline() {
        stderr_line!("{} was not tried.", config.model);
        return Ok(());
    }
    stderr_line!("Asking {} one short question, to see that it answers ...", config.model);
    let hooks = context.capstan.build_hooks(config, &CliChannel::new(CliPrinter::silent()), HookDeadlines::default());
    model_check::check_model(&hooks, config).await?;
    stderr_line!("It answers.");
    Ok(())
}

/// What plugins are asked about: everything but the key.
fn answered_settings(answers: &OnboardAnswers) -> JsonObject {
    let mut settings = JsonObject::from_iter([("model".to_owned(), json!(answers.model.to_string()))]);
    if let Some(base) = &answers.api_base {
        let base = if base.is_empty() { Value::Null } else { json!(base) };
        set_provider_setting(&mut settings, answers.model.provider(), "api_base", base);
    }
    settings
}

/// Sets `[models.PROVIDER]`: what is set there goes to this provider and to no other, whichever model is asked.
fn set_provider_setting(settings: &mut JsonObject, provider: &str, key: &str, value: Value) {
    let mut inside = settings;
    for name in ["models", provider] {
        let table = inside.entry(name).or_insert(Value::Null);
        if !table.is_object() {
            *table = Value::Object(JsonObject::new());
        }
        // It is an object by now.
        let Some(table) = table.as_object_mut() else { return };
        inside = table;
    }
    inside.insert(key.to_owned(), value);
}

#[cfg(test)]
mod tests;
