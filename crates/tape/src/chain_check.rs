//! Check of the hash chain of a tape, which finds the first break and its cause.

use std::fmt;

use capstan_protocol::{EntryId, TapeName};

use crate::{ChainHash, ChainLink, ContentDigest, Entry, EntryGap, TapeRecord};

/// Maximum number of entries from a break on that are compared to find its cause.
const MAX_DIAGNOSED_ENTRIES: usize = 256;

/// Stored entry, reduced to what its hash depends on.
#[derive(Debug, Clone)]
pub struct ChainedEntry {
    /// Id of the entry.
    pub id: EntryId,
    /// Stored hash; `None` if it has none.
    pub hash: Option<ChainHash>,
    /// Date of the entry.
    pub date: String,
    /// Digest of the content, computed from the stored entry; `None` if its content is damaged, which is reported
    /// elsewhere. Its hash is trusted then, so that later breaks are found.
    pub content: Option<ContentDigest>,
}

impl ChainedEntry {
    /// Reduces an entry.
    pub fn new(entry: &Entry, hash: Option<ChainHash>) -> Self {
        Self {
            id: entry.id,
            hash,
            date: entry.date.as_str().to_owned(),
            content: Some(ContentDigest::from_entry(entry)),
        }
    }
}

/// First break of the chain of a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainBreak {
    /// Entry at which the chain breaks.
    pub entry: EntryId,
    /// Cause of the break.
    pub cause: ChainBreakCause,
}

/// Cause of a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainBreakCause {
    /// The entry or its hash was changed.
    Changed,
    /// Entries were removed.
    Missing(EntryGap),
    /// Entries after this one were removed, together with the record of the newest entry.
    MissingAfter,
    /// The entry was changed, or one before it was removed: both look the same on an imported tape with gaps.
    ChangedOrMissing,
    /// The entry was not written by this host.
    Inserted,
    /// The entry that belongs here has another id.
    OrderChanged {
        /// Id of the entry now.
        now_at: EntryId,
    },
}

impl ChainBreak {
    /// Returns true if the cause is one of these gaps, which are reported themselves.
    pub fn is_among(&self, gaps: &[EntryGap]) -> bool {
        let ChainBreakCause::Missing(missing) = self.cause else { return false };
        gaps.iter().any(|gap| gap.from <= missing.to && missing.from <= gap.to)
    }
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the hash chain breaks at entry {}: ", self.entry)?;
        match self.cause {
            ChainBreakCause::Changed => f.write_str("the entry was changed"),
            ChainBreakCause::Missing(gap) => gap.fmt(f),
            ChainBreakCause::MissingAfter => f.write_str("entries after it are missing, or the head was changed"),
            ChainBreakCause::ChangedOrMissing => f.write_str("the entry was changed, or one before it is missing"),
            ChainBreakCause::Inserted => f.write_str("the entry was inserted"),
            ChainBreakCause::OrderChanged { now_at } => {
                write!(f, "the order was changed, the entry that belongs here is now entry {now_at}")
            }
        }
    }
}

/// Check of one tape, which is given its entries in the order of their ids.
///
/// Memory does not depend on the length of the tape.
#[derive(Debug)]
pub struct ChainCheck {
    tape: TapeName,
    /// Ids up to this one may have gaps.
    brought_along: EntryId,
    /// Newest entry whose hash is correct, or the start of the chain.
    last: ChainLink,
    /// The link before `last`.
    before_last: Option<ChainLink>,
    /// Entries from the first break on.
    suspects: Vec<ChainedEntry>,
}

impl ChainCheck {
    /// Check of the entries of a tape after `start`.
    pub fn new(record: &TapeRecord, start: ChainLink) -> Self {
        Self {
            tape: record.name.clone(),
            brought_along: record.brought_along,
            last: start,
            before_last: None,
            suspects: Vec::new(),
        }
    }

    /// Checks the next entry.
    pub fn push(&mut self, entry: ChainedEntry) {
        let is_damaged = entry.content.is_none() && entry.hash.is_some();
        if self.suspects.is_empty() && (is_damaged || self.was_written(&entry, self.last.hash, entry.id)) {
            let link = ChainLink { id: entry.id, hash: entry.hash.unwrap_or_default() };
            self.before_last = Some(std::mem::replace(&mut self.last, link));
        } else if self.suspects.len() < MAX_DIAGNOSED_ENTRIES {
            self.suspects.push(entry);
        }
    }

