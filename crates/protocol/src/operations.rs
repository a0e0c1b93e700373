//! A set of operations on a kind of resource.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::BitAnd;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What can be done with a kind of resource: at most sixteen things.
pub trait Operation: Copy + Ord + 'static {
    /// All of it, in order.
    const ALL: &'static [Self];

    /// Its place among all, from zero.
    fn place(self) -> u8;
}

/// Some operations, each once and in order. Written as a list of their names.
///
/// Every run has several of these, and they are compared and cut with every event: each is one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operations<O> {
    bits: u16,
    of: PhantomData<O>,
}

impl<O: Operation> Operations<O> {
    /// None of them.
    pub const fn none() -> Self {
        Self { bits: 0, of: PhantomData }
    }

    /// All of them.
    pub fn all() -> Self {
        O::ALL.iter().copied().collect()
    }

    /// Whether this is one of them.
    pub fn contains(&self, operation: &O) -> bool {
        self.bits & bit(*operation) != 0
    }

    /// Whether each of these is one of the others too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.bits & !other.bits == 0
    }

    /// Keeps those of which this is true.
    pub fn retain(&mut self, keep: impl Fn(&O) -> bool) {
        *self = self.iter().filter(keep).collect();
    }

    /// Adds one. Says whether it was not there.
    pub fn insert(&mut self, operation: O) -> bool {
        let is_new = !self.contains(&operation);
        self.bits |= bit(operation);
        is_new
    }

    /// Takes one out. Says whether it was there.
    pub fn remove(&mut self, operation: &O) -> bool {
        let was_there = self.contains(operation);
        self.bits &= !bit(*operation);
        was_there
    }

    /// Each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = O> + use<O> {
        let bits = self.bits;
        O::ALL.iter().copied().filter(move |operation| bits & bit(*operation) != 0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bits.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }
}

fn bit(operation: impl Operation) -> u16 {
    1 << operation.place()
}

impl<O: Operation> Default for Operations<O> {
    fn default() -> Self {
        Self::none()
    }
}

impl<O: Operation + fmt::Debug> fmt::Debug for Operations<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<O: Operation> FromIterator<O> for Operations<O> {
    fn from_iter<I: IntoIterator<Item = O>>(operations: I) -> Self {
        let bits = operations.into_iter().fold(0, |bits, operation| bits | bit(operation));
        Self { bits, of: PhantomData }
    }
}

impl<O: Operation, const N: usize> From<[O; N]> for Operations<O> {
    fn from(operations: [O; N]) -> Self {
        operations.into_iter().collect()
    }
}

impl<O: Operation> BitAnd for Operations<O> {
    type Output = Self;

    /// Those that are in both.
    fn bitand(self, other: Self) -> Self {
        Self { bits: self.bits & other.bits, of: PhantomData }
    }
}

impl<O: Operation + Serialize> Serialize for Operations<O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, O: Operation + Deserialize<'de>> Deserialize<'de> for Operations<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

impl<O: JsonSchema + Ord> JsonSchema for Operations<O> {
    fn inline_schema() -> bool {
        <BTreeSet<O>>::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        <BTreeSet<O>>::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        <BTreeSet<O>>::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        <BTreeSet<O>>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Operation, Operations};
    use crate::{ModelUse, StateScope};

    #[test]
    fn k03_operations_are_a_set_that_is_written_as_a_list_in_order() {
        let some: Operations<ModelUse> = [ModelUse::Stream, ModelUse::Invoke, ModelUse::Stream].into();
        assert_eq!(serde_json::to_value(some).unwrap(), json!(["invoke", "stream"]));
        assert_eq!(serde_json::from_value::<Operations<ModelUse>>(json!(["stream", "invoke"])).unwrap(), some);
        assert!(serde_json::from_value::<Operations<ModelUse>>(json!(["dance"])).is_err());
        assert!(some.contains(&ModelUse::Stream) && !some.contains(&ModelUse::Rerank));
        assert!(some.is_subset(&Operations::all()) && !Operations::all().is_subset(&some));
        assert_eq!(some & [ModelUse::Invoke, ModelUse::Rerank].into(), [ModelUse::Invoke].into());
    }

    #[test]
    fn k03_every_operation_has_its_own_place() {
        for (place, scope) in StateScope::ALL.iter().enumerate() {
            assert_eq!(usize::from(scope.place()), place);
            assert_eq!(Operations::from([*scope]).iter().collect::<Vec<_>>(), [*scope]);
        }
        assert_eq!(Operations::<StateScope>::all().len(), StateScope::ALL.len());
    }
}
