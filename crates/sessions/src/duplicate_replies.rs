//! Replies to duplicates: events that a source submits again.

use std::sync::Arc;

use capstan_protocol::EventKey;
use capstan_tape::TapeRepository;

use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use crate::outcome_relay::{OutcomeRelay, RelayReason};
use crate::recovery::SessionRecovery;
use crate::session_actor::SessionPool;

/// Answers duplicate events with the outcome of the first one.
#[derive(Clone)]
pub(crate) struct DuplicateReplies {
    pub(crate) tapes: TapeRepository,
    pub(crate) relay: OutcomeRelay,
    pub(crate) recovery: Arc<SessionRecovery>,
    pub(crate) pool: Arc<SessionPool>,
}

impl DuplicateReplies {
    /// Replies to the sender of a duplicate with the outcome of the event, as soon as there is one.
    pub(crate) async fn reply_to_duplicate(&self, event: AcceptedEvent) {
        if let Err(error) = self.recover_if_orphaned(&event.key).await {
            tracing::warn!(%error, "cannot check whether an event is orphaned");
        }
        self.relay.relay_outcome(event, RelayReason::Duplicate).await;
    }

    /// Requests recovery of an orphaned event: without the duplicate, no process might settle it.
    pub(crate) async fn recover_if_orphaned(&self, key: &EventKey) -> Result<(), HostError> {
        let store = self.tapes.store();
        let Some(record) = store.inbox_record(key).await?.filter(|record| record.outcome.is_none()) else {
            return Ok(());
        };
        // Tools work in the workspace of their session, which may be another one.
        let tape = self.tapes.record(&record.tape).await?;
        let is_ours = tape.is_some_and(|tape| self.recovery.is_workspace_tape(&tape));
        let (orphaned, _) = self.recovery.partition_orphaned(&record.tape).await?;
        if is_ours && orphaned.iter().any(|event| event.key == *key) {
            self.pool.reserve(&record.tape)?.request_recovery(orphaned.len());
        }
        Ok(())
    }
}
