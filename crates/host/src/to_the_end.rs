//! Work that is brought to its end although nobody waits for it any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// Waits for work in place, which saves a task and two wake-ups for everybody who waits to the end. When the wait is
/// given up in the middle, a task of its own goes on with it.
pub(crate) fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> ToTheEnd<T> {
    ToTheEnd(Some(Box::pin(work)))
}

pub(crate) struct ToTheEnd<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // As with every future, nobody asks again once it is ready.
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        // Work that panicked is over.
        if let Some(work) = self.0.take().filter(|_| !std::thread::panicking())
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::to_the_end;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn x01_work_that_nobody_waits_for_any_more_still_ends() {
        let (go_on, going_on) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut work = Box::pin(to_the_end(async move {
            going_on.await.unwrap();
            done.send("done").unwrap();
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        go_on.send(()).unwrap();
        assert_eq!(is_done.await, Ok("done"));
    }

    #[tokio::test]
    async fn x01_work_that_somebody_waits_for_ends_where_they_wait() {
        let waits = tokio::spawn(async { (tokio::task::id(), to_the_end(async { tokio::task::id() }).await) });
        let (waiting, working) = waits.await.unwrap();
        assert_eq!(waiting, working);
    }
}
