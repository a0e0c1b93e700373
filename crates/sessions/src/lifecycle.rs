//! Lifecycle of a running host: its tasks, and the tokens that end them.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks of a host, and the tokens that end them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HostLifecycle {
    /// All tasks of the host.
    pub tasks: TaskTracker,
    /// Session actors, which are among the tasks.
    pub session_tasks: TaskTracker,
    /// Cancels every run.
    pub cancel_token: CancellationToken,
    /// Stops the host: no further turn begins, and queued events stay in the store for the next start.
    pub stop_token: CancellationToken,
    /// Aborts the host: it waits neither for receivers of replies nor for a store that fails.
    pub abort_token: CancellationToken,
}
