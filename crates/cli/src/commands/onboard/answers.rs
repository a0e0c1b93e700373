//! Answers of onboarding: from flags, from prompts, and otherwise from the current configuration.

use std::io::Read as _;

use capstan_protocol::{ErrorCode, ExitClass, ModelId};
use secrecy::SecretString;

use super::{CommandContext, OnboardArgs, model_check, prompt};
use crate::CommandError;

/// The provider that needs neither key nor network.
const OFFLINE_PROVIDER: &str = "demo";
/// Maximum length of an API key.
const MAX_API_KEY_BYTES: u64 = 16 * 1024;

/// Settings to save.
pub(super) struct OnboardAnswers {
    pub(super) model: ModelId,
    /// New base URL of the provider, empty for its default; `None` keeps the current one.
    pub(super) api_base: Option<String>,
    /// New API key of the provider; `None` keeps the current one.
    pub(super) api_key: Option<SecretString>,
    /// The user can be asked again.
    pub(super) is_interactive: bool,
    /// `CAPSTAN_API_BASE` and `CAPSTAN_API_KEY` belong to another provider.
    environment_is_foreign: bool,
}

impl OnboardAnswers {
    /// Takes the flags, and prompts for the rest at a terminal. Previous answers are the defaults.
    pub(super) fn collect(
        context: &CommandContext<'_>,
        arguments: &OnboardArgs,
        previous: Option<&Self>,
    ) -> Result<Self, CommandError> {
        let prompts = !arguments.yes && prompt::is_interactive();
        let has_flags = arguments.provider.is_some()
            || arguments.model.is_some()
            || arguments.api_base.is_some()
            || arguments.api_key_stdin;
        if !prompts && !arguments.yes && !has_flags {
            let message = "no options were given, and there is no terminal to ask for them";
            return Err(CommandError::new(ErrorCode::Usage, message).with_hint(
                "give --provider, --model, --api-base or --api-key-stdin, or --yes to test the current settings",
            ));
        }
        // A key on standard input takes the place of the user's answers.
        let prompts = prompts && !arguments.api_key_stdin;
        // The default is the model of the home, because the environment applies to this process only. A user who is
        // prompted sees the default in brackets, so that the model of the environment may be offered too.
        let saved = context.config.home_model();
        let saved = saved.or_else(|| prompts.then(|| context.config.model.clone()));
        let default = &previous
            .map(|previous| previous.model.clone())
            .or(saved)
            .map_or_else(|| parse_model_id(OFFLINE_PROVIDER, ""), Ok)?;
        let provider = select_provider(context, arguments, default, prompts)?;
        let is_same = provider == default.provider();
        let name = match &arguments.model {
            Some(model) if arguments.provider.is_none() => {
                model.split_once(':').map_or(model.as_str(), |(_, name)| name).to_owned()
            }
            Some(model) => model.strip_prefix(&format!("{provider}:")).unwrap_or(model).to_owned(),
            None if provider == OFFLINE_PROVIDER => String::new(),
            None if prompts => {
                prompt::prompt_until_valid("Model", if is_same { default.name() } else { "" }, |name| {
                    parse_model_id(&provider, name).map(drop)
                })?
            }
            None if is_same => default.name().to_owned(),
            None => String::new(),
        };
        let model = parse_model_id(&provider, &name)?;
        // Base URL and key belong to one provider.
        let current = context.config.provider(&provider).map(|provider| &provider.settings);
        let previous = previous.filter(|_| is_same);
        let is_offline = provider == OFFLINE_PROVIDER;
        let api_base = match &arguments.api_base {
            None if prompts && !is_offline => {
                let current_base = current.and_then(|settings| settings.api_base.as_deref()).unwrap_or("");
                let default = previous.and_then(|previous| previous.api_base.as_deref()).unwrap_or(current_base);
                let base = prompt::prompt_line("Base URL (- for the default of the provider)", default)?;
                if base == "-" { Some(String::new()) } else { Some(base).filter(|base| base != current_base) }
            }
            argument => argument.clone(),
        };
        let api_key = if arguments.api_key_stdin {
            Some(read_api_key()?)
        } else if prompts && !is_offline {
            let previous_key = previous.and_then(|previous| previous.api_key.clone());
            let has_key = current.is_some_and(|settings| !settings.api_keys.is_empty());
            let on_enter = match &previous_key {
                Some(_) => "to keep the one you entered",
                None if has_key && api_base.is_some() => "to keep the current one, for the same server only",
                None if has_key => "to keep the current one",
                None => "for none",
            };
            prompt::prompt_secret(&format!("API key, not shown (enter {on_enter})"))?.or(previous_key)
        } else {
            None
        };
        let environment_provider = context.config.model.provider();
        let environment_is_foreign = ![provider.as_str(), OFFLINE_PROVIDER].contains(&environment_provider);
        Ok(Self { model, api_base, api_key, is_interactive: prompts, environment_is_foreign })
    }

