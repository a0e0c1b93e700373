//! Map of runtime objects by type, attached to plain data.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Map of values with at most one value of each type. Clones share the same map.
#[derive(Clone, Default)]
pub struct ExtensionMap {
    /// A list, because searching a handful of values is faster than hashing a key.
    values: Arc<RwLock<Vec<(TypeId, ExtensionValue)>>>,
}

type ExtensionValue = Arc<dyn Any + Send + Sync>;

impl ExtensionMap {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts a value, replacing the previous one of its type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let (key, value) = (TypeId::of::<T>(), Arc::new(value));
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, slot)) => *slot = value,
            None => values.push((key, value)),
        }
    }

    /// Removes the value of a type.
    pub fn remove<T: Send + Sync + 'static>(&self) {
        let key = TypeId::of::<T>();
        self.values.write().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != key);
    }

    /// Value of a type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let key = TypeId::of::<T>();
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let (_, value) = values.iter().find(|(known, _)| *known == key)?;
        Arc::clone(value).downcast().ok()
    }
}

impl fmt::Debug for ExtensionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "ExtensionMap({})", values.len())
    }
}
