//! Fail points as they are outside of tests: nothing.

use capstan_tape::Batch;

/// A commit.
pub(super) struct FailPoint;

impl FailPoint {
    pub(super) fn for_batches<'a>(_: impl Iterator<Item = &'a Batch>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn before_commit(&self) {}

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn after_commit(&self) {}
}

/// How many batches may share a transaction, if that is not the usual number.
pub(super) fn max_group_batches() -> Option<usize> {
    None
}
