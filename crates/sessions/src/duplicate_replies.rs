//! Replies to events that a source sends again.

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::{ChannelDirectory, Outbox, OutboxRow};
use capstan_protocol::{EventKey, Outcome, RunId};
use capstan_tape::{Batch, StoreError, TapeRepository};

use crate::accepted_event::AcceptedEvent;
use crate::lease::LeaseOwner;
use crate::lifecycle::HostLifecycle;
use crate::recovery::SessionRecovery;
use crate::session_pool::SessionPool;
use crate::{HostError, ServedEvent};

/// Poll interval for the outcome of an event that another process works on.
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
    pub(crate) pool: SessionPool,
}

impl DuplicateReplies {
    /// Tells whoever sent an event again what became of it, as soon as that is known.
    pub(crate) async fn reply_to_duplicate(&self, event: AcceptedEvent) {
        let (inbound, key) = (&event.inbound, &event.key);
        if let Err(error) = self.recover_if_orphaned(key).await {
            tracing::warn!(%error, "whether a dead process left an event could not be told");
        }
        if event.caller.is_none() && !self.channels.has_waiting_caller(&inbound.source) {
            // Nobody waits for an answer to what was sent again.
            return;
        }
        let known = tokio::select! {
            known = self.wait_for_outcome(key) => known,
            () = self.lifecycle.stop_token.cancelled() => Ok(None),
            () = self.wait_until_cancelled_elsewhere(key) => Ok(None),
        };
        // What was read may have been written a moment ago: nobody is told before the disk has it.
        let known = match known {
            Ok(Some(found)) => match self.tapes.store().commit(Batch::new()).await {
                Ok(_) => Ok(Some(found)),
                Err(error) => Err(error.into()),
            },
            known => known,
        };
        let served = ServedEvent { is_duplicate: true, ..ServedEvent::in_flight(event.session.clone()) };
        let failed = match known {
            Ok(Some((outcome, run_id))) => match self.tapes.store().outbox_records(key).collect().await {
                Ok(rows) => {
                    let output = if let Outcome::Replied { text } = &outcome { text.clone() } else { String::new() };
                    // What nobody has taken is given to this caller.
                    let (rows, given): (Vec<_>, Vec<_>) =
                        rows.into_iter().partition(|row| self.outbox.is_unclaimed(inbound, row));
                    let outbounds = given.into_iter().map(|row| row.message).collect();
                    let outcome_now = Some(outcome.clone());
                    let served = ServedEvent { run_id, output, outbounds, outcome: outcome_now, ..served };
                    let rows = rows.into_iter().map(OutboxRow::from_unclaimed).collect();
                    return self.outbox.deliver(event.into_delivery(served, outcome, rows)).await;
                }
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(served),
            Err(error) => Err(error),
        };
        if let Some(caller) = event.caller {
            // Whoever asked may have gone.
            let _unheard = caller.send(failed);
        }
    }

    /// Returns when every run of this host is to end and an event is not among what that ends: another process works on
    /// it, and goes on.
    async fn wait_until_cancelled_elsewhere(&self, key: &EventKey) {
        self.lifecycle.cancel_token.cancelled().await;
        let store = self.tapes.store();
        let is_mine = async {
            let (event, me) = (store.in_flight_event(key).await?, self.owner.name());
            Ok::<_, StoreError>(event.is_some_and(|event| event.owner.as_deref() == Some(me)))
        };
        if is_mine.await.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// An event that a dead process left has nobody to end it but whoever asks for it again.
    async fn recover_if_orphaned(&self, key: &EventKey) -> Result<(), HostError> {
        let store = self.tapes.store();
        let Some(record) = store.inbox_record(key).await?.filter(|record| record.outcome.is_none()) else {
            return Ok(());
        };
        // Tools work in the workspace of their session, and that may be another one.
        let tape = self.tapes.record(&record.tape).await?;
        let is_ours = tape.is_some_and(|tape| self.recovery.is_workspace_tape(&tape));
        let (left, _) = self.recovery.partition_orphaned(&record.tape).await?;
        if is_ours && left.iter().any(|event| event.key == *key) {
            self.pool.reserve(&record.tape)?.request_recovery(left.len());
        }
        Ok(())
    }

    /// Waits until an event has ended: it may wait for others, and each of them for as long as a run may take.
    async fn wait_for_outcome(&self, key: &EventKey) -> Result<Option<(Outcome, Option<RunId>)>, HostError> {
        loop {
            match self.tapes.store().inbox_record(key).await {
                Ok(record) => {
                    if let Some(outcome) = record.and_then(|record| record.outcome) {
                        return Ok(Some(outcome));
                    }
                }
                Err(error) if error.is_transient() => tracing::warn!(%error, "what became of an event is asked again"),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(OUTCOME_POLL_INTERVAL).await;
        }
    }
}
