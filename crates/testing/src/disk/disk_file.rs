//! One file of a disk: what is safe in it, and what was done since.

use super::seeded_rng::SeededRng;

/// What a disk writes at once: a write may end between two of these, never inside one.
const SECTOR_BYTES: usize = 512;
/// What stands where a file has grown and nothing was written yet. A disk may show zeros, or what was there before.
const UNWRITTEN_FILL_BYTES: [u8; 2] = [0, 0xa5];

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskFile<'a> {
    synced_bytes: Vec<u8>,
    unsynced: Vec<FileChange<'a>>,
}

#[derive(Debug, Clone, Copy)]
enum FileChange<'a> {
    Write { offset: usize, bytes: &'a [u8] },
    Truncate { length: usize },
}

impl<'a> DiskFile<'a> {
    pub(super) fn write(&mut self, offset: usize, bytes: &'a [u8]) {
        self.unsynced.push(FileChange::Write { offset, bytes });
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.unsynced.push(FileChange::Truncate { length });
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            apply_file_change(&mut self.synced_bytes, change);
        }
    }

    /// What is in it as long as the power stays.
    pub(super) fn current_bytes(&self) -> Vec<u8> {
        let mut file = self.clone();
        file.sync();
        file.synced_bytes
    }

    /// What was synced.
    pub(super) fn synced_bytes(&self) -> Vec<u8> {
        self.synced_bytes.clone()
    }

    /// What was synced and a part of what was done since: each change kept, dropped, or torn between two sectors.
    pub(super) fn partially_synced_bytes(&self, keeps: u64, chance: &mut SeededRng) -> Vec<u8> {
        let mut bytes = self.synced_bytes();
        for change in &self.unsynced {
            if chance.roll_percent(keeps) {
                apply_file_change(&mut bytes, *change);
                continue;
            }
            match *change {
                // Dropped as a whole.
                FileChange::Truncate { .. } => {}
                FileChange::Write { .. } if chance.roll_percent(50) => {}
                FileChange::Write { offset, bytes: written } => {
                    // Its length may be kept where its bytes are not.
                    if chance.roll_percent(50) && bytes.len() < offset + written.len() {
                        bytes.resize(offset + written.len(), chance.pick(&UNWRITTEN_FILL_BYTES));
                    }
                    for (start, sector) in split_at_sectors(offset, written) {
                        if chance.roll_percent(50) {
                            apply_file_change(&mut bytes, FileChange::Write { offset: start, bytes: sector });
                        }
                    }
                }
            }
        }
        bytes
    }
}

fn apply_file_change(file: &mut Vec<u8>, change: FileChange<'_>) {
    match change {
        FileChange::Truncate { length } => file.resize(length, 0),
        FileChange::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[offset..end].copy_from_slice(bytes);
        }
    }
}

/// A write, cut where the sectors of the file are.
fn split_at_sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (sector, after) = rest.split_at((SECTOR_BYTES - start % SECTOR_BYTES).min(rest.len()));
        let piece = (start, sector);
        start += sector.len();
        rest = after;
        (!sector.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::super::seeded_rng::SeededRng;
    use super::{DiskFile, split_at_sectors};

    #[test]
    fn a_write_is_cut_at_the_sectors_of_the_file() {
        let bytes = [7; 1100];
        let pieces: Vec<(usize, usize)> =
            split_at_sectors(500, &bytes).map(|(start, piece)| (start, piece.len())).collect();
        assert_eq!(pieces, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    }

    #[test]
    fn what_is_synced_is_never_lost_and_what_is_not_may_be() {
        let (old, new) = ([1; 2048], [2; 4096]);
        let mut file = DiskFile::default();
        file.write(0, &old);
        assert_eq!(file.synced_bytes(), Vec::<u8>::new());
        assert_eq!(file.current_bytes(), old);
        file.sync();
        file.write(1024, &new);
        assert_eq!(file.synced_bytes(), old);
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let left = file.partially_synced_bytes(30, &mut SeededRng::new(seed));
            assert_eq!(left[..1024], old[..1024]);
            lengths.insert(left.len());
        }
        assert!(lengths.len() > 3, "kept, dropped and torn: {lengths:?}");
    }
}
