//! Fail points without the feature `fail-points`: no operation.

use capstan_tape::Batch;

/// Fail point of a commit, without effect.
pub(super) struct DisabledFailPoint;

pub(super) use DisabledFailPoint as FailPoint;

impl DisabledFailPoint {
    pub(super) fn for_batches<'a>(_: impl Iterator<Item = &'a Batch>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn before_commit(&self) {}

    #[expect(clippy::unused_self, reason = "the tests' version needs it")]
    pub(super) fn after_commit(&self) {}
}

/// Override for the maximum number of batches in a transaction.
pub(super) fn max_group_batches() -> Option<usize> {
    None
}
