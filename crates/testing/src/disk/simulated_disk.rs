//! Content of a disk after a sequence of calls, and what survives a power cut.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::directory::{DiskDirectory, PathNode, PathTree};
use super::disk_call::{DiskCall, FileHandle};
use super::disk_file::DiskFile;
use super::seeded_rng::SeededRng;

/// Initially empty disk to which [`DiskCall`]s are applied.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk<'a> {
    files: Vec<DiskFile<'a>>,
    directory: DiskDirectory,
    open_files: HashMap<FileHandle, (PathBuf, PathNode)>,
    stdout: Vec<u8>,
    ignores_sync: bool,
}

/// Data that survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// Everything, as if only the process died.
    KeepAll,
    /// Only synced data: the content of files, and names by a sync of their folder.
    KeepSynced,
    /// Synced data, and a random part of the rest for this seed: each write and each name is kept or dropped in any
    /// order, a write may be torn between two sectors, and a file may grow without its bytes.
    KeepRandom(u64),
}

/// Files and folders that survived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskImage {
    /// Folders, each before its content.
    pub folders: Vec<PathBuf>,
    /// Files with their content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl<'a> SimulatedDisk<'a> {
    /// Creates a disk that honours syncs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a disk that reports syncs as done without doing them.
    pub fn with_ignored_syncs() -> Self {
        Self { ignores_sync: true, ..Self::default() }
    }

    /// Applies the next call.
    ///
    /// # Panics
    ///
    /// Panics if a call names a file that no earlier call created: the disk was not empty when recording started.
    pub fn apply(&mut self, call: &'a DiskCall) {
        match call {
            DiskCall::Open { handle, path, is_new, is_truncated } => {
                if *is_new {
                    self.directory.add(path, PathNode::File(self.files.len()));
                    self.files.push(DiskFile::default());
                }
                let node = self
                    .directory
                    .find(path)
                    .unwrap_or_else(|| panic!("{} existed before the recording", path.display()));
                self.open_files.insert(*handle, (path.clone(), node));
                if *is_truncated {
                    self.file(*handle).truncate(0);
                }
            }
            DiskCall::Write { handle, offset, bytes } => self.file(*handle).write(*offset, bytes),
            DiskCall::Truncate { handle, length } => self.file(*handle).truncate(*length),
            DiskCall::Sync { .. } if self.ignores_sync => {}
            DiskCall::Sync { handle } => match self.open_files[handle].clone() {
                (path, PathNode::Folder) => self.directory.sync(&path),
                (_, PathNode::File(position)) => self.files[position].sync(),
            },
            DiskCall::CreateFolder { path } => self.directory.add(path, PathNode::Folder),
            DiskCall::Remove { path } => self.directory.remove(path),
            DiskCall::Rename { from, to } => self.directory.rename(from, to),
            DiskCall::WriteStdout { bytes } => self.stdout.extend(bytes),
        }
    }

    fn file(&mut self, handle: FileHandle) -> &mut DiskFile<'a> {
        match self.open_files[&handle] {
            (_, PathNode::File(position)) => &mut self.files[position],
            (ref path, PathNode::Folder) => panic!("{} is a folder", path.display()),
        }
    }

    /// Returns the path under which a handle was opened.
    pub fn path(&self, handle: FileHandle) -> &Path {
        &self.open_files[&handle].0
    }

    /// Returns the recorded standard output of all processes.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the content after a power cut at this moment.
    pub fn image_after(&self, cut: PowerCut) -> DiskImage {
        match cut {
            PowerCut::KeepAll => self.build_image(self.directory.current(), DiskFile::current_bytes),
            PowerCut::KeepSynced => self.build_image(self.directory.synced(), DiskFile::synced_bytes),
            PowerCut::KeepRandom(seed) => {
                let mut rng = SeededRng::new(seed);
                // From nearly nothing to everything, so that long runs of writes are kept and dropped too.
                let keep_percent = rng.pick(&[5, 50, 80, 95, 99, 100]);
                let names = self.directory.partially_synced(keep_percent, &mut rng);
                self.build_image(names, |file| file.partially_synced_bytes(keep_percent, &mut rng))
            }
        }
    }

    fn build_image(&self, names: PathTree, mut bytes: impl FnMut(&DiskFile<'a>) -> Vec<u8>) -> DiskImage {
        let mut image = DiskImage { folders: Vec::new(), files: Vec::new() };
        // Folders precede their content: the content of a lost folder is lost too.
        for (path, node) in names {
            let parent = path.parent().unwrap_or(Path::new(""));
            if !parent.as_os_str().is_empty() && !image.folders.iter().any(|folder| folder == parent) {
                continue;
            }
            match node {
                PathNode::Folder => image.folders.push(path),
                PathNode::File(position) => image.files.push((path, bytes(&self.files[position]))),
            }
        }
        image
    }
}

impl DiskImage {
    /// Writes the image to a folder.
    ///
    /// # Panics
    ///
    /// Panics if a file or folder cannot be written.
    pub fn write_to(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("the folder of the image");
        for path in &self.folders {
            std::fs::create_dir(folder.join(path)).expect("a folder of the image");
        }
        for (path, bytes) in &self.files {
            std::fs::write(folder.join(path), bytes).expect("a file of the image");
        }
    }

    /// Returns the content of a file.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.files.iter().find(|(name, _)| name == path.as_ref()).map(|(_, bytes)| bytes.as_slice())
    }
}
