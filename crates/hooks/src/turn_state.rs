//! State of a turn: an open map that the hooks of the turn share.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

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
    /// Key of the workspace directory. Only the host sets it: tools, files and tapes of the turn belong to that workspace, and
    /// the value of a plugin is ignored.
    pub const WORKSPACE_KEY: &str = "_runtime_workspace";
    /// Key of the session id.
    pub const SESSION_KEY: &str = "session_id";

    /// Creates an empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the state of a turn in a workspace.
    pub fn for_workspace(path: &str) -> Self {
        let state = Self::new();
        state.write().insert(Self::WORKSPACE_KEY.to_owned(), Value::from(path));
        state
    }

    /// Value of a key.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.values.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Sets a key. The [workspace](Self::WORKSPACE_KEY) stays that of the host.
    pub fn set(&self, key: impl Into<String>, value: impl Into<Value>) {
        let key = key.into();
        if key != Self::WORKSPACE_KEY {
            self.write().insert(key, value.into());
        }
    }

    /// Sets every key of a map, except the [workspace](Self::WORKSPACE_KEY).
    pub fn merge(&self, mut values: JsonObject) {
        values.shift_remove(Self::WORKSPACE_KEY);
        self.write().extend(values);
    }

    /// Sets every key of a patch, and removes those with the value `null`; the [workspace](Self::WORKSPACE_KEY) stays.
    pub fn patch(&self, patch: JsonObject) {
        let mut values = self.write();
        for (key, value) in patch {
            match value {
                _ if key == Self::WORKSPACE_KEY => {}
                Value::Null => drop(values.shift_remove(&key)),
                value => drop(values.insert(key, value)),
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, JsonObject> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
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
