//! Checks of the configuration and the plugins.

use std::path::Path;
use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::ModelProvider;
use capstan_hooks::points::ProvideModelOptions;

use super::report::CheckResult;
use crate::command_catalog::CommandCatalog;
use crate::commands::trust::untrusted_notice;
use crate::config::{Config, ConfigError, ProviderConfig, TapeStoreKind, TrustDecision, instruction_files};
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
    for line in config.unknown_plugins() {
        details.push(line);
        hints.push("correct the name of the plugin, or remove its settings");
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
    let keys = config.provider(provider).map_or(0, |provider| provider.settings.api_keys.len());
    let keys = if keys > 1 { format!(" with {keys} keys") } else { String::new() };
    let message = format!("model {}{keys}, tapes in {store}", config.model);
    if details.is_empty() {
        return CheckResult::ok("config", message);
    }
    hints.dedup();
    CheckResult::warning("config", message, &hints.join("; ")).with_details(details)
}

/// Reports the user's decision about the workspace.
pub(super) fn check_trust(config: &Config, workspace: &Path) -> CheckResult {
    let shown = workspace.display();
    if untrusted_notice(config, workspace).is_some() {
        let message = format!("{shown} is not trusted: {} not used", instruction_files(workspace).join(" and "));
        return CheckResult::warning(
            "workspace",
            message,
            "read them, then run `capstan trust`, if they are yours to follow",
        );
    }
    let reason = match config.trust {
        TrustDecision::BySetting => "trusted, as every workspace is (trust_workspace)",
        TrustDecision::ByRecord => "trusted",
        TrustDecision::Declined | TrustDecision::Undecided => "not trusted, and has no instructions or skills",
    };
    CheckResult::ok("workspace", format!("{shown}: {reason}"))
}

/// Result for a configuration that cannot be loaded, which makes every other command fail.
pub(super) fn failed_config_check(error: ConfigError) -> CheckResult {
    CheckResult::failed("config", &CommandError::from(error))
}

pub(super) fn check_plugins(hooks: &HookRuntime) -> CheckResult {
    let (failures, catalog) = (hooks.registry().load_failures(), CommandCatalog::from_hooks(hooks));
    let unavailable = catalog.unavailable();
    let mut details: Vec<String> =
        failures.iter().map(|failure| format!("{}: {}", failure.plugin, failure.reason)).collect();
    details.extend(unavailable.iter().map(ToString::to_string));
    let unloaded_hint =
        "correct their settings under [plugins]; the host runs without them, and `capstan hooks` lists the others";
    let command_hint = "rename the command, or remove one of the plugins";
    let (message, hint) = match (failures.len(), unavailable.len()) {
        (0, 0) => {
            let loaded: Vec<&str> =
                hooks.registry().plugins_by_priority().map(capstan_protocol::PluginName::as_str).collect();
            return CheckResult::ok("plugins", loaded.join(", "));
        }
        (0, commands) => (format!("commands not available: {commands}"), command_hint.to_owned()),
        (failed, 0) => (format!("failed to load: {failed}"), unloaded_hint.to_owned()),
        (failed, commands) => {
            let message = format!("failed to load: {failed}; commands not available: {commands}");
            (message, format!("{unloaded_hint}; {command_hint}"))
        }
    };
    CheckResult::warning("plugins", message, &hint).with_details(details)
}
