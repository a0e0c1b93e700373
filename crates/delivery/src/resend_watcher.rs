//! Watches for messages that the operator requested to send again.

use std::time::Duration;

use super::held_messages::request_revision;
use super::outbox::Outbox;

/// Poll interval for requests to send messages again.
const RESEND_WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Polls the store for requests to send messages again, which `capstan outbox resend` writes.
pub struct ResendWatcher {
    /// Outbox that adopts the messages.
    pub outbox: Outbox,
}

impl ResendWatcher {
    /// Adopts requested messages until the host stops.
    pub async fn run(self) {
        let outbox = &self.outbox;
        let mut seen = None;
        loop {
            match request_revision(outbox.tapes.store().as_ref()).await {
                Ok(revision) if seen == Some(revision) => {}
                Ok(revision) => match outbox.adopt_orphaned_messages().await {
                    Ok(()) => seen = Some(revision),
                    Err(error) => tracing::warn!(%error, "cannot adopt messages to send again"),
                },
                Err(error) => tracing::warn!(%error, "cannot read requests to send messages again"),
            }
            tokio::select! {
                () = tokio::time::sleep(RESEND_WATCH_INTERVAL) => {}
                () = outbox.options.stop_token.cancelled() => return,
            }
        }
    }
}
