//! State of a turn: an open map that the hooks of the turn share.

use std::sync::{Arc, PoisonError, RwLock};

use capstan_protocol::JsonObject;
use serde_json::Value;

use crate::ExtensionMap;

/// State of a turn. Clones share the same state: a value that one hook sets can be read by the next.
///
/// The schema is open. Plain values are stored by key, runtime objects in the [extensions](Self::extensions).
#[derive(Debug, Clone, Default)]
pub struct TurnState {
    values: Arc<RwLock<JsonObject>>,
    extensions: ExtensionMap,
}

impl TurnState {
    /// Key of the workspace directory.
    pub const WORKSPACE_KEY: &str = "_runtime_workspace";
    /// Key of the session id.
    pub const SESSION_KEY: &str = "session_id";

    /// Creates an empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Value of a key.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.values.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Sets a key.
    pub fn set(&self, key: impl Into<String>, value: impl Into<Value>) {
        self.values.write().unwrap_or_else(PoisonError::into_inner).insert(key.into(), value.into());
    }

    /// Sets every key of a map.
    pub fn merge(&self, values: JsonObject) {
        self.values.write().unwrap_or_else(PoisonError::into_inner).extend(values);
    }

    /// Copy of all plain values.
    pub fn values(&self) -> JsonObject {
        self.values.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runtime objects of the turn.
    pub fn extensions(&self) -> &ExtensionMap {
        &self.extensions
    }
}
