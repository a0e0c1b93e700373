//! Limit of the work that a host does at the same time for the tools of all its sessions.
//!
//! The calls of one run are limited by the host, but runs of many sessions together could exhaust the memory. Further
//! calls wait for a slot; their deadlines keep running.

use std::sync::Arc;

use capstan_hooks::contracts::ToolError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots for one kind of work, shared by all clones.
#[derive(Debug, Clone)]
pub(crate) struct WorkSlots(Arc<Semaphore>);

impl WorkSlots {
    /// Creates this number of free slots.
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a slot, in order of arrival. It is free again when the permit is dropped.
    pub(crate) async fn acquire(&self) -> Result<OwnedSemaphorePermit, String> {
        // The semaphore is never closed; the error is unreachable.
        Arc::clone(&self.0).acquire_owned().await.map_err(|error| error.to_string())
    }

    /// Waits for a slot and does the work on a blocking thread. A caller that gives up does not free the slot, because the
    /// thread continues.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let permit = self.acquire().await.map_err(ToolError::new)?;
        // The permit returns with the result: when it is free, the thread is about to be idle again, and the next caller
        // does not start another one.
        let task = tokio::task::spawn_blocking(move || (work(), permit));
        let (result, _permit) = task.await.map_err(|error| ToolError::new(error.to_string()))?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier, mpsc};

    use futures::FutureExt as _;

    use super::WorkSlots;

    #[tokio::test]
    async fn x06_blocking_work_is_done_in_as_many_slots_as_there_are() {
        let (slots, barrier) = (WorkSlots::new(2), Arc::new(Barrier::new(2)));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let (barrier, running, most) = (Arc::clone(&barrier), Arc::clone(&running), Arc::clone(&most));
            slots.run_blocking(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Passed only by two at a time.
                barrier.wait();
                running.fetch_sub(1, Ordering::SeqCst);
            })
        };
        futures::future::try_join_all((0..8).map(|_| work())).await.unwrap();
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn x06_abandoned_blocking_work_keeps_its_slot() {
        let slots = WorkSlots::new(1);
        let (started, has_started) = tokio::sync::oneshot::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let slots = slots.clone();
            async move {
                slots
                    .run_blocking(move || {
                        started.send(()).unwrap();
                        finished.recv().unwrap();
                    })
                    .await
            }
        });
        has_started.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(slots.acquire().now_or_never().is_none(), "the thread still works");
        finish.send(()).unwrap();
        assert!(slots.acquire().await.is_ok());
    }
}
