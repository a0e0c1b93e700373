//! Contributions of a plugin that has registered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_protocol::{JsonObject, PluginName};
use serde_json::Value;

use crate::error::panic_message;
use crate::registrar::{HookContribution, StopHandler};
use crate::{HookPermissions, HookRegistrar, HookTracer, Plugin, PluginGrant, PluginIdentity};

/// Result of registering a plugin, which any number of registries may contain: [`Plugin::register`] runs once.
pub struct PluginRegistration {
    identity: PluginIdentity,
    /// Configuration that the plugin registered with, or the reason why it is not valid.
    config: Result<PluginConfig, String>,
    contributions: Result<PluginContributions, String>,
    is_failure_logged: AtomicBool,
}

/// Configuration of a plugin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginConfig {
    /// Settings, valid for the schema that the plugin declares.
    pub settings: JsonObject,
    /// Permissions that the configuration allows; `None` allows all that the plugin declares.
    pub allowed: Option<HookPermissions>,
}

/// Implementations and tracers of one plugin, with the authority of its hooks.
pub(crate) struct PluginContributions {
    pub(crate) grant: Arc<PluginGrant>,
    pub(crate) implementations: Vec<HookContribution>,
    pub(crate) tracers: Vec<Arc<dyn HookTracer>>,
    pub(crate) stop_handlers: Vec<StopHandler>,
}

impl PluginRegistration {
    /// Registers a plugin with its configuration. An invalid configuration, an error or a panic are a load failure.
    pub fn register(plugin: &dyn Plugin, config: Result<PluginConfig, String>) -> Self {
        Self::register_as(plugin, config, false)
    }

    /// Registers a plugin of the host itself.
    pub fn register_builtin(plugin: &dyn Plugin) -> Self {
        Self::register_as(plugin, Ok(PluginConfig::default()), true)
    }

    /// Validates the configuration of a plugin: `validate` gets the schema that the plugin declares.
    pub fn validate_config(
        plugin: &dyn Plugin,
        validate: impl FnOnce(Option<&Value>) -> Result<PluginConfig, String>,
    ) -> Result<PluginConfig, String> {
        catch_panic(|| validate(plugin.config_schema().as_ref()))
    }

    fn register_as(plugin: &dyn Plugin, config: Result<PluginConfig, String>, is_builtin: bool) -> Self {
        let name = PluginName::new(plugin.name());
        let contributions = config.clone().and_then(|PluginConfig { settings, allowed }| {
            catch_panic(|| {
                let declared = plugin.permissions();
                let permissions = allowed.map_or(declared.clone(), |allowed| declared.intersect(&allowed));
                let grant = Arc::new(PluginGrant { plugin: name.clone(), permissions });
                let mut registrar = HookRegistrar::new(Arc::clone(&grant), settings);
                plugin.register(&mut registrar).map_err(|error| error.to_string())?;
                let HookRegistrar { contributions: implementations, tracers, stop_handlers, .. } = registrar;
                Ok(PluginContributions { grant, implementations, tracers, stop_handlers })
            })
        });
        let identity = PluginIdentity { name, author: plugin.author().to_owned(), is_builtin };
        Self { identity, config, contributions, is_failure_logged: AtomicBool::new(false) }
    }

    /// Identity of the plugin.
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// Configuration that the plugin registered with, or the reason why it is not valid.
    pub fn config(&self) -> &Result<PluginConfig, String> {
        &self.config
    }

    pub(crate) fn contributions(&self) -> Result<&PluginContributions, &str> {
        self.contributions.as_ref().map_err(String::as_str)
    }

    pub(crate) fn log_failure(&self, reason: &str) {
        if !self.is_failure_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(plugin = %self.identity.name, %reason, "plugin did not load");
        }
    }
}

fn catch_panic<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(panic.as_ref()))))
}
