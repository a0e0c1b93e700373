//! Slices: the selection of entries for all reads.

use capstan_protocol::EntryId;
use capstan_protocol::run_api::EntryOrder;

use crate::{DateRange, Entry, EntryKind};

/// Selection of entries of a tape. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeSlice {
    /// Only entries after this one.
    pub after: Option<EntryId>,
    /// Only entries up to and including this one.
    pub up_to: Option<EntryId>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<EntryKind>,
    /// Only anchors with this name.
    pub anchor: Option<String>,
    /// Only entries in this time range; entries with an unreadable date are excluded.
    pub date_range: Option<DateRange>,
    /// Order of the entries.
    pub order: EntryOrder,
    /// Maximum number of entries, counted in this order.
    pub limit: Option<usize>,
}

impl TapeSlice {
    /// All entries.
    pub fn all() -> Self {
        Self::default()
    }

    /// All entries after this one.
    pub fn after(id: EntryId) -> Self {
        Self { after: Some(id), ..Self::default() }
    }

    /// One entry.
    pub fn single(id: EntryId) -> Self {
        Self { after: Some(EntryId(id.0.saturating_sub(1))), up_to: Some(id), ..Self::default() }
    }

    /// Newest anchor.
    pub fn last_anchor() -> Self {
        Self { kinds: vec![EntryKind::Anchor], order: EntryOrder::NewestFirst, limit: Some(1), ..Self::default() }
    }

    /// Newest entry.
    pub fn last() -> Self {
        Self { order: EntryOrder::NewestFirst, limit: Some(1), ..Self::default() }
    }

    /// Returns true if an entry satisfies the conditions, without regard to the limit.
    pub fn contains(&self, entry: &Entry) -> bool {
        self.after.is_none_or(|id| entry.id > id)
            && self.up_to.is_none_or(|id| entry.id <= id)
            && (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && self.anchor.as_ref().is_none_or(|name| entry.kind == EntryKind::Anchor && entry.name() == Some(name))
            && self.date_range.is_none_or(|range| entry.date.timestamp().is_some_and(|time| range.contains(time)))
    }

    /// Selects from all entries of a tape, oldest first. A simple tape store can implement its reads with it.
    pub fn select<'a>(&self, entries: impl DoubleEndedIterator<Item = &'a Entry>) -> Vec<Entry> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let contains = |entry: &&Entry| self.contains(entry);
        match self.order {
            EntryOrder::OldestFirst => entries.filter(contains).take(limit).cloned().collect(),
            EntryOrder::NewestFirst => entries.rev().filter(contains).take(limit).cloned().collect(),
        }
    }
}
