//! Plugin built from a closure.

use capstan_hooks::{BoxError, HookPermissions, HookRegistrar, Plugin};

/// Registration function of a plugin.
type PluginRegisterFn = dyn Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync;

/// Plugin whose registration is a closure.
pub struct ClosurePlugin {
    name: &'static str,
    author: Option<&'static str>,
    permissions: HookPermissions,
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
        Self { name, author: None, permissions: HookPermissions::none(), register: Box::new(register) }
    }

    /// The plugin with an author.
    pub fn with_author(self, author: &'static str) -> Self {
        Self { author: Some(author), ..self }
    }

    /// The plugin with permissions of its hooks.
    pub fn with_permissions(self, permissions: impl Into<HookPermissions>) -> Self {
        Self { permissions: permissions.into(), ..self }
    }
}

impl Plugin for ClosurePlugin {
    fn name(&self) -> &str {
        self.name
    }

    fn author(&self) -> &str {
        self.author.unwrap_or("local")
    }

    fn permissions(&self) -> HookPermissions {
        self.permissions.clone()
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (self.register)(hooks)
    }
}
