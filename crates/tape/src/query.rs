//! Questions about a tape.

use capstan_protocol::EntryId;

use crate::{DateRange, EntryKind, EntryOrder};

/// Where a query starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum QueryStart {
    /// At the beginning of the generation.
    #[default]
    Beginning,
    /// After the newest anchor.
    LastAnchor,
    /// After the newest anchor of this name.
    Anchor(String),
    /// After this entry.
    After(EntryId),
}

/// Which entries of a session to find. Everything that is set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Where to start.
    pub start: QueryStart,
    /// Stop before the first anchor of this name after the start.
    pub until_anchor: Option<String>,
    /// Only entries of this time.
    pub date_range: Option<DateRange>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<EntryKind>,
    /// Only entries with this text, fuzzily.
    pub text: Option<String>,
    /// Which end comes first.
    pub order: EntryOrder,
    /// At most this many.
    pub limit: Option<usize>,
}

impl Query {
    /// Entries with this text, the newest first.
    pub fn search(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), order: EntryOrder::NewestFirst, ..Self::default() }
    }
}
