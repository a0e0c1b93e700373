//! An extension.

use capstan_protocol::PluginName;

use crate::{BoxError, Registrar};

/// An extension: one type that says what it contributes.
///
/// ```
/// use capstan_hooks::{BoxError, Plugin, Registrar, args::Prompt, points::RunModel};
///
/// /// Answers in capitals instead of asking a model.
/// struct Shout;
///
/// impl Plugin for Shout {
///     fn name(&self) -> &str {
///         "shout"
///     }
///
///     fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
///         hooks.on(RunModel, |prompt: Prompt| async move { Ok(Some(prompt.text().to_uppercase())) });
///         Ok(())
///     }
/// }
/// ```
pub trait Plugin: Send + Sync + 'static {
    /// The name it is listed under.
    fn name(&self) -> &str;

    /// Registers what it contributes. A plugin that fails here contributes nothing, and the others still load.
    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError>;
}

impl<P: Plugin + ?Sized> Plugin for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        (**self).register(hooks)
    }
}

/// A plugin that did not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailure {
    /// The plugin.
    pub plugin: PluginName,
    /// Why.
    pub reason: String,
}
