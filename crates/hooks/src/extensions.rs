//! Runtime objects that ride along with plain data, by their type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A set of values, at most one of each type. Clones share the same set.
#[derive(Clone, Default)]
pub struct Extensions {
    values: Arc<RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

impl Extensions {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a value in, in place of the one of its type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Takes the value of this type out.
    pub fn remove<T: Send + Sync + 'static>(&self) {
        self.values.write().unwrap_or_else(PoisonError::into_inner).remove(&TypeId::of::<T>());
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Extensions({})", values.len())
    }
}
