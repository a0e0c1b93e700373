//! File on a disk: its synced content, and the changes since.

use super::seeded_rng::SeededRng;

/// Unit of atomic writes: a write may be torn between two sectors, never inside one.
const SECTOR_BYTES: usize = 512;
/// Fill bytes of a file that has grown but was not written: a disk may show zeros or stale data.
const UNWRITTEN_FILL_BYTES: [u8; 2] = [0, 0xa5];

/// File with its unsynced changes.
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

    /// Returns the content as long as the power stays on.
    pub(super) fn current_bytes(&self) -> Vec<u8> {
        let mut file = self.clone();
        file.sync();
        file.synced_bytes
    }

    /// Returns the synced content.
    pub(super) fn synced_bytes(&self) -> Vec<u8> {
        self.synced_bytes.clone()
    }

    /// Returns the synced content with a random part of the later changes: each is kept, dropped, or torn between two
    /// sectors.
    pub(super) fn partially_synced_bytes(&self, keep_percent: u64, rng: &mut SeededRng) -> Vec<u8> {
        let mut bytes = self.synced_bytes();
        for change in &self.unsynced {
            if rng.roll_percent(keep_percent) {
                apply_file_change(&mut bytes, *change);
                continue;
            }
            match *change {
                // Dropped completely.
                FileChange::Truncate { .. } => {}
                FileChange::Write { .. } if rng.roll_percent(50) => {}
                FileChange::Write { offset, bytes: written } => {
                    // The length may be kept although the bytes are not.
                    if rng.roll_percent(50) && bytes.len() < offset + written.len() {
                        bytes.resize(offset + written.len(), rng.pick(&UNWRITTEN_FILL_BYTES));
                    }
                    for (start, sector) in split_at_sectors(offset, written) {
                        if rng.roll_percent(50) {
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

/// Splits a write at the sectors of the file.
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
    fn write_is_split_at_the_sectors_of_the_file() {
        let bytes = [7; 1100];
        let pieces: Vec<(usize, usize)> =
            split_at_sectors(500, &bytes).map(|(start, piece)| (start, piece.len())).collect();
        assert_eq!(pieces, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    }

    #[test]
    fn synced_data_survives_and_unsynced_data_may_be_lost() {
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
            let bytes = file.partially_synced_bytes(30, &mut SeededRng::new(seed));
            assert_eq!(bytes[..1024], old[..1024]);
            lengths.insert(bytes.len());
        }
        assert!(lengths.len() > 3, "kept, dropped and torn: {lengths:?}");
    }
}
