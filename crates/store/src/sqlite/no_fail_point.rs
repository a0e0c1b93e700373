//! Fail points as they are outside of tests: nothing.

use capstan_tape::Batch;

/// A commit.
pub(super) struct Point;

impl Point {
    pub(super) fn of<'a>(_: impl Iterator<Item = &'a Batch>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn before(&self) {}

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn after(&self) {}
}

/// How many batches may share a transaction, if that is not the usual number.
pub(super) fn largest_group() -> Option<usize> {
    None
}
