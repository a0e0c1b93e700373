//! Threads that read the database.
//!
//! Reads have threads of their own, because the blocking threads of the runtime are shared with calls that may hang, such
//! as those to a dead network mount. Threads are started on demand, never more than there are permits to read. They end
//! when they have been idle for a while, so that the allocator returns their memory, and with the pool.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

/// Time after which an idle thread ends.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A read.
struct ReadJob {
    work: Box<dyn FnOnce() + Send>,
    /// Held until the thread is idle again, so that there is an idle thread, or room for a new one, for each permit.
    permit: OwnedSemaphorePermit,
    /// The thread that reads. An idle thread is kept by the pool alone, and so ends with it.
    thread: Sender<ReadJob>,
}

/// A thread that waits for a read.
struct IdleThread {
    id: ThreadId,
    jobs: Sender<ReadJob>,
}

type IdleThreads = Mutex<Vec<IdleThread>>;

/// Threads for reads. A clone uses the same threads.
#[derive(Clone, Default)]
pub(super) struct ReaderThreads {
    idle: Arc<IdleThreads>,
}

impl ReaderThreads {
    /// Runs a read on an idle thread, or on a new one.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static, permit: OwnedSemaphorePermit) -> io::Result<()> {
        let idle_thread = lock(&self.idle).pop();
        let thread = match idle_thread {
            Some(thread) => thread.jobs,
            None => self.start_thread()?,
        };
        let job = ReadJob { work: Box::new(work), permit, thread: thread.clone() };
        thread.send(job).map_err(|_| io::Error::other("a thread that reads the database has ended"))
    }

    fn start_thread(&self) -> io::Result<Sender<ReadJob>> {
        let (sender, receiver) = channel();
        let idle = Arc::downgrade(&self.idle);
        thread::Builder::new().name("capstan-reader".to_owned()).spawn(move || serve_reads(&receiver, &idle))?;
        Ok(sender)
    }
}

/// Serves reads until the pool is dropped. A read that panics ends its own thread only.
fn serve_reads(jobs: &Receiver<ReadJob>, idle: &Weak<IdleThreads>) {
    loop {
        match jobs.recv_timeout(THREAD_KEEP_ALIVE) {
            Ok(ReadJob { work, permit, thread }) => {
                work();
                let Some(idle) = idle.upgrade() else { return };
                lock(&idle).push(IdleThread { id: thread::current().id(), jobs: thread });
                // The pool alone keeps the list when the permit is free.
                drop(idle);
                drop(permit);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(idle) = idle.upgrade() else { return };
                let mut idle = lock(&idle);
                // A thread that is not in the list was chosen for a read, which is about to arrive.
                if let Some(position) = idle.iter().position(|thread| thread.id == thread::current().id()) {
                    idle.remove(position);
                    return;
                }
            }
        }
    }
}

fn lock(idle: &IdleThreads) -> MutexGuard<'_, Vec<IdleThread>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Semaphore, oneshot};

    use super::ReaderThreads;

    /// Runs a read that returns the id of its thread.
    async fn read(threads: &ReaderThreads, permits: &Arc<Semaphore>) -> std::thread::ThreadId {
        let permit = Arc::clone(permits).acquire_owned().await.unwrap();
        let (reply, result) = oneshot::channel();
        threads.run(move || reply.send(std::thread::current().id()).unwrap(), permit).unwrap();
        result.await.unwrap()
    }

    #[tokio::test]
    async fn x02_reads_one_after_another_use_one_thread() {
        let (threads, permits) = (ReaderThreads::default(), Arc::new(Semaphore::new(1)));
        let first = read(&threads, &permits).await;
        for _ in 0..1_000 {
            assert_eq!(read(&threads, &permits).await, first);
        }
    }

    #[tokio::test]
    async fn x02_read_that_panics_leaves_the_pool_usable() {
        let (threads, permits) = (ReaderThreads::default(), Arc::new(Semaphore::new(1)));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        threads.run(|| std::panic::resume_unwind(Box::new("broken")), permit).unwrap();
        read(&threads, &permits).await;
    }

    #[tokio::test]
    async fn x02_threads_end_with_the_pool() {
        let (threads, permits) = (ReaderThreads::default(), Arc::new(Semaphore::new(1)));
        read(&threads, &permits).await;
        let _idle = permits.acquire().await.unwrap();
        let list = Arc::downgrade(&threads.idle);
        drop(threads);
        assert_eq!(list.strong_count(), 0, "no thread keeps the pool alive");
    }
}
