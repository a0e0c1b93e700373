//! Barrier that holds a reply back in mid-stream.

use std::sync::Arc;

use tokio::sync::watch;

/// Barrier at which a [`ScriptedReply`](crate::ScriptedReply) waits after its first chunk; clones share it.
///
/// ```
/// use capstan_testing::{ReplyBarrier, ScriptedReply};
///
/// let barrier = ReplyBarrier::new();
/// let reply = ScriptedReply::text("first second third").with_barrier(&barrier);
/// // ... once `barrier.reached().await` returns, the first chunk is sent and nothing follows until:
/// barrier.release();
/// # drop(reply);
/// ```
#[derive(Debug, Clone)]
pub struct ReplyBarrier {
    reached: Arc<watch::Sender<bool>>,
    released: Arc<watch::Sender<bool>>,
}

impl ReplyBarrier {
    /// Creates a closed barrier.
    pub fn new() -> Self {
        Self { reached: Arc::new(watch::Sender::new(false)), released: Arc::new(watch::Sender::new(false)) }
    }

    /// Releases the reply, now or when it arrives.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until a reply has reached the barrier.
    pub async fn reached(&self) {
        wait_for_true(&self.reached).await;
    }

    /// Returns true if a reply has reached the barrier; for tests without a runtime.
    pub fn is_reached(&self) -> bool {
        *self.reached.borrow()
    }

    /// Waits at the barrier until it is released.
    pub async fn wait_for_release(&self) {
        self.reached.send_replace(true);
        wait_for_true(&self.released).await;
    }
}

impl Default for ReplyBarrier {
    fn default() -> Self {
        Self::new()
    }
}

async fn wait_for_true(sender: &watch::Sender<bool>) {
    // The error means that the sender is gone, but it is borrowed here.
    let _ = sender.subscribe().wait_for(|value| *value).await;
}
