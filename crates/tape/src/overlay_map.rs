//! A map whose changes wait until they are kept or dropped together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A map with staged changes: [`get`](Self::get) sees them, [`kept`](Self::kept) does not.
#[derive(Debug)]
pub(crate) struct OverlayMap<K, V> {
    base: BTreeMap<K, V>,
    /// What changes; nothing for a key that goes.
    changes: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for OverlayMap<K, V> {
    fn default() -> Self {
        Self { base: BTreeMap::new(), changes: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V> OverlayMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.changes.get(key) {
            Some(change) => change.as_ref(),
            None => self.base.get(key),
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.changes.insert(key, Some(value));
    }

    /// Removes every key of a range, those only staged included.
    pub(crate) fn remove_range(&mut self, range: &RangeInclusive<K>) {
        for (_, change) in self.changes.range_mut(range.clone()) {
            *change = None;
        }
        for (key, _) in self.base.range(range.clone()) {
            self.changes.insert(key.clone(), None);
        }
    }

    /// Makes the changes last.
    pub(crate) fn commit_changes(&mut self) {
        for (key, change) in std::mem::take(&mut self.changes) {
            match change {
                Some(value) => self.base.insert(key, value),
                None => self.base.remove(&key),
            };
        }
    }

    /// Forgets the changes.
    pub(crate) fn discard_changes(&mut self) {
        self.changes.clear();
    }

    /// What was kept, without the changes.
    pub(crate) fn base(&self) -> &BTreeMap<K, V> {
        &self.base
    }
}
