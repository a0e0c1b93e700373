//! Futures that complete even if their caller is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A future that continues as a detached task if it is dropped before it completes.
///
/// Spawning it from the start would be simpler, but the switch to another thread takes longer than most of the work.
pub(crate) struct DetachOnDrop<F: Future<Output: Send + 'static> + Send + 'static> {
    /// `None` once it is complete.
    work: Option<Pin<Box<F>>>,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> DetachOnDrop<F> {
    /// Wraps a future. If it is dropped early, `tasks` tracks the detached task.
    pub(crate) fn new(tasks: &TaskTracker, work: F) -> Self {
        Self { work: Some(Box::pin(work)), tasks: tasks.clone() }
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for DetachOnDrop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for DetachOnDrop<F> {
    fn drop(&mut self) {
        // A future that panicked must not be polled again, and a task needs a runtime.
        let handle = Handle::try_current().ok().filter(|_| !std::thread::panicking());
        if let (Some(work), Some(handle)) = (self.work.take(), handle) {
            self.tasks.spawn_on(work, &handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::DetachOnDrop;

    #[tokio::test]
    async fn x01_a_future_that_is_dropped_early_completes_detached() {
        let tasks = TaskTracker::new();
        let (release, released) = oneshot::channel::<()>();
        let (complete, completed) = oneshot::channel();
        let work = DetachOnDrop::new(&tasks, async move {
            released.await.unwrap();
            complete.send("done").unwrap();
        });
        let timed_out = tokio::time::timeout(Duration::from_millis(1), work).await;
        assert!(timed_out.is_err(), "the future is dropped while it waits");
        release.send(()).unwrap();
        assert_eq!(completed.await, Ok("done"));
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn x01_a_completed_future_leaves_no_task() {
        let tasks = TaskTracker::new();
        assert_eq!(DetachOnDrop::new(&tasks, async { 4 }).await, 4);
        assert!(tasks.is_empty());
    }
}
