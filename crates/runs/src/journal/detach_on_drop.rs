//! Work that is done to its end, also when nobody waits for it any more.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Work that goes on as a task when whoever awaits it goes away.
///
/// A task from the beginning would do too, but to hand each piece of work to another thread and wait for it there takes
/// longer than much of the work.
pub(crate) struct DetachOnDrop<F: Future<Output: Send + 'static> + Send + 'static> {
    /// Nothing once it is done.
    work: Option<Pin<Box<F>>>,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> DetachOnDrop<F> {
    /// This work, which ends among these tasks if nobody waits for it.
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
        // Work that panicked cannot go on, and without a runtime nothing can.
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
    async fn x01_work_that_nobody_waits_for_any_more_goes_on_to_its_end() {
        let tasks = TaskTracker::new();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let work = DetachOnDrop::new(&tasks, async move {
            may_go_on.await.unwrap();
            done.send("done").unwrap();
        });
        let cut_off = tokio::time::timeout(Duration::from_millis(1), work).await;
        assert!(cut_off.is_err(), "it waits, and whoever awaited it went away");
        go_on.send(()).unwrap();
        assert_eq!(is_done.await, Ok("done"));
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn x01_work_that_has_ended_leaves_no_task() {
        let tasks = TaskTracker::new();
        assert_eq!(DetachOnDrop::new(&tasks, async { 4 }).await, 4);
        assert!(tasks.is_empty());
    }
}
