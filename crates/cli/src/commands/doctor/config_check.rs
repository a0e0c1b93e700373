//! Checks of the configuration and the plugins.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::ModelProvider;
use capstan_hooks::points::ProvideModelOptions;

use super::report::CheckResult;
use crate::config::{Config, ConfigError, ProviderConfig, TapeStoreKind};
use crate::{CommandError, builder};

pub(super) fn check_config(config: &Config, hooks: &HookRuntime) -> CheckResult {
    let mut details = Vec::new();
    let mut hints = Vec::new();
    for name in config.unknown_variables() {
        details.push(format!("{name} does not match any setting"));
        hints.push("`capstan config show` lists the settings");
    }
    for line in config.unprovided_channels(&builder::provided_channels(hooks)) {
        details.push(line);
        hints.push("correct the name of the channel, or remove its settings");
    }
    let provider = config.model.provider();
    let providers = hooks.collect_provided::<ProvideModelOptions, Arc<dyn ModelProvider>>(|one| one.name().to_owned());
    if !providers.iter().any(|one| one.name() == provider) {
        let known: Vec<&str> = providers.iter().map(|one| one.name()).collect();
        details.push(format!("unknown model provider {provider:?}; known: {}", known.join(", ")));
        hints.push("set CAPSTAN_MODEL to PROVIDER:NAME");
    } else if config.provider(provider).is_some_and(ProviderConfig::is_missing_key) {
        details.push(format!("no API key for the model {}", config.model));
        hints.push("set CAPSTAN_API_KEY, or CAPSTAN_API_BASE to an endpoint that needs no key");
    }
    for fallback in &config.fallback_models {
        if !providers.iter().any(|one| one.name() == fallback.provider()) {
            details.push(format!("unknown model provider {:?} of {fallback} in fallback_models", fallback.provider()));
            hints.push("set each of fallback_models to PROVIDER:NAME");
        }
    }
    for base in config.knowledge.iter().filter(|base| std::fs::read_dir(&base.path).is_err()) {
        details.push(format!("cannot read the folder {} of the knowledge base {}", base.path.display(), base.name));
        hints.push("correct its path under [knowledge], or create the folder");
    }
    let store = match config.tape_store {
        TapeStoreKind::Sqlite => "sqlite",
        TapeStoreKind::Jsonl => "jsonl",
    };
    let message = format!("model {}, tapes in {store}", config.model);
    if details.is_empty() {
        return CheckResult::ok("config", message);
    }
    hints.dedup();
    CheckResult::warning("config", message, &hints.join("; ")).with_details(details)
}

/// Result for a configuration that cannot be loaded, which makes every other command fail.
pub(super) fn failed_config_check(error: ConfigError) -> CheckResult {
    CheckResult::failed("config", &CommandError::from(error))
}

pub(super) fn check_plugins(hooks: &HookRuntime) -> CheckResult {
    let failures = hooks.registry().load_failures();
    if failures.is_empty() {
        let loaded: Vec<&str> =
            hooks.registry().plugins_in_call_order().map(capstan_protocol::PluginName::as_str).collect();
        return CheckResult::ok("plugins", loaded.join(", "));
    }
    let details = failures.iter().map(|failure| format!("{}: {}", failure.plugin, failure.reason)).collect();
    let hint = "the host runs without them; `capstan hooks` lists the hooks of each plugin";
    CheckResult::warning("plugins", format!("failed to load: {}", failures.len()), hint).with_details(details)
}
