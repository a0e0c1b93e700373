//! The names of a disk: which of them are safe, and what was done to them since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::chance::Chance;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    /// The file of this position.
    File(usize),
}

pub(super) type Tree = BTreeMap<PathBuf, Node>;

/// One change of names, whole or not at all: a rename is one.
type Change = Vec<(PathBuf, Option<Node>)>;

/// The names of a disk. A name is safe when the folder it stands in was synced after it was given.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    current: Tree,
    synced: Tree,
    since: Vec<Change>,
}

impl Names {
    pub(super) fn find(&self, path: &Path) -> Option<Node> {
        if path.as_os_str().is_empty() { Some(Node::Folder) } else { self.current.get(path).copied() }
    }

    pub(super) fn add(&mut self, path: &Path, node: Node) {
        self.change(vec![(path.to_owned(), Some(node))]);
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(vec![(path.to_owned(), None)]);
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let node = self.find(from);
        self.change(vec![(from.to_owned(), None), (to.to_owned(), node)]);
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.since.push(change);
    }

    /// The names in a folder are safe; those in the folders in it are not.
    pub(super) fn sync(&mut self, folder: &Path) {
        let is_inside = |change: &mut Change| change.iter().any(|(path, _)| path.parent() == Some(folder));
        for change in self.since.extract_if(.., is_inside) {
            apply(&mut self.synced, &change);
        }
    }

    pub(super) fn current(&self) -> Tree {
        self.current.clone()
    }

    pub(super) fn synced(&self) -> Tree {
        self.synced.clone()
    }

    /// What was synced and a part of what was done since.
    pub(super) fn partly_synced(&self, keeps: u64, chance: &mut Chance) -> Tree {
        let mut tree = self.synced();
        for change in &self.since {
            if chance.happens(keeps) {
                apply(&mut tree, change);
            }
        }
        tree
    }
}

fn apply(tree: &mut Tree, change: &Change) {
    for (path, node) in change {
        match node {
            Some(node) => tree.insert(path.clone(), *node),
            None => tree.remove(path),
        };
    }
}
