//! The state of a turn: an open map that the hooks of the turn share.

use std::sync::{Arc, PoisonError, RwLock};

use capstan_protocol::JsonObject;
use serde_json::Value;

use crate::ExtensionMap;

/// The state of a turn. Clones share it: what one hook sets, the next one reads.
///
/// Its schema is open. Plain values are kept by key; runtime objects ride in [`State::extensions`].
#[derive(Debug, Clone, Default)]
pub struct TurnState {
    values: Arc<RwLock<JsonObject>>,
    extensions: ExtensionMap,
}

impl TurnState {
    /// The key of the workspace directory.
    pub const WORKSPACE_KEY: &str = "_runtime_workspace";
    /// The key of the session id.
    pub const SESSION_KEY: &str = "session_id";

    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
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

    /// All plain values, as they are now.
    pub fn values(&self) -> JsonObject {
        self.values.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runtime objects of the turn.
    pub fn extensions(&self) -> &ExtensionMap {
        &self.extensions
    }
}
