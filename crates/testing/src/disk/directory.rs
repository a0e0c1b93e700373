//! Names on a disk: the synced ones, and the changes since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::seeded_rng::SeededRng;

/// Target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathNode {
    Folder,
    /// Index of the file.
    File(usize),
}

pub(super) type PathTree = BTreeMap<PathBuf, PathNode>;

/// Atomic change of names, such as a rename.
type PathChange = Vec<(PathBuf, Option<PathNode>)>;

/// Names on a disk. A name is durable once its folder was synced after the name was created.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskDirectory {
    current: PathTree,
    synced: PathTree,
    unsynced: Vec<PathChange>,
}

impl DiskDirectory {
    pub(super) fn find(&self, path: &Path) -> Option<PathNode> {
        if path.as_os_str().is_empty() { Some(PathNode::Folder) } else { self.current.get(path).copied() }
    }

    pub(super) fn add(&mut self, path: &Path, node: PathNode) {
        self.record_change(vec![(path.to_owned(), Some(node))]);
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.record_change(vec![(path.to_owned(), None)]);
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let node = self.find(from);
        self.record_change(vec![(from.to_owned(), None), (to.to_owned(), node)]);
    }

    fn record_change(&mut self, change: PathChange) {
        apply_path_change(&mut self.current, &change);
        self.unsynced.push(change);
    }

    /// Makes the names in a folder durable, but not those in its subfolders.
    pub(super) fn sync(&mut self, folder: &Path) {
        let is_inside = |change: &mut PathChange| change.iter().any(|(path, _)| path.parent() == Some(folder));
        for change in self.unsynced.extract_if(.., is_inside) {
            apply_path_change(&mut self.synced, &change);
        }
    }

    pub(super) fn current(&self) -> PathTree {
        self.current.clone()
    }

    pub(super) fn synced(&self) -> PathTree {
        self.synced.clone()
    }

    /// Returns the synced names with a random part of the later changes.
    pub(super) fn partially_synced(&self, keep_percent: u64, rng: &mut SeededRng) -> PathTree {
        let mut tree = self.synced();
        for change in &self.unsynced {
            if rng.roll_percent(keep_percent) {
                apply_path_change(&mut tree, change);
            }
        }
        tree
    }
}

fn apply_path_change(tree: &mut PathTree, change: &PathChange) {
    for (path, node) in change {
        match node {
            Some(node) => tree.insert(path.clone(), *node),
            None => tree.remove(path),
        };
    }
}
