//! Replies to duplicates: events that a source submits again.

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::{ChannelDirectory, Outbox, OutboxRow, QueueOverflow};
use capstan_protocol::{EventKey, Outcome, RunId};
use capstan_tape::{Batch, StoreError, TapeRepository};

use crate::accepted_event::AcceptedEvent;
use crate::lease::LeaseOwner;
use crate::lifecycle::HostLifecycle;
use crate::recovery::SessionRecovery;
use crate::session_actor::SessionPool;
use crate::{HostError, ServedEvent};

/// Poll interval for the outcome of an event that is in flight.
const OUTCOME_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Answers duplicate events with the outcome of the first one.
#[derive(Clone)]
pub(crate) struct DuplicateReplies {
    pub(crate) tapes: TapeRepository,
    pub(crate) channels: ChannelDirectory,
    pub(crate) outbox: Outbox,
    pub(crate) owner: LeaseOwner,
    pub(crate) lifecycle: HostLifecycle,
    pub(crate) recovery: Arc<SessionRecovery>,
    pub(crate) pool: Arc<SessionPool>,
}

impl DuplicateReplies {
    /// Replies to the sender of a duplicate with the outcome of the event, as soon as there is one.
    pub(crate) async fn reply_to_duplicate(&self, event: AcceptedEvent) {
        let (inbound, key) = (&event.inbound, &event.key);
        if let Err(error) = self.recover_if_orphaned(key).await {
            tracing::warn!(%error, "cannot check whether an event is orphaned");
        }
        if event.caller.is_none() && !self.channels.has_waiting_caller(&inbound.source) {
            // No caller waits for a reply to the duplicate.
            return;
        }
        let outcome = tokio::select! {
            outcome = self.wait_for_outcome(key) => outcome,
            () = self.lifecycle.stop_token.cancelled() => Ok(None),
            () = self.wait_until_cancelled_elsewhere(key) => Ok(None),
        };
        // The outcome may have been written without a sync: no caller gets it before it is durable.
        let outcome = match outcome {
            Ok(Some(outcome)) => match self.tapes.store().commit(Batch::new()).await {
                Ok(_) => Ok(Some(outcome)),
                Err(error) => Err(error.into()),
            },
            outcome => outcome,
        };
        let served = ServedEvent { is_duplicate: true, ..ServedEvent::in_flight(event.session.clone()) };
        let unsettled = match outcome {
            Ok(Some((outcome, run_id))) => match self.tapes.store().outbox_records(key).collect().await {
                Ok(rows) => {
                    let output = if let Outcome::Replied { text } = &outcome { text.clone() } else { String::new() };
                    // Messages that no caller has received are delivered to this one.
                    let (rows, delivered): (Vec<_>, Vec<_>) =
                        rows.into_iter().partition(|row| self.outbox.is_unclaimed(inbound, row));
                    let outbounds = delivered.into_iter().map(|row| row.message).collect();
                    let served = ServedEvent { run_id, output, outbounds, outcome: Some(outcome.clone()), ..served };
                    let rows = rows.into_iter().map(OutboxRow::from_unclaimed).collect();
                    let delivery = event.into_delivery(served, outcome, rows);
                    let chats = self.outbox.enqueue(delivery, QueueOverflow::Enqueue);
                    return self.outbox.wait_for_capacity(&chats).await;
                }
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(served),
            Err(error) => Err(error),
        };
        if let Some(caller) = event.caller {
            // The caller may have disconnected.
            let _disconnected = caller.send(unsettled);
        }
    }

    /// Returns when all runs of this host are cancelled and that does not settle the event, because another process
    /// serves it.
    async fn wait_until_cancelled_elsewhere(&self, key: &EventKey) {
        self.lifecycle.cancel_token.cancelled().await;
        let store = self.tapes.store();
        let is_mine = async {
            let event = store.in_flight_event(key).await?;
            Ok::<_, StoreError>(event.is_some_and(|event| event.owner.as_deref() == Some(self.owner.name())))
        };
        if is_mine.await.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// Requests recovery of an orphaned event: without the duplicate, no process might settle it.
    async fn recover_if_orphaned(&self, key: &EventKey) -> Result<(), HostError> {
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

    /// Waits for the outcome of an event, without a timeout: the event may be queued behind others, and each of them may
    /// use the full timeout of a run.
    async fn wait_for_outcome(&self, key: &EventKey) -> Result<Option<(Outcome, Option<RunId>)>, HostError> {
        loop {
            match self.tapes.store().inbox_record(key).await {
                Ok(record) => {
                    if let Some(outcome) = record.and_then(|record| record.outcome) {
                        return Ok(Some(outcome));
                    }
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, "cannot read the outcome of an event; retrying");
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(OUTCOME_POLL_INTERVAL).await;
        }
    }
}
