//! Runtime objects that ride along with plain data, by their type.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A set of values, at most one of each type. Clones share the same set.
#[derive(Clone, Default)]
pub struct ExtensionMap {
    /// A handful, which are looked through faster than a key is hashed.
    values: Arc<RwLock<Vec<(TypeId, ExtensionValue)>>>,
}

type ExtensionValue = Arc<dyn Any + Send + Sync>;

impl ExtensionMap {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a value in, in place of the one of its type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let (key, value) = (TypeId::of::<T>(), Arc::new(value));
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        match values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, place)) => *place = value,
            None => values.push((key, value)),
        }
    }

    /// Takes the value of this type out.
    pub fn remove<T: Send + Sync + 'static>(&self) {
        let key = TypeId::of::<T>();
        self.values.write().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != key);
    }

    /// The value of this type.
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
