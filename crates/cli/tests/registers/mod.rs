//! Plugin built from a closure, for tests in this process.

use capstan::hooks::{BoxError, HookRegistrar, Plugin};

/// Plugin whose registration is a closure.
pub struct ClosurePlugin<F>(pub &'static str, pub F);

impl<F: Fn(&mut HookRegistrar) + Send + Sync + 'static> Plugin for ClosurePlugin<F> {
    fn name(&self) -> &str {
        self.0
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (self.1)(hooks);
        Ok(())
    }
}