    /// Checks if the model needs neither key nor network.
    pub(super) fn is_offline(&self) -> bool {
        self.model.provider() == OFFLINE_PROVIDER
    }

    /// Environment variables that would override the answers, or belong to another provider.
    pub(super) fn overriding_variable_names(&self) -> Vec<String> {
        let mut names = vec!["CAPSTAN_MODEL".to_owned()];
        let provider = self.model.provider().to_uppercase().replace('-', "_");
        for (key, is_answered) in [("API_BASE", self.api_base.is_some()), ("API_KEY", self.api_key.is_some())] {
            if is_answered || self.environment_is_foreign {
                names.push(format!("CAPSTAN_{key}"));
            }
            if is_answered {
                names.push(format!("CAPSTAN_MODELS__{provider}__{key}"));
                if key == "API_KEY" {
                    names.push(format!("CAPSTAN_MODELS__{provider}__API_KEYS"));
                }
            }
        }
        names
    }

    /// Environment variables that are set and override the saved settings.
    pub(super) fn overriding_variables(&self) -> Vec<String> {
        let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.overriding_variable_names().into_iter().filter(is_set).collect()
    }
}

fn select_provider(
    context: &CommandContext<'_>,
    arguments: &OnboardArgs,
    default: &ModelId,
    prompts: bool,
) -> Result<String, CommandError> {
    let known: Vec<String> = model_check::model_providers(&context.build_hooks())
        .iter()
        .map(|provider| provider.name().to_owned())
        .collect();
    let check = |provider: &str| {
        if known.iter().any(|name| name == provider) {
            return Ok(());
        }
        let message = format!("unknown model provider {provider}; known: {}", known.join(", "));
        Err(CommandError::new(ErrorCode::ModelUnknown, message)
            .with_exit(ExitClass::Usage)
            .with_hint("use one of the known providers"))
    };
    let provider = match (&arguments.provider, &arguments.model) {
        (Some(provider), _) => provider.clone(),
        (None, Some(model)) => match model.split_once(':') {
            Some((provider, _)) => provider.to_owned(),
            None => default.provider().to_owned(),
        },
        (None, None) if prompts => {
            prompt::prompt_until_valid(&format!("Provider ({})", known.join(", ")), default.provider(), check)?
        }
        (None, None) => default.provider().to_owned(),
    };
    check(&provider)?;
    Ok(provider)
}

fn parse_model_id(provider: &str, name: &str) -> Result<ModelId, CommandError> {
    let invalid = |reason: String| {
        CommandError::new(ErrorCode::Usage, reason).with_hint("set --model to a model name of the provider")
    };
    if name.is_empty() && provider != OFFLINE_PROVIDER {
        return Err(invalid(format!("the provider {provider} needs a model name")));
    }
    let model = format!("{provider}:{name}").parse();
    model.map_err(|error| invalid(format!("{provider}:{name} is not a model: {error}")))
}

fn read_api_key() -> Result<SecretString, CommandError> {
    let invalid = |reason: &str| {
        CommandError::new(ErrorCode::InputInvalid, format!("the key on the standard input {reason}"))
            .with_hint("pass only the key, as in `capstan onboard --api-key-stdin ... < FILE`")
    };
    let mut key = String::new();
    let read = std::io::stdin().lock().take(MAX_API_KEY_BYTES).read_to_string(&mut key);
    read.map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    match key.trim() {
        "" => Err(invalid("is empty")),
        key if !is_single_token(key) => Err(invalid("contains blanks or several lines")),
        key => Ok(SecretString::from(key)),
    }
}

/// Checks that a key has no blanks and no control characters.
pub(super) fn is_single_token(key: &str) -> bool {
    !key.contains(|character: char| character.is_whitespace() || character.is_control())
}
