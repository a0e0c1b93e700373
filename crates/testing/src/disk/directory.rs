//! The names of a disk: which of them are safe, and what was done to them since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::seeded_rng::SeededRng;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathNode {
    Folder,
    /// The file of this position.
    File(usize),
}

pub(super) type PathTree = BTreeMap<PathBuf, PathNode>;

/// One change of names, whole or not at all: a rename is one.
type PathChange = Vec<(PathBuf, Option<PathNode>)>;

/// The names of a disk. A name is safe when the folder it stands in was synced after it was given.
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

    /// The names in a folder are safe; those in the folders in it are not.
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

    /// What was synced and a part of what was done since.
    pub(super) fn partially_synced(&self, keeps: u64, chance: &mut SeededRng) -> PathTree {
        let mut tree = self.synced();
        for change in &self.unsynced {
            if chance.roll_percent(keeps) {
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
