//! What is to be set: from flags, from whoever sits there, and otherwise as it is.

use std::io::Read as _;

use capstan_protocol::{ErrorCode, ExitClass, ModelId};
use secrecy::SecretString;

use super::{OnboardArgs, model_check, prompt};
use crate::CommandError;
use crate::command_line::CommandContext;

/// The provider that needs neither key nor network.
const OFFLINE_PROVIDER: &str = "demo";
/// The longest key that is read.
const MAX_API_KEY_BYTES: u64 = 16 * 1024;

/// What is to be set.
pub(super) struct OnboardAnswers {
    pub(super) model: ModelId,
    /// A new address of its provider, an empty one for the usual one; nothing leaves the one there is.
    pub(super) api_base: Option<String>,
    /// A new key of its provider; nothing leaves the one there is.
    pub(super) api_key: Option<SecretString>,
    /// Somebody sits there who can answer anew.
    pub(super) is_interactive: bool,
    /// Whether what the environment says of no provider in particular was meant for another one.
    environment_is_foreign: bool,
}

impl OnboardAnswers {
    /// Takes what the flags say, and asks for the rest where somebody sits there. What they answered before is suggested.
    pub(super) fn collect(
        context: &CommandContext<'_>,
        arguments: &OnboardArgs,
        before: Option<&Self>,
    ) -> Result<Self, CommandError> {
        let asks = !arguments.yes && prompt::is_interactive();
        let says_something = arguments.provider.is_some()
            || arguments.model.is_some()
            || arguments.api_base.is_some()
            || arguments.api_key_stdin;
        if !asks && !arguments.yes && !says_something {
            let message = "there is no terminal to ask at, and nothing was given";
            return Err(CommandError::new(ErrorCode::Usage, message).with_hint(
                "give --provider, --model, --api-base, --api-key-stdin, or --yes to try what is set already",
            ));
        }
        // A key on the standard input leaves nobody to ask there.
        let asks = asks && !arguments.api_key_stdin;
        // What is kept is what the home has: what the environment says holds for this once. Whoever sits there sees it in
        // the brackets.
        let own = context.config.home_model();
        let own = own.or_else(|| asks.then(|| context.config.model.clone()));
        let present = &before
            .map(|before| before.model.clone())
            .or(own)
            .map_or_else(|| parse_model_id(OFFLINE_PROVIDER, ""), Ok)?;
        let provider = select_provider(context, arguments, present, asks)?;
        let is_same = provider == present.provider();
        let name = match &arguments.model {
            Some(model) if arguments.provider.is_none() => {
                model.split_once(':').map_or(model.as_str(), |(_, name)| name).to_owned()
            }
            Some(model) => model.strip_prefix(&format!("{provider}:")).unwrap_or(model).to_owned(),
            None if provider == OFFLINE_PROVIDER => String::new(),
            None if asks => prompt::prompt_until_valid("Model", if is_same { present.name() } else { "" }, |name| {
                parse_model_id(&provider, name).map(drop)
            })?,
            None if is_same => present.name().to_owned(),
            None => String::new(),
        };
        let model = parse_model_id(&provider, &name)?;
        // An address and a key belong to their provider.
        let there = context.config.provider(&provider).map(|provider| &provider.settings);
        let before = before.filter(|_| is_same);
        let is_offline = provider == OFFLINE_PROVIDER;
        let api_base = match &arguments.api_base {
            None if asks && !is_offline => {
                let kept = there.and_then(|settings| settings.api_base.as_deref()).unwrap_or("");
                let present = before.and_then(|before| before.api_base.as_deref()).unwrap_or(kept);
                let base =
                    prompt::prompt_line("Address, where it is not the usual one (- for the usual one)", present)?;
                if base == "-" { Some(String::new()) } else { Some(base).filter(|base| base != kept) }
            }
            given => given.clone(),
        };
        let api_key = if arguments.api_key_stdin {
            Some(read_api_key()?)
        } else if asks && !is_offline {
            let given = before.and_then(|before| before.api_key.clone());
            let has_key = there.is_some_and(|settings| settings.api_key.is_some());
            let keeps = match &given {
                Some(_) => "keeps the one you gave",
                None if has_key && api_base.is_some() => "keeps the one there is, for the same server only",
                None if has_key => "keeps the one there is",
                None => "for none",
            };
            prompt::prompt_secret(&format!("Key, which is not shown (enter {keeps})"))?.or(given)
        } else {
            None
        };
        let meant = context.config.model.provider();
        let is_elsewhere = ![provider.as_str(), OFFLINE_PROVIDER].contains(&meant);
        Ok(Self { model, api_base, api_key, is_interactive: asks, environment_is_foreign: is_elsewhere })
    }

