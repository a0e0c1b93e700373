//! One file of a disk: what is safe in it, and what was done since.

use super::chance::Chance;

/// What a disk writes at once: a write may end between two of these, never inside one.
const SECTOR: usize = 512;
/// What stands where a file has grown and nothing was written yet. A disk may show zeros, or what was there before.
const LEFTOVER: [u8; 2] = [0, 0xa5];

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct File<'a> {
    synced: Vec<u8>,
    since: Vec<Change<'a>>,
}

#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    Write { offset: usize, bytes: &'a [u8] },
    Truncate { length: usize },
}

impl<'a> File<'a> {
    pub(super) fn write(&mut self, offset: usize, bytes: &'a [u8]) {
        self.since.push(Change::Write { offset, bytes });
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.since.push(Change::Truncate { length });
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.since) {
            apply(&mut self.synced, change);
        }
    }

    /// What is in it as long as the power stays.
    pub(super) fn current(&self) -> Vec<u8> {
        let mut file = self.clone();
        file.sync();
        file.synced
    }

    /// What was synced.
    pub(super) fn synced(&self) -> Vec<u8> {
        self.synced.clone()
    }

    /// What was synced and a part of what was done since: each change kept, dropped, or torn between two sectors.
    pub(super) fn partly_synced(&self, keeps: u64, chance: &mut Chance) -> Vec<u8> {
        let mut bytes = self.synced();
        for change in &self.since {
            if chance.happens(keeps) {
                apply(&mut bytes, *change);
                continue;
            }
            match *change {
                // Dropped as a whole.
                Change::Truncate { .. } => {}
                Change::Write { .. } if chance.happens(50) => {}
                Change::Write { offset, bytes: written } => {
                    // Its length may be kept where its bytes are not.
                    if chance.happens(50) && bytes.len() < offset + written.len() {
                        bytes.resize(offset + written.len(), chance.one_of(&LEFTOVER));
                    }
                    for (start, sector) in sectors(offset, written) {
                        if chance.happens(50) {
                            apply(&mut bytes, Change::Write { offset: start, bytes: sector });
                        }
                    }
                }
            }
        }
        bytes
    }
}

fn apply(file: &mut Vec<u8>, change: Change<'_>) {
    match change {
        Change::Truncate { length } => file.resize(length, 0),
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[offset..end].copy_from_slice(bytes);
        }
    }
}

/// A write, cut where the sectors of the file are.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (sector, after) = rest.split_at((SECTOR - start % SECTOR).min(rest.len()));
        let piece = (start, sector);
        start += sector.len();
        rest = after;
        (!sector.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::super::chance::Chance;
    use super::{File, sectors};

    #[test]
    fn a_write_is_cut_at_the_sectors_of_the_file() {
        let bytes = [7; 1100];
        let pieces: Vec<(usize, usize)> = sectors(500, &bytes).map(|(start, piece)| (start, piece.len())).collect();
        assert_eq!(pieces, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    }

    #[test]
    fn what_is_synced_is_never_lost_and_what_is_not_may_be() {
        let (old, new) = ([1; 2048], [2; 4096]);
        let mut file = File::default();
        file.write(0, &old);
        assert_eq!(file.synced(), Vec::<u8>::new());
        assert_eq!(file.current(), old);
        file.sync();
        file.write(1024, &new);
        assert_eq!(file.synced(), old);
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let left = file.partly_synced(30, &mut Chance::new(seed));
            assert_eq!(left[..1024], old[..1024]);
            lengths.insert(left.len());
        }
        assert!(lengths.len() > 3, "kept, dropped and torn: {lengths:?}");
    }
}
