//! Data of the events about stored state, stored content, artifacts and bindings.

use capstan_protocol::{ArtifactId, Binding, BindingId, StateScope, StorageArea, TapeName};
use serde::{Deserialize, Serialize};

/// A change that a runner made to its stored state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// Scope of the state.
    pub scope: StateScope,
    /// Keys that changed.
    #[serde(default)]
    pub changes: Vec<StateKeyChange>,
}

/// A key of stored state that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeyChange {
    /// The key.
    pub key: String,
    /// Size of the value; none: the key was removed.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// A change that a runner made to its stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageChange {
    /// Area of the storage.
    pub area: StorageArea,
    /// Name of the content.
    pub name: String,
    /// Size of the content; none: it was removed.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// A change of a binding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BindingChange {
    /// Identity of the binding.
    pub binding_id: BindingId,
    /// The binding after the change; none: it was removed.
    #[serde(default)]
    pub binding: Option<Box<Binding>>,
}

/// A change that an operator made to a namespace of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceEdit<T> {
    /// Short id of the namespace.
    pub space: String,
    /// Name of the namespace in the store.
    pub name: String,
    /// Number of keys that changed.
    pub keys: usize,
    /// The change, without values.
    pub change: T,
}

/// A key that an operator set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeyEdit {
    /// The key.
    pub key: String,
    /// Size of the value.
    pub bytes: usize,
}

/// A key that an operator removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeyRemoval {
    /// The key.
    pub key: String,
}

/// Removal of everything in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceClearing {
    /// Reason, as text.
    pub reason: String,
}

/// Content of an artifact that an operator removed. The entry of the artifact stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRemoval {
    /// The artifact.
    pub id: ArtifactId,
    /// Tape that records it.
    pub tape: TapeName,
    /// Size of the content.
    pub bytes: u64,
    /// Reason, as text.
    pub reason: String,
}
