//! Map with staged changes that are committed or discarded together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Map with staged changes: [`get`](Self::get) sees them, [`base`](Self::base) does not.
#[derive(Debug)]
pub(crate) struct OverlayMap<K, V> {
    base: BTreeMap<K, V>,
    /// Staged values; `None` for removed keys.
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

    /// Last key of a range and its value, with staged changes. Removed keys are skipped.
    pub(crate) fn last_in(&self, range: &RangeInclusive<K>) -> Option<(&K, &V)> {
        let staged = self.changes.range(range.clone()).rev().find_map(|(key, change)| Some((key, change.as_ref()?)));
        let base = self.base.range(range.clone()).rev().find(|(key, _)| !self.changes.contains_key(key));
        match (staged, base) {
            (Some(staged), Some(base)) => Some(if staged.0 > base.0 { staged } else { base }),
            (staged, base) => staged.or(base),
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.changes.insert(key, Some(value));
    }

    /// Removes all keys of a range, including staged ones.
    pub(crate) fn remove_range(&mut self, range: &RangeInclusive<K>) {
        for (_, change) in self.changes.range_mut(range.clone()) {
            *change = None;
        }
        for (key, _) in self.base.range(range.clone()) {
            self.changes.insert(key.clone(), None);
        }
    }

    /// Applies the staged changes.
    pub(crate) fn commit_changes(&mut self) {
        for (key, change) in std::mem::take(&mut self.changes) {
            match change {
                Some(value) => self.base.insert(key, value),
                None => self.base.remove(&key),
            };
        }
    }

    /// Drops the staged changes.
    pub(crate) fn discard_changes(&mut self) {
        self.changes.clear();
    }

    /// Committed values, without staged changes.
    pub(crate) fn base(&self) -> &BTreeMap<K, V> {
        &self.base
    }
}
