//! Requests and responses of `state.*`: values by key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{StateScope, Timestamp};

/// A key of a scope, to be read or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateKeyCall {
    /// Scope of the state.
    pub scope: StateScope,
    /// The key.
    pub key: String,
}

/// A value to be stored under a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateSetCall {
    /// Scope of the state.
    pub scope: StateScope,
    /// The key.
    pub key: String,
    /// The value; `null` removes the key.
    pub value: Value,
}

/// Request for a page of the keys and values of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateListCall {
    /// Scope of the state.
    pub scope: StateScope,
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of keys, at least 1.
    pub limit: usize,
    /// Prefix of the keys; absent: all keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// A stored value and its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Time of the last write.
    pub at: Timestamp,
}