    /// Ends the check of a tape with this newest entry.
    pub fn finish(self, head: ChainLink) -> Option<ChainBreak> {
        if !self.suspects.is_empty() {
            return self.diagnose();
        }
        if self.last.hash == head.hash {
            return None;
        }
        let last = self.last.id;
        let (entry, cause) = if last < head.id {
            (last.next(), ChainBreakCause::Missing(EntryGap { from: last.next(), to: head.id }))
        } else if self.before_last.is_some_and(|before| before.hash == head.hash) {
            (last, ChainBreakCause::Inserted)
        } else {
            (last, ChainBreakCause::MissingAfter)
        };
        Some(ChainBreak { entry, cause })
    }

    /// Hash of the content of `entry` at another position.
    fn link(&self, previous: ChainHash, id: EntryId, entry: &ChainedEntry) -> Option<ChainHash> {
        entry.content.as_ref().map(|content| previous.link(self.tape.as_str(), id, &entry.date, content))
    }

    /// Returns true if `entry` is unchanged and was written as entry `id` after `previous`.
    fn was_written(&self, entry: &ChainedEntry, previous: ChainHash, id: EntryId) -> bool {
        entry.hash.is_some() && entry.hash == self.link(previous, id, entry)
    }

    fn diagnose(&self) -> Option<ChainBreak> {
        let (first, following) = self.suspects.split_first()?;
        let break_at = |entry, cause| Some(ChainBreak { entry, cause });
        let first_missing = self.last.id.next().max(self.brought_along);
        let gap = (first.id > first_missing).then(|| EntryGap { from: first_missing, to: EntryId(first.id.0 - 1) });
        let expected = gap.map_or(first.id, |gap| gap.from);
        if let Some((index, moved)) = self.find_moved(first, following, expected) {
            // The next entry is the expected one: `first` is new, unless the two changed places.
            let was_before = index == 0 && gap.is_none() && !self.was_swapped(first, moved);
            let cause =
                if was_before { ChainBreakCause::Inserted } else { ChainBreakCause::OrderChanged { now_at: moved.id } };
            return break_at(expected, cause);
        }
        if let Some(gap) = gap {
            return break_at(gap.from, ChainBreakCause::Missing(gap));
        }
        if first.hash.is_none() {
            return break_at(first.id, ChainBreakCause::Inserted);
        }
        let next = following.first();
        if next.is_some_and(|next| self.was_written(next, self.last.hash, next.id)) {
            return break_at(first.id, ChainBreakCause::Inserted);
        }
        // An inserted entry may have a correct hash; then the entry after it breaks the chain.
        let follows_before_last = |before: ChainLink| {
            let ids = [first.id, self.last.id];
            ids.into_iter().any(|id| self.was_written(first, before.hash, id))
        };
        if self.before_last.is_some_and(follows_before_last) {
            return break_at(self.last.id, ChainBreakCause::Inserted);
        }
        // If an entry was removed and the following ones were renumbered, they match their former ids.
        let is_renumbered =
            |next: &ChainedEntry| self.was_written(next, first.hash.unwrap_or_default(), next.id.next());
        if next.is_some_and(is_renumbered) {
            let gap = EntryGap { from: first.id, to: first.id };
            return break_at(first.id, ChainBreakCause::Missing(gap));
        }
        let is_imported = first.id <= self.brought_along && first.id > self.last.id.next();
        let cause = if is_imported { ChainBreakCause::ChangedOrMissing } else { ChainBreakCause::Changed };
        break_at(first.id, cause)
    }

    /// Finds the unchanged entry that was written after the last correct one, among the entries after the break.
    fn find_moved<'a>(
        &self,
        first: &ChainedEntry,
        following: &'a [ChainedEntry],
        expected: EntryId,
    ) -> Option<(usize, &'a ChainedEntry)> {
        // Hashes may have moved with the content, or stayed.
        let belongs_here = |entry: &&'a ChainedEntry| {
            let hash = self.link(self.last.hash, expected, entry);
            hash.is_some() && (entry.hash == hash || first.hash == hash)
        };
        let index = following.iter().position(|entry| belongs_here(&entry))?;
        Some((index, &following[index]))
    }

    /// Returns true if the first two entries after the break changed places.
    fn was_swapped(&self, first: &ChainedEntry, second: &ChainedEntry) -> bool {
        let second_hash = self.link(self.last.hash, first.id, second).unwrap_or_default();
        let hash = self.link(second_hash, second.id, first);
        hash.is_some() && (first.hash == hash || second.hash == hash)
    }
}
