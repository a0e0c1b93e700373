//! Relay of outcomes that this turn or this process does not determine: of duplicates, and of events that another process
//! or a recovery serves.

use std::time::Duration;

use capstan_delivery::{ChannelDirectory, Outbox, OutboxRow, QueueOverflow};
use capstan_protocol::{EventKey, OutboxStatus, Outcome, RunId};
use capstan_tape::{Batch, OutboxRecord, StoreError, TapeRepository};
use capstan_turn::{RunError, TurnError};

use crate::accepted_event::AcceptedEvent;
use crate::lease::LeaseOwner;
use crate::lifecycle::HostLifecycle;
use crate::recorded_command::read_command_error;
use crate::{HostError, ServedEvent};

/// Poll interval for the outcome of an event that is in flight.
const OUTCOME_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of polls until the process that settled an event has recorded that it cannot reach the caller.
const MAX_CLAIM_POLLS: usize = 50;

/// Relation of the caller to the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayReason {
    /// The caller submitted an event again.
    Duplicate,
    /// The caller submitted the event, and its turn in this process cannot settle it.
    LostTurn,
}

/// Waits for the recorded outcome of an event and replies with it.
#[derive(Clone)]
pub(crate) struct OutcomeRelay {
    pub(crate) tapes: TapeRepository,
    pub(crate) channels: ChannelDirectory,
    pub(crate) outbox: Outbox,
    pub(crate) owner: LeaseOwner,
    pub(crate) lifecycle: HostLifecycle,
}

impl OutcomeRelay {
    /// Relays the outcomes of events whose turn was lost, each in a task of its own.
    pub(crate) fn spawn_for_lost_turn(&self, events: Vec<AcceptedEvent>) {
        for event in events {
            let relay = self.clone();
            self.lifecycle.tasks.spawn(async move { relay.relay_outcome(event, RelayReason::LostTurn).await });
        }
    }

    /// Replies to the caller of an event with the recorded outcome, as soon as there is one.
    pub(crate) async fn relay_outcome(&self, event: AcceptedEvent, reason: RelayReason) {
        let (inbound, key) = (&event.inbound, &event.key);
        if event.caller.is_none() && !self.channels.has_waiting_caller(&inbound.source) {
            // No caller waits for a reply.
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
        let is_duplicate = reason == RelayReason::Duplicate;
        let served = ServedEvent { is_duplicate, ..ServedEvent::in_flight(event.session.clone()) };
        let unsettled = match outcome {
            Ok(Some((outcome, run_id))) => match self.claimable_rows(&event, reason).await {
                Ok(rows) => {
                    let output = if let Outcome::Replied { text } = &outcome { text.clone() } else { String::new() };
                    // Messages that no caller has received are delivered to this one.
                    let (rows, delivered): (Vec<_>, Vec<_>) =
                        rows.into_iter().partition(|row| self.outbox.may_return_to_caller(inbound, row));
                    let outbounds = delivered.into_iter().map(|row| row.message).collect();
                    let error = if is_duplicate { None } else { outcome_error(&outcome) };
                    let command_error = self.command_error(&event, &outcome, run_id.as_ref()).await;
                    let served = ServedEvent {
                        run_id,
                        output,
                        outbounds,
                        outcome: Some(outcome.clone()),
                        error,
                        command_error,
                        ..served
                    };
                    let rows = rows.into_iter().map(OutboxRow::from_returned).collect();
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

    /// Error of the comma command that the event was, if the command has failed. The reply is worth more than this detail,
    /// so a failure to read it is logged only.
    async fn command_error(&self, event: &AcceptedEvent, outcome: &Outcome, run_id: Option<&RunId>) -> Option<String> {
        let has_replied = matches!(outcome, Outcome::Replied { .. } | Outcome::Silent);
        let run_id = run_id.filter(|_| has_replied && event.inbound.command_line().is_some())?;
        let read = read_command_error(&self.tapes, run_id).await;
        read.unwrap_or_else(|error| {
            tracing::warn!(%run_id, %error, "cannot read the result of a command");
            None
        })
    }

    /// Messages of a settled event. After a lost turn the caller is here, and the process that settled the event finds out
    /// soon that it is not there: the messages are claimed after that.
    async fn claimable_rows(
        &self,
        event: &AcceptedEvent,
        reason: RelayReason,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let mut polls = 0;
        loop {
            let rows = self.tapes.store().outbox_records(&event.key).collect().await?;
            let is_pending = |row: &OutboxRecord| {
                row.message.channel == event.inbound.source && matches!(row.status, OutboxStatus::Waiting { .. })
            };
            if reason == RelayReason::Duplicate || polls >= MAX_CLAIM_POLLS || !rows.iter().any(is_pending) {
                return Ok(rows);
            }
            polls += 1;
            tokio::time::sleep(OUTCOME_POLL_INTERVAL).await;
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

/// Error of a turn that ended with this outcome.
fn outcome_error(outcome: &Outcome) -> Option<TurnError> {
    match outcome {
        Outcome::Failed { notice, code } => {
            Some(TurnError::Run(RunError { message: notice.clone(), code: code.clone() }))
        }
        Outcome::Cancelled => Some(TurnError::Cancelled),
        Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. } | Outcome::Dropped => None,
    }
}
