//! Queries on a tape.

use capstan_protocol::EntryId;

use crate::{DateRange, EntryKind, EntryOrder};

/// Start of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum QueryStart {
    /// Beginning of the generation.
    #[default]
    Beginning,
    /// After the newest anchor.
    LastAnchor,
    /// After the newest anchor with this name.
    Anchor(String),
    /// After this entry.
    After(EntryId),
}

/// Conditions on entries of a tape. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Start of the query.
    pub start: QueryStart,
    /// Stop before the first anchor with this name after the start.
    pub until_anchor: Option<String>,
    /// Only entries in this time range.
    pub date_range: Option<DateRange>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<EntryKind>,
    /// Only entries that match this text, see [`TextSearch`](crate::TextSearch).
    pub text: Option<String>,
    /// Order of the results.
    pub order: EntryOrder,
    /// Maximum number of entries.
    pub limit: Option<usize>,
}

impl Query {
    /// Entries that match this text, newest first.
    pub fn search(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), order: EntryOrder::NewestFirst, ..Self::default() }
    }
}
