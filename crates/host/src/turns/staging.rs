//! What a turn wants sent, until it is committed with the turn's outcome.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::OutboundMessage;

/// The outbound messages of one turn, and its one notice. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnStaging {
    staged: Arc<Mutex<StagedMessages>>,
}

#[derive(Debug, Default)]
struct StagedMessages {
    outbounds: Vec<OutboundMessage>,
    notice: Option<String>,
}

impl TurnStaging {
    /// Stages a message.
    pub(crate) fn stage(&self, outbound: OutboundMessage) {
        self.lock().outbounds.push(outbound);
    }

    /// Asks for a notice. Only the first of a turn is kept, however many stages fail.
    pub(crate) fn request_notice(&self, text: impl Into<String>) {
        self.lock().notice.get_or_insert_with(|| text.into());
    }

    /// Nobody is to be told anything but what is staged.
    pub(crate) fn withdraw_notice(&self) {
        self.lock().notice = None;
    }

    /// The notice that was asked for.
    pub(crate) fn notice(&self) -> Option<String> {
        self.lock().notice.clone()
    }

    /// What is staged.
    pub(crate) fn outbounds(&self) -> Vec<OutboundMessage> {
        self.lock().outbounds.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StagedMessages> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
