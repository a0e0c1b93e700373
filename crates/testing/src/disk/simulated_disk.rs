//! What a disk holds after some calls, and what of it a power cut leaves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::directory::{DiskDirectory, PathNode, PathTree};
use super::disk_call::{DiskCall, FileHandle};
use super::disk_file::DiskFile;
use super::seeded_rng::SeededRng;

/// A disk that was empty and has taken some [`Call`]s.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk<'a> {
    files: Vec<DiskFile<'a>>,
    directory: DiskDirectory,
    open_files: HashMap<FileHandle, (PathBuf, PathNode)>,
    stdout: Vec<u8>,
    ignores_sync: bool,
}

/// What a disk keeps when its power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// Everything, as when only the process dies.
    KeepAll,
    /// What was synced and nothing else: the bytes of files, and names by a sync of their folder.
    KeepSynced,
    /// What was synced, and of the rest what chance wills for this seed: each write and each name kept or dropped
    /// without regard to order, a write torn between two sectors, a file grown without its bytes.
    KeepRandom(u64),
}

/// The files and folders that are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskImage {
    /// The folders, each before what is in it.
    pub folders: Vec<PathBuf>,
    /// The files and what is in them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl<'a> SimulatedDisk<'a> {
    /// A disk that keeps what it is asked to sync.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that says that it has synced and has not.
    pub fn with_ignored_syncs() -> Self {
        Self { ignores_sync: true, ..Self::default() }
    }

    /// Takes the next call.
    ///
    /// # Panics
    ///
    /// Where a call names a file that no call before it has made: the disk was not empty when the calls began.
    pub fn apply(&mut self, call: &'a DiskCall) {
        match call {
            DiskCall::Open { handle, path, is_new: created, is_truncated: emptied } => {
                if *created {
                    self.directory.add(path, PathNode::File(self.files.len()));
                    self.files.push(DiskFile::default());
                }
                let node = self.directory.find(path).unwrap_or_else(|| panic!("{} was there before", path.display()));
                self.open_files.insert(*handle, (path.clone(), node));
                if *emptied {
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

    /// The path of what a call was about, as it was opened.
    pub fn path(&self, handle: FileHandle) -> &Path {
        &self.open_files[&handle].0
    }

    /// What processes have said so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What is left when the power goes now.
    pub fn image_after(&self, cut: PowerCut) -> DiskImage {
        match cut {
            PowerCut::KeepAll => self.build_image(self.directory.current(), DiskFile::current_bytes),
            PowerCut::KeepSynced => self.build_image(self.directory.synced(), DiskFile::synced_bytes),
            PowerCut::KeepRandom(seed) => {
                let mut chance = SeededRng::new(seed);
                // Between nearly nothing and nearly all, so that long runs of writes are kept and dropped too.
                let keeps = chance.pick(&[5, 50, 80, 95, 99, 100]);
                let names = self.directory.partially_synced(keeps, &mut chance);
                self.build_image(names, |file| file.partially_synced_bytes(keeps, &mut chance))
            }
        }
    }

    fn build_image(&self, names: PathTree, mut bytes: impl FnMut(&DiskFile<'a>) -> Vec<u8>) -> DiskImage {
        let mut image = DiskImage { folders: Vec::new(), files: Vec::new() };
        // Folders come before what is in them: whatever is in one that is lost is lost too.
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
    /// Makes a folder of it.
    ///
    /// # Panics
    ///
    /// Where something cannot be written.
    pub fn write_to(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("the folder of the image");
        for path in &self.folders {
            std::fs::create_dir(folder.join(path)).expect("a folder of the image");
        }
        for (path, bytes) in &self.files {
            std::fs::write(folder.join(path), bytes).expect("a file of the image");
        }
    }

    /// What is in a file, if it is there.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.files.iter().find(|(name, _)| name == path.as_ref()).map(|(_, bytes)| bytes.as_slice())
    }
}
