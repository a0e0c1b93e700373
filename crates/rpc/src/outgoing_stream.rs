//! Stream that this side sends, under the credit of the other side.

use std::sync::{Arc, Weak};

use capstan_protocol::plugin_protocol::credit_cost;
use serde::Serialize;

use crate::credit::CreditBalance;
use crate::peer::{PeerShared, RpcPeer};
use crate::{RpcCallError, RpcCloseReason};

/// Sender of a stream. Dropping it ends the stream.
pub struct OutgoingStream {
    name: Arc<str>,
    balance: Arc<CreditBalance>,
    peer: Weak<PeerShared>,
}

impl OutgoingStream {
    /// Name of the stream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for credit and sends an item as a notification.
    pub async fn send(&self, method: &str, params: &impl Serialize) -> Result<(), RpcCallError> {
        let ended = || RpcCallError::Closed(RpcCloseReason::Closed("the stream has ended".to_owned()));
        let peer = self.peer.upgrade().ok_or_else(ended)?;
        let line = peer.encode(None, method, params)?;
        if !self.balance.pay(credit_cost(line.len())).await {
            return Err(RpcCallError::Closed(peer.close_reason()));
        }
        peer.push(line).await
    }
}

impl Drop for OutgoingStream {
    fn drop(&mut self) {
        if let Some(peer) = self.peer.upgrade() {
            peer.remove_outgoing(&self.name, &self.balance);
        }
    }
}

impl RpcPeer {
    /// Opens a stream that this side sends. `None` if the name is in use.
    pub fn open_outgoing(&self, name: &str, credit: u32) -> Option<OutgoingStream> {
        let (name, balance): (Arc<str>, _) = (name.into(), Arc::new(CreditBalance::new(credit)));
        let peer = self.shared();
        let stream =
            OutgoingStream { name: Arc::clone(&name), balance: Arc::clone(&balance), peer: Arc::downgrade(peer) };
        peer.add_outgoing(name, balance).then_some(stream)
    }
}
