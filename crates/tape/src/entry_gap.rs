//! Detection of missing entries.

use std::collections::BTreeSet;
use std::fmt;

use capstan_protocol::EntryId;

use crate::TapeRecord;

/// Range of consecutive entry ids that are missing on a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryGap {
    /// First missing entry.
    pub from: EntryId,
    /// Last missing entry.
    pub to: EntryId,
}

impl fmt::Display for EntryGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(f, "entry {} is missing", self.from)
        } else {
            write!(f, "entries {} to {} are missing", self.from, self.to)
        }
    }
}

impl TapeRecord {
    /// Gaps in `after < id <= up_to` among the existing `ids` of this tape.
    ///
    /// Entries written by this host have consecutive ids, across resets and merges. The entries of a fork begin after
    /// its position. Imported entries may have any ids, but the last of them must exist.
    pub fn find_gaps(&self, ids: impl IntoIterator<Item = EntryId>, after: EntryId, up_to: EntryId) -> Vec<EntryGap> {
        let position = self.fork.as_ref().map(|fork| fork.position).unwrap_or_default();
        let mut next = after.max(position).next().max(self.brought_along);
        let mut gaps = Vec::new();
        // An entry out of order is not missing.
        let ids: BTreeSet<EntryId> = ids.into_iter().filter(|id| *id >= next && *id <= up_to).collect();
        for id in ids {
            if id > next {
                gaps.push(EntryGap { from: next, to: EntryId(id.0 - 1) });
            }
            next = id.next();
        }
        if next <= up_to {
            gaps.push(EntryGap { from: next, to: up_to });
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{EntryId, TapeName};

    use crate::{ForkPoint, ForkState, TapeRecord};

    fn tape_record() -> TapeRecord {
        TapeRecord {
            name: TapeName::parse("t").unwrap(),
            session: None,
            workspace: None,
            head: EntryId(9),
            generation: 1,
            begins_after: EntryId(0),
            past_generations: Vec::new(),
            replicated_up_to: EntryId(0),
            brought_along: EntryId(0),
            fork: None,
            head_hash: crate::ChainHash::START,
        }
    }

    fn missing_entries(record: &TapeRecord, ids: &[u64], after: u64, up_to: u64) -> Vec<String> {
        let gaps = record.find_gaps(ids.iter().copied().map(EntryId), EntryId(after), EntryId(up_to));
        gaps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn p01_ids_written_by_the_host_are_consecutive() {
        let whole = tape_record();
        assert_eq!(missing_entries(&whole, &[1, 2, 3, 4], 0, 4), Vec::<String>::new());
        assert_eq!(missing_entries(&whole, &[], 0, 0), Vec::<String>::new());
        assert_eq!(missing_entries(&whole, &[1, 2, 4], 0, 4), ["entry 3 is missing"]);
        assert_eq!(
            missing_entries(&whole, &[2, 5, 6], 0, 8),
            ["entry 1 is missing", "entries 3 to 4 are missing", "entries 7 to 8 are missing"]
        );
        assert_eq!(missing_entries(&whole, &[], 0, 3), ["entries 1 to 3 are missing"]);
        assert_eq!(missing_entries(&whole, &[5, 6, 9], 4, 6), Vec::<String>::new(), "ids outside of the range");
        assert_eq!(missing_entries(&whole, &[1, 3, 2, 2, 4], 0, 4), Vec::<String>::new(), "ids out of order");
    }

    #[test]
    fn p12_imported_entries_may_have_gaps_but_the_last_one_must_exist() {
        let imported = TapeRecord { brought_along: EntryId(7), ..tape_record() };
        assert_eq!(missing_entries(&imported, &[2, 7, 8, 9], 0, 9), Vec::<String>::new());
        assert_eq!(missing_entries(&imported, &[2, 8, 9], 0, 9), ["entry 7 is missing"]);
        assert_eq!(missing_entries(&imported, &[2, 7, 9], 0, 9), ["entry 8 is missing"]);
        assert_eq!(missing_entries(&imported, &[2], 0, 5), Vec::<String>::new());
    }

    #[test]
    fn p09_entries_of_a_fork_begin_after_its_position() {
        let parent = TapeName::parse("parent").unwrap();
        let fork = Some(ForkPoint { parent, position: EntryId(5), state: ForkState::Open });
        let fork = TapeRecord { fork, ..tape_record() };
        assert_eq!(missing_entries(&fork, &[6, 7], 0, 7), Vec::<String>::new());
        assert_eq!(missing_entries(&fork, &[7], 0, 7), ["entry 6 is missing"]);
    }
}
