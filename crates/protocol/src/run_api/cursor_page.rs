//! Lists that are read page by page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SessionId;

/// A page of a list, and the cursor of the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct CursorPage<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    #[serde(default)]
    pub next: Option<String>,
}

/// Order in which entries are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryOrder {
    /// The order in which they were written.
    #[default]
    OldestFirst,
    /// The reverse.
    NewestFirst,
}

/// Request for a page of the history or of the event log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageRequest {
    /// Session to read; absent: the run's own. Another session needs a grant for the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Order of the list.
    #[serde(default)]
    pub order: EntryOrder,
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of items, at least 1.
    pub limit: usize,
}
