//! Sets of operations on a kind of resource.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::BitAnd;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Operation on a kind of resource. A kind has at most sixteen operations.
pub trait ResourceOperation: Copy + Ord + 'static {
    /// All operations, in order.
    const VARIANTS: &'static [Self];

    /// Position in `VARIANTS`.
    fn bit_index(self) -> u8;
}

/// Ordered set of operations, serialised as a list of their names.
///
/// Represented as a bit mask, because every run has several sets, which are compared and intersected for every event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationSet<O> {
    bits: u16,
    marker: PhantomData<O>,
}

impl<O: ResourceOperation> OperationSet<O> {
    /// Empty set.
    pub const fn none() -> Self {
        Self { bits: 0, marker: PhantomData }
    }

    /// Set of all operations.
    pub fn all() -> Self {
        O::VARIANTS.iter().copied().collect()
    }

    /// Returns true if the set contains the operation.
    pub fn contains(&self, operation: &O) -> bool {
        self.bits & bit_mask(*operation) != 0
    }

    /// Returns true if `other` contains every operation of this set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.bits & !other.bits == 0
    }

    /// Keeps the operations for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&O) -> bool) {
        *self = self.iter().filter(keep).collect();
    }

    /// Adds an operation. Returns true if the set did not contain it.
    pub fn insert(&mut self, operation: O) -> bool {
        let is_new = !self.contains(&operation);
        self.bits |= bit_mask(operation);
        is_new
    }

    /// Removes an operation. Returns true if the set contained it.
    pub fn remove(&mut self, operation: &O) -> bool {
        let was_present = self.contains(operation);
        self.bits &= !bit_mask(*operation);
        was_present
    }

    /// Operations of the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = O> + use<O> {
        let bits = self.bits;
        O::VARIANTS.iter().copied().filter(move |operation| bits & bit_mask(*operation) != 0)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.bits.count_ones() as usize
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }
}

fn bit_mask(operation: impl ResourceOperation) -> u16 {
    1 << operation.bit_index()
}

impl<O: ResourceOperation> Default for OperationSet<O> {
    fn default() -> Self {
        Self::none()
    }
}

impl<O: ResourceOperation + fmt::Debug> fmt::Debug for OperationSet<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<O: ResourceOperation> FromIterator<O> for OperationSet<O> {
    fn from_iter<I: IntoIterator<Item = O>>(operations: I) -> Self {
        let bits = operations.into_iter().fold(0, |bits, operation| bits | bit_mask(operation));
        Self { bits, marker: PhantomData }
    }
}

impl<O: ResourceOperation, const N: usize> From<[O; N]> for OperationSet<O> {
    fn from(operations: [O; N]) -> Self {
        operations.into_iter().collect()
    }
}

impl<O: ResourceOperation> BitAnd for OperationSet<O> {
    type Output = Self;

    /// Intersection of both sets.
    fn bitand(self, other: Self) -> Self {
        Self { bits: self.bits & other.bits, marker: PhantomData }
    }
}

impl<O: ResourceOperation + Serialize> Serialize for OperationSet<O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, O: ResourceOperation + Deserialize<'de>> Deserialize<'de> for OperationSet<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

impl<O: JsonSchema + Ord> JsonSchema for OperationSet<O> {
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

    use super::{OperationSet, ResourceOperation};
    use crate::{ModelOperation, StateScope};

    #[test]
    fn k03_operation_set_is_serialised_as_an_ordered_list() {
        let some: OperationSet<ModelOperation> =
            [ModelOperation::Stream, ModelOperation::Invoke, ModelOperation::Stream].into();
        assert_eq!(serde_json::to_value(some).unwrap(), json!(["invoke", "stream"]));
        assert_eq!(serde_json::from_value::<OperationSet<ModelOperation>>(json!(["stream", "invoke"])).unwrap(), some);
        assert!(serde_json::from_value::<OperationSet<ModelOperation>>(json!(["dance"])).is_err());
        assert!(some.contains(&ModelOperation::Stream) && !some.contains(&ModelOperation::Rerank));
        assert!(some.is_subset(&OperationSet::all()) && !OperationSet::all().is_subset(&some));
        assert_eq!(some & [ModelOperation::Invoke, ModelOperation::Rerank].into(), [ModelOperation::Invoke].into());
    }

    #[test]
    fn k03_every_operation_has_its_own_bit() {
        for (index, scope) in StateScope::VARIANTS.iter().enumerate() {
            assert_eq!(usize::from(scope.bit_index()), index);
            assert_eq!(OperationSet::from([*scope]).iter().collect::<Vec<_>>(), [*scope]);
        }
        assert_eq!(OperationSet::<StateScope>::all().len(), StateScope::VARIANTS.len());
    }
}
