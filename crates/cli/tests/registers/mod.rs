//! A plugin made from a function, for tests in this process.

use capstan::hooks::{BoxError, Plugin, Registrar};

/// A plugin made from a function.
pub struct Registers<F>(pub &'static str, pub F);

impl<F: Fn(&mut Registrar) + Send + Sync + 'static> Plugin for Registers<F> {
    fn name(&self) -> &str {
        self.0
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        (self.1)(hooks);
        Ok(())
    }
}
