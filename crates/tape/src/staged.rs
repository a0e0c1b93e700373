//! A map whose changes wait until they are kept or dropped together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A map with staged changes: [`get`](Self::get) sees them, [`kept`](Self::kept) does not.
#[derive(Debug)]
pub(crate) struct Staged<K, V> {
    kept: BTreeMap<K, V>,
    /// What changes; nothing for a key that goes.
    changes: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for Staged<K, V> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), changes: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V> Staged<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.changes.get(key) {
            Some(change) => change.as_ref(),
            None => self.kept.get(key),
        }
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.changes.insert(key, Some(value));
    }

    /// Removes every key of a range, those only staged included.
    pub(crate) fn remove_range(&mut self, range: &RangeInclusive<K>) {
        for (_, change) in self.changes.range_mut(range.clone()) {
            *change = None;
        }
        for (key, _) in self.kept.range(range.clone()) {
            self.changes.insert(key.clone(), None);
        }
    }

    /// Makes the changes last.
    pub(crate) fn keep(&mut self) {
        for (key, change) in std::mem::take(&mut self.changes) {
            match change {
                Some(value) => self.kept.insert(key, value),
                None => self.kept.remove(&key),
            };
        }
    }

    /// Forgets the changes.
    pub(crate) fn drop_changes(&mut self) {
        self.changes.clear();
    }

    /// What was kept, without the changes.
    pub(crate) fn kept(&self) -> &BTreeMap<K, V> {
        &self.kept
    }
}
