//! The one way to read entries: a slice of a tape.

use capstan_protocol::EntryId;
use capstan_protocol::run_api::EntryOrder;

use crate::{DateRange, Entry, EntryKind};

/// Which entries of a tape to read. Everything that is set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeSlice {
    /// Only entries after this one.
    pub after: Option<EntryId>,
    /// Only entries up to this one, itself included.
    pub up_to: Option<EntryId>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<EntryKind>,
    /// Only anchors of this name.
    pub anchor: Option<String>,
    /// Only entries of this time; entries whose date means no time are left out.
    pub date_range: Option<DateRange>,
    /// Which end comes first.
    pub order: EntryOrder,
    /// At most this many, counted in that order.
    pub limit: Option<usize>,
}

impl TapeSlice {
    /// Every entry.
    pub fn all() -> Self {
        Self::default()
    }

    /// Every entry after this one.
    pub fn after(id: EntryId) -> Self {
        Self { after: Some(id), ..Self::default() }
    }

    /// One entry.
    pub fn single(id: EntryId) -> Self {
        Self { after: Some(EntryId(id.0.saturating_sub(1))), up_to: Some(id), ..Self::default() }
    }

    /// The newest anchor.
    pub fn last_anchor() -> Self {
        Self { kinds: vec![EntryKind::Anchor], order: EntryOrder::NewestFirst, limit: Some(1), ..Self::default() }
    }

    /// The newest entry.
    pub fn last() -> Self {
        Self { order: EntryOrder::NewestFirst, limit: Some(1), ..Self::default() }
    }

    /// Whether an entry is in it, the limit aside.
    pub fn contains(&self, entry: &Entry) -> bool {
        self.after.is_none_or(|id| entry.id > id)
            && self.up_to.is_none_or(|id| entry.id <= id)
            && (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && self.anchor.as_ref().is_none_or(|name| entry.kind == EntryKind::Anchor && entry.name() == Some(name))
            && self.date_range.is_none_or(|range| entry.date.timestamp().is_some_and(|time| range.contains(time)))
    }

    /// The slice of entries that are given in the order they were written: what a simple tape store answers.
    pub fn select<'a>(&self, entries: impl DoubleEndedIterator<Item = &'a Entry>) -> Vec<Entry> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let chosen = |entry: &&Entry| self.contains(entry);
        match self.order {
            EntryOrder::OldestFirst => entries.filter(chosen).take(limit).cloned().collect(),
            EntryOrder::NewestFirst => entries.rev().filter(chosen).take(limit).cloned().collect(),
        }
    }
}
