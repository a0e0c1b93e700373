//! A runner's stream, held so that letting go of it hurts nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};

use capstan_hooks::contracts::ResultStream;

/// A runner's stream. It is let go of at the end of its run, at the deadline, and when somebody cancels it: a runner that
/// crashes then crashes alone.
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
            tracing::warn!("a runner crashed when it was let go of");
        }
    }
}
