//! `capstan onboard`.

mod answers;
mod home_files;
mod model_check;
mod prompt;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_protocol::JsonObject;
use clap::Args;
use serde_json::{Value, json};

use self::answers::OnboardAnswers;
use self::home_files::HomeFiles;
use super::{CommandContext, WorkspaceFlag, print};
use crate::config::{Config, find_abandoned_files};
use crate::{CommandError, home};

#[derive(Args)]
pub(crate) struct OnboardArgs {
    /// Model provider, such as openai
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Model: NAME with --provider, otherwise PROVIDER:NAME
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Base URL of the provider; pass "" for the default
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// Read the API key from standard input
    #[arg(long)]
    api_key_stdin: bool,
    /// Save without testing the model
    #[arg(long)]
    skip_test: bool,
    /// Do not prompt; options not given keep their current value
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// Security notice at the end of onboarding.
const NO_SANDBOX_NOTICE: &str =
    "Tools run without a sandbox: bash runs as you, and can read and change everything that you can.";

// Choices after answers that failed the test.
const CHOICE_RETRY: &str = "retry";
const CHOICE_KEEP: &str = "keep";
const CHOICE_QUIT: &str = "quit";

/// Collects answers, tests them, and writes the files of the home. Writes nothing before the test has passed or the user
/// has chosen to keep the answers anyway.
pub(crate) async fn run_onboard(context: CommandContext<'_>, arguments: OnboardArgs) -> Result<(), CommandError> {
    let home = context.config.home.clone();
    let mut answers = OnboardAnswers::collect(&context, &arguments, None)?;
    let files = loop {
        let files = HomeFiles::with_answers(&context, &answers)?;
        let (failure, choices) = match files.load_config(&context, &answers) {
            // Files that could not be loaded again are never written.
            Err(failure) => (failure, [CHOICE_RETRY, CHOICE_QUIT].as_slice()),
            Ok(config) => match test_model(&context, &answers, &config, arguments.skip_test).await {
                Ok(()) => break files,
                Err(failure) => (failure, [CHOICE_RETRY, CHOICE_KEEP, CHOICE_QUIT].as_slice()),
            },
        };
        if !answers.is_interactive {
            return Err(failure);
        }
        stderr_line!("{failure}");
        match prompt::prompt_choice("What next?", choices)? {
            CHOICE_RETRY => answers = OnboardAnswers::collect(&context, &arguments, Some(&answers))?,
            CHOICE_KEEP => break files,
            _ => return Err(prompt::cancelled_error()),
        }
    };
    home::create_home(&home).map_err(|error| CommandError::home_error(&home, &error))?;
    for path in find_abandoned_files(&home) {
        if let Err(error) = std::fs::remove_file(&path) {
            stderr_line!("warning: cannot remove {}: {error}", path.display());
        }
    }
    for path in files.write().map_err(|error| CommandError::home_error(&home, &error))? {
        print(&format!("wrote {}", path.display()))?;
    }
    for name in answers.overriding_variables() {
        stderr_line!("warning: {name} is set in your environment and overrides the saved value");
    }
    stderr_line!("{NO_SANDBOX_NOTICE}");
    stderr_line!("Run `capstan chat` to start a conversation.");
    Ok(())
}

/// Tests the configured model, unless the test is skipped or the model works offline.
async fn test_model(
    context: &CommandContext<'_>,
    answers: &OnboardAnswers,
    config: &Config,
    is_skipped: bool,
) -> Result<(), CommandError> {
    if is_skipped || answers.is_offline() {
        stderr_line!("{} was not tested.", config.model);
        return Ok(());
    }
    stderr_line!("Testing {} with a short question ...", config.model);
    let hooks = context.capstan.build_hooks(config, &CliChannel::new(CliPrinter::silent()));
    model_check::check_model(&hooks, config).await?;
    stderr_line!("The model works.");
    Ok(())
}

/// Settings passed to the `onboard_config` hook: the present ones and the answers, without secrets.
fn answered_settings(answers: &OnboardAnswers, present: &JsonObject) -> JsonObject {
    let mut settings = present.clone();
    settings.insert("model".to_owned(), json!(answers.model.to_string()));
    if let Some(base) = &answers.api_base {
        let base = if base.is_empty() { Value::Null } else { json!(base) };
        set_provider_setting(&mut settings, answers.model.provider(), "api_base", base);
    }
    settings
}

/// Sets a key of `[models.PROVIDER]`, which applies to this provider only, whatever the current model is.
fn set_provider_setting(settings: &mut JsonObject, provider: &str, key: &str, value: Value) {
    let mut parent = settings;
    for name in ["models", provider] {
        let table = parent.entry(name).or_insert(Value::Null);
        if !table.is_object() {
            *table = Value::Object(JsonObject::new());
        }
        // Always an object here.
        let Some(table) = table.as_object_mut() else { return };
        parent = table;
    }
    parent.insert(key.to_owned(), value);
}

#[cfg(test)]
mod tests;
