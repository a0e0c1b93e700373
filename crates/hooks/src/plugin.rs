//! Plugin trait.

use capstan_protocol::PluginName;

use crate::{BoxError, HookRegistrar};

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

    /// Registers the contributions. A plugin that fails here contributes nothing; the others still load.
    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError>;
}

impl<P: Plugin + ?Sized> Plugin for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
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
}
