//! The configuration and the plugins.

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::ModelProvider;
use capstan_hooks::points::ProvideModelOptions;
use std::sync::Arc;

use super::report::CheckResult;
use crate::config::{Config, ConfigError, ProviderConfig, TapeStoreKind};
use crate::{CommandError, builder};

pub(super) fn check_config(config: &Config, hooks: &HookRuntime) -> CheckResult {
    let mut details = Vec::new();
    let mut hints = Vec::new();
    for name in config.unknown_variables() {
        details.push(format!("{name} is no setting of Capstan"));
        hints.push("`capstan config show` lists the settings");
    }
    for line in config.unprovided_channels(&builder::provided_channels(hooks)) {
        details.push(line);
        hints.push("mend or remove what is set for a channel that is not there");
    }
    let provider = config.model.provider();
    let providers = hooks.collect_provided::<ProvideModelOptions, Arc<dyn ModelProvider>>(|one| one.name().to_owned());
    if !providers.iter().any(|one| one.name() == provider) {
        let known: Vec<&str> = providers.iter().map(|one| one.name()).collect();
        details.push(format!("nobody provides {provider:?}, the provider of the model; known: {}", known.join(", ")));
        hints.push("set CAPSTAN_MODEL to PROVIDER:NAME");
    } else if config.provider(provider).is_some_and(ProviderConfig::is_missing_key) {
        details.push(format!("the model is {}, and there is no key for it", config.model));
        hints.push("set CAPSTAN_API_KEY, or CAPSTAN_API_BASE for an endpoint that needs none");
    }
    for other in &config.fallback_models {
        if !providers.iter().any(|one| one.name() == other.provider()) {
            details.push(format!("nobody provides {:?}, the provider of {other} in fallback_models", other.provider()));
            hints.push("mend fallback_models: each is PROVIDER:NAME");
        }
    }
    for base in config.knowledge.iter().filter(|base| std::fs::read_dir(&base.path).is_err()) {
        details.push(format!(
            "the folder of the knowledge base {}, {}, cannot be read",
            base.name,
            base.path.display()
        ));
        hints.push("mend the path of what is set under knowledge, or make the folder");
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

/// A configuration with which nothing else would run.
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
    let hint = "the rest runs without it; `capstan hooks` shows who does what";
    CheckResult::warning("plugins", format!("{} did not load", failures.len()), hint).with_details(details)
}
