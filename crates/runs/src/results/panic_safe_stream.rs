//! A runner's stream with a drop that cannot panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use capstan_hooks::contracts::ResultStream;

/// A runner's stream. It is dropped at the end of its run, at the deadline and on cancellation; a panic while it is
/// dropped is caught.
pub(super) struct PanicSafeStream(Option<ResultStream>);

impl PanicSafeStream {
    pub(super) fn new(results: ResultStream) -> Self {
        Self(Some(results))
    }

    /// The stream.
    pub(super) fn stream(&mut self) -> &mut ResultStream {
        self.0.get_or_insert_with(|| Box::pin(futures::stream::empty()))
    }
}

impl Drop for PanicSafeStream {
    fn drop(&mut self) {
        let results = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(results))).is_err() {
            tracing::warn!("a runner panicked while its stream was dropped");
        }
    }
}
