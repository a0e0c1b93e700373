//! The tokio runtime of the command line, with a standby worker against blocking plugins.
//!
//! # Number of workers
//!
//! The runtime has one worker per core except one, which is left to the thread that writes the store. With one worker more,
//! the workers mostly wake each other up, and a turn takes a tenth longer.
//!
//! # Standby worker
//!
//! On two cores that leaves a single worker, and the first plugin that blocks it would stop every session and every deadline.
//! So there is one more worker, which is parked in a blocking wait until it is needed. A watcher thread checks every
//! [`LIVENESS_CHECK_INTERVAL`] that the workers make progress, and releases the standby worker once if they do not.
//!
//! # Progress
//!
//! The watcher spawns a probe task. Progress means that the probe has run, or that the global queue got shorter. A long queue
//! alone is no evidence: hundreds of sessions may be ready at once on a busy machine. Checks are counted instead of measuring
//! time, because a process that was stopped, or does not get its core, does not check either.
//!
//! # Warning
//!
//! The standby worker is released in any case, but only workers that wait, and use no processor time, are reported: a
//! plugin has blocked them. Workers that compute are slow, not blocked, as with a large message on a busy machine.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum number of threads for blocking work, such as file access, name resolution and large reads of the store. The
/// allocator keeps about a megabyte for each thread that ever ran. The work is usually short, so that a few threads keep
/// up with any burst. Each kind of work that may hang, such as a read of a dead network mount, has fewer slots than this.
const MAX_BLOCKING_THREADS: usize = 24;

/// Interval of the liveness check.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the checks for progress within one liveness check.
const LIVENESS_RECHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Number of consecutive checks without progress after which the workers count as blocked.
const MAX_STALLED_CHECKS: u32 = 200;

/// Processor time that this process may use during the failed checks if its workers are blocked. The checks themselves
/// take a part of it.
const MAX_BLOCKED_CPU_TIME: Duration = Duration::from_millis(50);

/// A tokio runtime with a standby worker. See the module documentation.
pub(crate) struct SessionRuntime {
    /// Dropped before the runtime, whose drop waits for every worker.
    standby: StandbyGuard,
    runtime: Runtime,
}

/// Releases the standby worker on drop, so that even a panic does not leave the runtime waiting for it.
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

    fn with_workers(workers: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers + 1).max_blocking_threads(MAX_BLOCKING_THREADS).enable_all();
        let runtime = builder.build()?;
        let runtime = Self { standby: StandbyGuard(Arc::default()), runtime };
        let parked = Arc::clone(&runtime.standby.0);
        // Occupies the worker that happens to run it.
        runtime.runtime.spawn(async move { parked.wait() });
        let (watched, handle) = (Arc::clone(&runtime.standby.0), runtime.runtime.handle().clone());
        // Not joined: the watcher ends when the standby worker is released, and owns nothing.
        std::thread::Builder::new().name("capstan-watch".to_owned()).spawn(move || watched.watch(&handle))?;
        Ok(runtime)
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Shuts the runtime down, and abandons threads that are still blocked after `timeout`.
    pub(crate) fn shut_down(self, timeout: Duration) {
        drop(self.standby);
        self.runtime.shutdown_timeout(timeout);
    }
}

impl StandbyWorker {
    /// Blocks the current thread until the worker is released.
    fn wait(&self) {
        let is_needed = self.is_needed.lock().unwrap_or_else(PoisonError::into_inner);
        // A poisoned lock does no harm: its only content is a flag that is never reset.
        let _released = self.changed.wait_while(is_needed, |is_needed| !*is_needed);
    }

    fn release(&self) {
        *self.is_needed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Releases the standby worker as soon as the others make no progress.
    fn watch(&self, handle: &Handle) {
        loop {
            let is_needed = self.is_needed.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(is_needed, LIVENESS_CHECK_INTERVAL, |is_needed| !*is_needed);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            let cpu_time = process_cpu_time();
            if !is_making_progress(handle) {
                // Before logging: a log that is not read may be what blocks the workers.
                self.release();
                if process_cpu_time().saturating_sub(cpu_time) < MAX_BLOCKED_CPU_TIME {
                    tracing::warn!("the worker threads are blocked, perhaps by a plugin; added a standby worker");
                } else {
                    tracing::info!("the worker threads are busy; added a standby worker");
                }
                return;
            }
        }
    }
}

/// Checks if the workers run the probe or shorten the queue before [`MAX_STALLED_CHECKS`] checks in a row fail.
fn is_making_progress(handle: &Handle) -> bool {
    let (sender, probe) = mpsc::channel();
    handle.spawn(async move {
        // The watcher may have stopped waiting.
        let _late = sender.send(());
    });
    let mut depth = handle.metrics().global_queue_depth();
    let mut stalled_checks = 0;
    while stalled_checks < MAX_STALLED_CHECKS {
        if has_run(&probe) {
            return true;
        }
        let new_depth = handle.metrics().global_queue_depth();
        stalled_checks = if new_depth < depth { 0 } else { stalled_checks + 1 };
        depth = new_depth;
    }
    false
}

fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn has_run(probe: &Receiver<()>) -> bool {
    // A runtime that shuts down drops the probe, and needs no standby worker.
    !matches!(probe.recv_timeout(LIVENESS_RECHECK_INTERVAL), Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::{MAX_BLOCKING_THREADS, SessionRuntime};

    #[test]
    fn h07_blocked_worker_does_not_stop_other_tasks() {
        let runtime = SessionRuntime::with_workers(1).unwrap();
        let (unblock, blocked) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        runtime.runtime.spawn(async move {
            started.send(()).unwrap();
            blocked.recv().unwrap();
        });
        has_started.recv().unwrap();
        // A timer needs a worker too.
        let sleep = runtime.runtime.spawn(async { tokio::time::sleep(Duration::from_millis(1)).await });
        runtime.block_on(sleep).unwrap();
        unblock.send(()).unwrap();
        runtime.shut_down(Duration::from_secs(10));
    }

    #[test]
    fn h07_busy_workers_are_not_taken_for_blocked() {
        let runtime = SessionRuntime::with_workers(1).unwrap();
        let (done, is_done) = mpsc::channel();
        for _ in 0..1500 {
            let done = done.clone();
            runtime.runtime.spawn(async move {
                std::thread::sleep(Duration::from_millis(2));
                done.send(()).unwrap();
            });
        }
        assert_eq!(is_done.iter().take(1500).count(), 1500);
        assert!(!*runtime.standby.0.is_needed.lock().unwrap());
        runtime.shut_down(Duration::from_secs(10));
    }

    #[test]
    fn x05_blocking_work_has_a_bounded_number_of_threads() {
        let runtime = SessionRuntime::with_workers(1).unwrap();
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
                runtime.runtime.spawn_blocking(move || {
                    peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    running.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        runtime.block_on(futures::future::join_all(tasks));
        assert!(peak.load(Ordering::SeqCst) <= MAX_BLOCKING_THREADS);
        runtime.shut_down(Duration::from_secs(10));
    }

    #[test]
    fn c06_standby_worker_ends_with_the_runtime() {
        let runtime = SessionRuntime::with_workers(2).unwrap();
        assert_eq!(runtime.block_on(async { tokio::spawn(async { 4 }).await.unwrap() }), 4);
        let standby = Arc::downgrade(&runtime.standby.0);
        // Dropped as on a panic of its owner, which waits for every worker without a timeout.
        drop(runtime);
        while standby.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
