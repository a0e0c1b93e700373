//! Stream that this side receives, under the credit that it gives.

use std::sync::{Arc, Weak};

use serde_json::value::RawValue;

use crate::peer::{PeerShared, RpcPeer};
use crate::stream_queue::{StreamQueue, StreamViolation};

/// Receiver of a stream. Dropping it ends the stream.
pub struct IncomingStream {
    name: Arc<str>,
    queue: Arc<StreamQueue>,
    peer: Weak<PeerShared>,
}

impl IncomingStream {
    /// Name of the stream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Next item; `None` at the end. Gives credit back for it.
    pub async fn next_item(&mut self) -> Option<Result<Box<RawValue>, StreamViolation>> {
        let (item, credit) = match self.queue.take().await? {
            Ok(taken) => taken,
            Err(violation) => return Some(Err(violation)),
        };
        if let (Some(credit), Some(peer)) = (credit, self.peer.upgrade()) {
            peer.give_credit(&self.name, credit);
        }
        Some(Ok(item))
    }

    /// Ends the stream after what was delivered: no further items are taken.
    pub fn end(&self) {
        self.queue.end();
        self.unregister();
    }

    fn unregister(&self) {
        if let Some(peer) = self.peer.upgrade() {
            peer.remove_incoming(&self.name, &self.queue);
        }
    }
}

impl Drop for IncomingStream {
    fn drop(&mut self) {
        self.queue.end();
        self.unregister();
    }
}

impl RpcPeer {
    /// Opens a stream that the other side sends. `None` if the name is in use.
    pub fn open_incoming(&self, name: &str, credit: u32) -> Option<IncomingStream> {
        let (name, queue): (Arc<str>, _) = (name.into(), Arc::new(StreamQueue::new(credit)));
        let peer = self.shared();
        let stream = IncomingStream { name: Arc::clone(&name), queue: Arc::clone(&queue), peer: Arc::downgrade(peer) };
        peer.add_incoming(name, queue).then_some(stream)
    }
}
