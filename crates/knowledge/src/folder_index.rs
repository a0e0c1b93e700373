//! Index of a folder that follows its changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Result};
use std::path::{Path, PathBuf};

use capstan_hooks::contracts::{KnowledgePassage, KnowledgeQuery};

use crate::FolderLimits;
use crate::file_stamp::FileStamp;
use crate::folder_walk::{ListedFile, OpenFolder};
use crate::passage_index::{FileNumber, PassageIndex, PassageTotals};
use crate::skipped_files::SkippedFiles;

/// Error of a folder index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderIndexError {
    /// The folder cannot be read.
    #[error("{0}")]
    Folder(#[from] std::io::Error),
    /// The index cannot be read or written.
    #[error("{0}")]
    Index(#[from] rusqlite::Error),
}

/// Index of a folder that follows its changes.
pub(crate) struct FolderIndex {
    path: PathBuf,
    excluded: Vec<PathBuf>,
    limits: FolderLimits,
    /// `None` before the first query, and after an error.
    indexed: Option<IndexedFolder>,
    /// Files skipped by the last refresh.
    skipped: SkippedFiles,
}

/// Files of a folder as of the last refresh.
struct IndexedFolder {
    index: PassageIndex,
    files: BTreeMap<String, IndexedFile>,
}

/// File as of the last time it was read.
struct IndexedFile {
    stamp: FileStamp,
    is_settled: bool,
    /// `None` if the file is not text.
    passages: Option<(FileNumber, PassageTotals)>,
}

impl FolderIndex {
    pub(crate) fn new(path: PathBuf, excluded: Vec<PathBuf>, limits: FolderLimits) -> Self {
        Self { path, excluded, limits, indexed: None, skipped: SkippedFiles::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Description of the skipped files.
    pub(crate) fn skipped(&self) -> Option<String> {
        self.skipped.summary(&self.limits)
    }

    /// Returns true if the last refresh succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.indexed.is_some()
    }

    /// Lists the folder and reads the files that changed. Returns a description of the skipped files if it is new and a
    /// reason for a warning. Forgets all files after an error.
    pub(crate) fn refresh(&mut self) -> std::result::Result<Option<String>, FolderIndexError> {
        let indexed = self.indexed.take();
        let previously_skipped = std::mem::take(&mut self.skipped);
        let folder = OpenFolder::open(&self.path, &self.excluded)?;
        let listing = folder.list(&self.limits)?;
        let mut indexed = match indexed {
            Some(indexed) => indexed,
            None => IndexedFolder { index: PassageIndex::open()?, files: BTreeMap::new() },
        };
        let IndexedFolder { index, files } = &mut indexed;
        let mut update = FolderUpdate {
            folder: &folder,
            limits: self.limits,
            previous: std::mem::take(files),
            files: BTreeMap::new(),
            skipped: listing.skipped,
            total_bytes: 0,
        };
        index.update(|index| {
            listing.files.into_iter().try_for_each(|file| update.update_file(index, file))?;
            update.remove_previous(index)
        })?;
        *files = update.files;
        self.skipped = update.skipped;
        self.indexed = Some(indexed);
        Ok(self.skipped().filter(|_| self.skipped != previously_skipped && self.skipped.should_warn()))
    }

    /// Passages for a query as of the last refresh.
    pub(crate) fn rank(&self, query: &KnowledgeQuery) -> rusqlite::Result<Vec<KnowledgePassage>> {
        let Some(IndexedFolder { index, files }) = &self.indexed else { return Ok(Vec::new()) };
        let names = files.iter().filter_map(|(name, file)| Some((file.passages?.0, name.as_str())));
        let names = names.filter(|(_, name)| query.covers(name));
        index.rank(names, &query.text, query.offset, query.limit)
    }
}

/// Refresh that is under way.
struct FolderUpdate<'a> {
    folder: &'a OpenFolder,
    limits: FolderLimits,
    previous: BTreeMap<String, IndexedFile>,
    files: BTreeMap<String, IndexedFile>,
    skipped: SkippedFiles,
    total_bytes: u64,
}

impl FolderUpdate<'_> {
    fn update_file(&mut self, index: &mut PassageIndex, file: ListedFile) -> rusqlite::Result<()> {
        let ListedFile { path, stamp } = file;
        if stamp.bytes() > self.limits.max_file_bytes {
            self.skipped.too_large += 1;
            return Ok(());
        }
        if self.files.len() >= self.limits.max_files || self.total_bytes + stamp.bytes() > self.limits.max_total_bytes {
            self.skipped.over_limit += 1;
            return Ok(());
        }
        let name = path.to_string_lossy().into_owned();
        let is_unchanged = |known: &IndexedFile| known.is_settled && known.stamp == stamp;
        let file = if self.previous.get(&name).is_some_and(is_unchanged)
            && let Some(known) = self.previous.remove(&name)
        {
            known
        } else {
            let Ok((stamp, is_settled, text)) = self.read_file(&path) else {
                self.skipped.unreadable += 1;
                return Ok(());
            };
            let passages = text.map(|text| index.add_file(&name, &text)).transpose()?;
            IndexedFile { stamp, is_settled, passages }
        };
        // The file may have grown since it was listed.
        self.total_bytes += file.stamp.bytes();
        self.skipped.not_text += u64::from(file.passages.is_none());
        if let Some(replaced) = self.files.insert(name, file) {
            // Two names that are not UTF-8 may look the same.
            replaced.remove_from(index)?;
        }
        Ok(())
    }

    /// Removes the passages of files that have changed or are gone.
    fn remove_previous(&mut self, index: &mut PassageIndex) -> rusqlite::Result<()> {
        std::mem::take(&mut self.previous).into_values().try_for_each(|file| file.remove_from(index))
    }

    fn read_file(&self, path: &Path) -> Result<(FileStamp, bool, Option<String>)> {
        let (file, stat) = self.folder.open_file(path)?;
        let stamp = FileStamp::from(&stat);
        let is_settled = stamp.is_settled();
        let mut bytes = Vec::new();
        // Bytes that are appended meanwhile are read by the next refresh.
        File::from(file).take(stamp.bytes().min(self.limits.max_file_bytes)).read_to_end(&mut bytes)?;
        Ok((stamp, is_settled, decode_text(bytes)))
    }
}

impl IndexedFile {
    fn remove_from(self, index: &mut PassageIndex) -> rusqlite::Result<()> {
        self.passages.map_or(Ok(()), |(file, totals)| index.remove_file(file, totals))
    }
}

/// Decodes a text file: UTF-8 without NUL characters.
fn decode_text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}
