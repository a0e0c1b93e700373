//! Quota of the artifacts that a run creates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use capstan_protocol::{ApiError, ApiErrorCode};

/// Total size of the artifacts of a run and its child runs, within a limit. Long tool results that the host stores as
/// artifacts do not count: the steps of a run limit them. Clones share the quota.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactQuota {
    used: Arc<AtomicU64>,
    limit: u64,
}

impl ArtifactQuota {
    pub(crate) fn new(limit: u64) -> Self {
        Self { used: Arc::default(), limit }
    }

    /// Reserves the size of an artifact, or refuses it.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), ApiError> {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(used) => {
                let limit = self.limit;
                let message = format!(
                    "the artifacts of a run have at most {limit} bytes together; this run has stored {used} bytes"
                );
                Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message))
            }
        }
    }
}
