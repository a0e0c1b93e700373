//! What a disk holds after some calls, and what of it a power cut leaves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::call::{Call, Handle};
use super::chance::Chance;
use super::file::File;
use super::names::{Names, Node, Tree};

/// A disk that was empty and has taken some [`Call`]s.
#[derive(Debug, Clone, Default)]
pub struct Platter<'a> {
    files: Vec<File<'a>>,
    names: Names,
    open: HashMap<Handle, (PathBuf, Node)>,
    said: Vec<u8>,
    lies: bool,
}

/// What a disk keeps when its power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Everything, as when only the process dies.
    KeepsAll,
    /// What was synced and nothing else: the bytes of files, and names by a sync of their folder.
    KeepsSynced,
    /// What was synced, and of the rest what chance wills for this seed: each write and each name kept or dropped
    /// without regard to order, a write torn between two sectors, a file grown without its bytes.
    KeepsSome(u64),
}

/// The files and folders that are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The folders, each before what is in it.
    pub folders: Vec<PathBuf>,
    /// The files and what is in them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl<'a> Platter<'a> {
    /// A disk that keeps what it is asked to sync.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that says that it has synced and has not.
    pub fn that_lies() -> Self {
        Self { lies: true, ..Self::default() }
    }

    /// Takes the next call.
    ///
    /// # Panics
    ///
    /// Where a call names a file that no call before it has made: the disk was not empty when the calls began.
    pub fn take(&mut self, call: &'a Call) {
        match call {
            Call::Open { handle, path, created, emptied } => {
                if *created {
                    self.names.add(path, Node::File(self.files.len()));
                    self.files.push(File::default());
                }
                let node = self.names.find(path).unwrap_or_else(|| panic!("{} was there before", path.display()));
                self.open.insert(*handle, (path.clone(), node));
                if *emptied {
                    self.file(*handle).truncate(0);
                }
            }
            Call::Write { handle, offset, bytes } => self.file(*handle).write(*offset, bytes),
            Call::Truncate { handle, length } => self.file(*handle).truncate(*length),
            Call::Sync { .. } if self.lies => {}
            Call::Sync { handle } => match self.open[handle].clone() {
                (path, Node::Folder) => self.names.sync(&path),
                (_, Node::File(position)) => self.files[position].sync(),
            },
            Call::MakeFolder { path } => self.names.add(path, Node::Folder),
            Call::Remove { path } => self.names.remove(path),
            Call::Rename { from, to } => self.names.rename(from, to),
            Call::Say { bytes } => self.said.extend(bytes),
        }
    }

    fn file(&mut self, handle: Handle) -> &mut File<'a> {
        match self.open[&handle] {
            (_, Node::File(position)) => &mut self.files[position],
            (ref path, Node::Folder) => panic!("{} is a folder", path.display()),
        }
    }

    /// The path of what a call was about, as it was opened.
    pub fn path(&self, handle: Handle) -> &Path {
        &self.open[&handle].0
    }

    /// What processes have said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// What is left when the power goes now.
    pub fn cut(&self, cut: Cut) -> Image {
        match cut {
            Cut::KeepsAll => self.image(self.names.current(), File::current),
            Cut::KeepsSynced => self.image(self.names.synced(), File::synced),
            Cut::KeepsSome(seed) => {
                let mut chance = Chance::new(seed);
                // Between nearly nothing and nearly all, so that long runs of writes are kept and dropped too.
                let keeps = chance.one_of(&[5, 50, 80, 95, 99, 100]);
                let names = self.names.partly_synced(keeps, &mut chance);
                self.image(names, |file| file.partly_synced(keeps, &mut chance))
            }
        }
    }

    fn image(&self, names: Tree, mut bytes: impl FnMut(&File<'a>) -> Vec<u8>) -> Image {
        let mut image = Image { folders: Vec::new(), files: Vec::new() };
        // Folders come before what is in them: whatever is in one that is lost is lost too.
        for (path, node) in names {
            let parent = path.parent().unwrap_or(Path::new(""));
            if !parent.as_os_str().is_empty() && !image.folders.iter().any(|folder| folder == parent) {
                continue;
            }
            match node {
                Node::Folder => image.folders.push(path),
                Node::File(position) => image.files.push((path, bytes(&self.files[position]))),
            }
        }
        image
    }
}

impl Image {
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
