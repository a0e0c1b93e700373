//! Plugin built from a closure.

use capstan_hooks::{BoxError, HookRegistrar, Plugin};

/// Registration function of a plugin.
type PluginRegisterFn = dyn Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync;

/// Plugin whose registration is a closure.
pub struct ClosurePlugin {
    name: &'static str,
    author: Option<&'static str>,
    register: Box<PluginRegisterFn>,
}

impl ClosurePlugin {
    /// Plugin that always loads.
    pub fn new(name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> Self {
        Self::fallible(name, move |hooks| {
            register(hooks);
            Ok(())
        })
    }

    /// Plugin that may fail to load.
    pub fn fallible(
        name: &'static str,
        register: impl Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { name, author: None, register: Box::new(register) }
    }

    /// The plugin with an author.
    pub fn with_author(self, author: &'static str) -> Self {
        Self { author: Some(author), ..self }
    }
}

impl Plugin for ClosurePlugin {
    fn name(&self) -> &str {
        self.name
    }

    fn author(&self) -> &str {
        self.author.unwrap_or("local")
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (self.register)(hooks)
    }
}
