//! Plugin trait.

use capstan_protocol::PluginName;
use serde_json::Value;

use crate::{BoxError, HookPermissions, HookRegistrar};

/// Author of plugins that name none.
const LOCAL_AUTHOR: &str = "local";

/// Identity of a registered plugin, from which those of its runners and tools are derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginIdentity {
    /// Name of the plugin.
    pub name: PluginName,
    /// Author of the plugin.
    pub author: String,
    /// The host itself has registered the plugin, not a distribution.
    pub is_builtin: bool,
}

/// Extension of the host: one type that registers its contributions.
///
/// ```
/// use capstan_hooks::{BoxError, HookRegistrar, Plugin, args::PromptContent, points::RunModel};
///
/// /// Replies in capitals instead of calling a model.
/// struct Shout;
///
/// impl Plugin for Shout {
///     fn name(&self) -> &str {
///         "shout"
///     }
///
///     fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
///         hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text().to_uppercase())) });
///         Ok(())
///     }
/// }
/// ```
pub trait Plugin: Send + Sync + 'static {
    /// Unique name of the plugin.
    fn name(&self) -> &str;

    /// Author of the plugin. Together with the name it begins the ids of its runners: `plugin:AUTHOR/NAME/RUNNER`.
    fn author(&self) -> &str {
        LOCAL_AUTHOR
    }

    /// JSON Schema of the plugin's settings, `[plugins.NAME]` in the configuration. `None` for a plugin without settings.
    /// A property with `"writeOnly": true` is secret. The plugin reads its settings with [`HookRegistrar::config`].
    fn config_schema(&self) -> Option<Value> {
        None
    }

    /// Permissions that the plugin's hooks need beyond answering; none by default. The configuration may allow fewer.
    fn permissions(&self) -> HookPermissions {
        HookPermissions::none()
    }

    /// Returns true if a host must not start without the plugin.
    fn is_required(&self) -> bool {
        false
    }

    /// Registers the contributions. A plugin that fails here contributes nothing; the others still load.
    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError>;
}

impl<P: Plugin + ?Sized> Plugin for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn author(&self) -> &str {
        (**self).author()
    }

    fn config_schema(&self) -> Option<Value> {
        (**self).config_schema()
    }

    fn permissions(&self) -> HookPermissions {
        (**self).permissions()
    }

    fn is_required(&self) -> bool {
        (**self).is_required()
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (**self).register(hooks)
    }
}

/// Plugin that did not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLoadFailure {
    /// The plugin.
    pub plugin: PluginName,
    /// Cause of the failure.
    pub reason: String,
    /// A host must not start without the plugin.
    pub is_required: bool,
}
