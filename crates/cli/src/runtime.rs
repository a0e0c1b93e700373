//! The threads that run sessions.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// How often it is looked whether the threads get anything done.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is looked again while they have not shown it.
const LIVENESS_RECHECK_INTERVAL: Duration = Duration::from_millis(5);

/// How often they may not have shown it.
const MAX_STALLED_CHECKS: u32 = 200;

/// A runtime with a thread for each core but one, and one more that stands by.
///
/// The thread that writes has a core of its own. With a thread more than cores are left, they mostly wake each other up, and
/// a turn takes a tenth longer. But one thread alone, as on two cores, is stopped by the first plugin that blocks it, and with
/// it every deadline. So there is another that does nothing until that happens.
pub(crate) struct SessionRuntime {
    /// Called before the runtime is dropped, which waits for every thread.
    stand_by: StandbyGuard,
    runtime: Runtime,
}

/// The thread that stands by, which is called when this is dropped: whatever goes wrong, nobody waits for it for ever.
struct StandbyGuard(Arc<StandbyWorker>);

impl Drop for StandbyGuard {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[derive(Default)]
struct StandbyWorker {
    is_needed: Mutex<bool>,
    changed: Condvar,
}

impl SessionRuntime {
    pub(crate) fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_workers(cores.saturating_sub(1).max(1))
    }

    fn with_workers(threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(threads + 1).enable_all().build()?;
        let threads = Self { stand_by: StandbyGuard(Arc::default()), runtime };
        let waiting = Arc::clone(&threads.stand_by.0);
        // It keeps one of the threads, whichever takes it.
        threads.runtime.spawn(async move { waiting.wait() });
        let (watching, handle) = (Arc::clone(&threads.stand_by.0), threads.runtime.handle().clone());
        // It ends by itself when the other is called, and has nothing to lose.
        std::thread::Builder::new().name("capstan-watch".to_owned()).spawn(move || watching.watch(&handle))?;
        Ok(threads)
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Ends the threads. Whatever still blocks one has had its time, and must not keep the process.
    pub(crate) fn shut_down(self, time: Duration) {
        drop(self.stand_by);
        self.runtime.shutdown_timeout(time);
    }
}

impl StandbyWorker {
    /// Blocks the thread until it is needed.
    fn wait(&self) {
        let is_needed = self.is_needed.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be poisoned as it likes: there is one flag, which is only ever set.
        let _needed = self.changed.wait_while(is_needed, |is_needed| !*is_needed);
    }

    fn release(&self) {
        *self.is_needed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Calls the thread that stands by as soon as the others get nothing done.
    fn watch(&self, handle: &Handle) {
        loop {
            let is_needed = self.is_needed.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(is_needed, LIVENESS_CHECK_INTERVAL, |is_needed| !*is_needed);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            if !is_making_progress(handle) {
                // First: what blocks them may be that nobody reads what is logged.
                self.release();
                tracing::warn!(
                    "something blocks the threads that run sessions, a plugin perhaps; there is one more now"
                );
                return;
            }
        }
    }
}

/// Whether the threads take anything up, be it this question or what was there before it.
///
/// A queue that takes its time is no sign: a hundred sessions may be ready at once on a machine that has other work too. But
/// it gets shorter now and then as long as one thread takes something from it. Only looks count, not time: a process that was
/// stopped, or has no turn on its core, does not look either.
fn is_making_progress(handle: &Handle) -> bool {
    let (done, is_done) = mpsc::channel();
    handle.spawn(async move {
        // Whoever asked may not have waited for it.
        let _late = done.send(());
    });
    let mut waiting = handle.metrics().global_queue_depth();
    let mut looks = 0;
    while looks < MAX_STALLED_CHECKS {
        if has_reply(&is_done) {
            return true;
        }
        let still_waiting = handle.metrics().global_queue_depth();
        looks = if still_waiting < waiting { 0 } else { looks + 1 };
        waiting = still_waiting;
    }
    false
}

fn has_reply(answer: &Receiver<()>) -> bool {
    // A runtime that ends drops the question, and needs nobody to stand by.
    !matches!(answer.recv_timeout(LIVENESS_RECHECK_INTERVAL), Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::SessionRuntime;

    #[test]
    fn h07_work_that_blocks_its_thread_does_not_stop_the_rest() {
        let threads = SessionRuntime::with_workers(1).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        threads.runtime.spawn(async move {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
        });
        has_begun.recv().unwrap();
        // A deadline needs a thread too.
        let sleep = threads.runtime.spawn(async { tokio::time::sleep(Duration::from_millis(1)).await });
        threads.block_on(sleep).unwrap();
        go_on.send(()).unwrap();
        threads.shut_down(Duration::from_secs(10));
    }

    #[test]
    fn h07_threads_that_have_much_to_do_are_not_taken_for_blocked() {
        let threads = SessionRuntime::with_workers(1).unwrap();
        let (done, is_done) = mpsc::channel();
        for _ in 0..1500 {
            let done = done.clone();
            threads.runtime.spawn(async move {
                std::thread::sleep(Duration::from_millis(2));
                done.send(()).unwrap();
            });
        }
        assert_eq!(is_done.iter().take(1500).count(), 1500);
        assert!(!*threads.stand_by.0.is_needed.lock().unwrap());
        threads.shut_down(Duration::from_secs(10));
    }

    #[test]
    fn c06_threads_that_stand_by_end_with_the_others() {
        let threads = SessionRuntime::with_workers(2).unwrap();
        assert_eq!(threads.block_on(async { tokio::spawn(async { 4 }).await.unwrap() }), 4);
        let stand_by = Arc::downgrade(&threads.stand_by.0);
        // Dropped as it is when its owner panics: that waits for every thread, however long it takes.
        drop(threads);
        while stand_by.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