    /// Whether the model needs neither key nor network.
    pub(super) fn is_offline(&self) -> bool {
        self.model.provider() == OFFLINE_PROVIDER
    }

    /// The variables of the environment that stand over what was answered here, or were meant for another provider.
    pub(super) fn overriding_variable_names(&self) -> Vec<String> {
        let mut names = vec!["CAPSTAN_MODEL".to_owned()];
        let provider = self.model.provider().to_uppercase().replace('-', "_");
        for (key, is_answered) in [("API_BASE", self.api_base.is_some()), ("API_KEY", self.api_key.is_some())] {
            if is_answered || self.environment_is_foreign {
                names.push(format!("CAPSTAN_{key}"));
            }
            if is_answered {
                names.push(format!("CAPSTAN_MODELS__{provider}__{key}"));
            }
        }
        names
    }

    /// Those that are set, and would go before what is written.
    pub(super) fn overriding_variables(&self) -> Vec<String> {
        let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.overriding_variable_names().into_iter().filter(is_set).collect()
    }
}

fn select_provider(
    context: &CommandContext<'_>,
    arguments: &OnboardArgs,
    present: &ModelId,
    asks: bool,
) -> Result<String, CommandError> {
    let known: Vec<String> = model_check::model_providers(&context.build_hooks())
        .iter()
        .map(|provider| provider.name().to_owned())
        .collect();
    let check = |provider: &str| {
        if known.iter().any(|name| name == provider) {
            return Ok(());
        }
        let message = format!("there is no provider {provider}; there are {}", known.join(", "));
        Err(CommandError::new(ErrorCode::ModelUnknown, message)
            .with_exit(ExitClass::Usage)
            .with_hint("name one of those"))
    };
    let provider = match (&arguments.provider, &arguments.model) {
        (Some(provider), _) => provider.clone(),
        (None, Some(model)) => match model.split_once(':') {
            Some((provider, _)) => provider.to_owned(),
            None => present.provider().to_owned(),
        },
        (None, None) if asks => {
            prompt::prompt_until_valid(&format!("Provider ({})", known.join(", ")), present.provider(), check)?
        }
        (None, None) => present.provider().to_owned(),
    };
    check(&provider)?;
    Ok(provider)
}

fn parse_model_id(provider: &str, name: &str) -> Result<ModelId, CommandError> {
    let refused = |reason: String| {
        CommandError::new(ErrorCode::Usage, reason).with_hint("give it with --model, as the provider calls it")
    };
    if name.is_empty() && provider != OFFLINE_PROVIDER {
        return Err(refused(format!("the provider {provider} needs the name of a model")));
    }
    let model = format!("{provider}:{name}").parse();
    model.map_err(|error| refused(format!("{provider}:{name} is no model: {error}")))
}

fn read_api_key() -> Result<SecretString, CommandError> {
    let invalid = |reason: &str| {
        CommandError::new(ErrorCode::InputInvalid, format!("the key on the standard input {reason}"))
            .with_hint("give the key alone, as in `capstan onboard --api-key-stdin ... < FILE`")
    };
    let mut key = String::new();
    let read = std::io::stdin().lock().take(MAX_API_KEY_BYTES).read_to_string(&mut key);
    read.map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    match key.trim() {
        "" => Err(invalid("is empty")),
        key if !is_single_token(key) => Err(invalid("has blanks or several lines")),
        key => Ok(SecretString::from(key)),
    }
}

/// Whether a key can be one.
pub(super) fn is_single_token(key: &str) -> bool {
    !key.contains(|character: char| character.is_whitespace() || character.is_control())
}
