//! Holding an answer back in mid-stream.

use std::sync::Arc;

use tokio::sync::watch;

/// A gate a [`ScriptedReply`](crate::Reply) waits at after its first chunk; clones are the same gate.
///
/// ```
/// use capstan_testing::{ReplyBarrier, ScriptedReply};
///
/// let gate = ReplyBarrier::new();
/// let reply = ScriptedReply::text("first second third").with_barrier(&gate);
/// // ... once `gate.reached().await` returns, the first chunk is out and nothing follows until:
/// gate.release();
/// # drop(reply);
/// ```
#[derive(Debug, Clone)]
pub struct ReplyBarrier {
    reached: Arc<watch::Sender<bool>>,
    released: Arc<watch::Sender<bool>>,
}

impl ReplyBarrier {
    /// A closed gate.
    pub fn new() -> Self {
        Self { reached: Arc::new(watch::Sender::new(false)), released: Arc::new(watch::Sender::new(false)) }
    }

    /// Lets the answer go on, now or when it arrives.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until an answer stands at the gate.
    pub async fn reached(&self) {
        wait_for_true(&self.reached).await;
    }

    /// Whether an answer has come to the gate; for tests without a runtime.
    pub fn is_reached(&self) -> bool {
        *self.reached.borrow()
    }

    /// Stands at the gate until it is opened.
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
    // The error means that the sender is gone; it is borrowed here, so it is not.
    let _ = sender.subscribe().wait_for(|value| *value).await;
}
