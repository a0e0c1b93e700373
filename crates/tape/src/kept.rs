//! Values that are kept under a key, apart from any tape: bindings, what runners want remembered, names of contents.

use capstan_protocol::{RunId, Timestamp};
use serde::Serialize;
use serde_json::Value;

/// A value that is kept under a key of a space.
///
/// A space is a set of keys that belongs to somebody: the bindings of the host, the state of one runner for one actor.
/// Whoever writes says who that is by its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kept {
    /// The space.
    pub space: String,
    /// The key, unique in its space.
    pub key: String,
    /// The value.
    pub value: Value,
    /// When it was written.
    pub at: Timestamp,
    /// The run that wrote it, if one did.
    pub by: Option<RunId>,
}

impl Kept {
    /// What it counts for in its space.
    pub fn bytes(&self) -> u64 {
        (self.key.len() + self.value.to_string().len()) as u64
    }
}

/// What is known about a space that something was ever kept in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpaceRecord {
    /// Its name.
    pub space: String,
    /// How often it has changed.
    pub revision: u64,
    /// How many keys it has.
    pub rows: u64,
    /// How much they and their values count for together.
    pub bytes: u64,
    /// When it changed last.
    pub at: Timestamp,
}
