//! An extension.

use capstan_protocol::PluginName;

use crate::{BoxError, HookRegistrar};

/// An extension: one type that says what it contributes.
///
/// ```
/// use capstan_hooks::{BoxError, Plugin, HookRegistrar, args::PromptContent, points::RunModel};
///
/// /// Answers in capitals instead of asking a model.
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
    /// The name it is listed under.
    fn name(&self) -> &str;

    /// Registers what it contributes. A plugin that fails here contributes nothing, and the others still load.
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

/// A plugin that did not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLoadFailure {
    /// The plugin.
    pub plugin: PluginName,
    /// Why.
    pub reason: String,
}
