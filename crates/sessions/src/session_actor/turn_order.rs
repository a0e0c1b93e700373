//! Order of turns across the processes of a home.
//!
//! # Design
//!
//! Events of a session are numbered in the order of their acceptance, and each is served by the process that owns it.
//! Before a turn the actor, which holds the lease, reads the events in flight up to its own. No earlier event can appear
//! later, so the result stays valid.
//!
//! - An earlier event of a living process gets the turn: the actor releases the lease and does not acquire it again
//!   until no earlier event is left. The other process polls for the lease and acquires it.
//! - An earlier event of a dead process that this process may recover is recovered first.
//! - An own event that another process has adopted is left to that process.
//!
//! A process that is alive but neither has the lease nor takes it within the session wait timeout does not hold up the
//! session any longer: its event is overdue, and gets its turn later.

use std::collections::HashSet;

use capstan_protocol::EventKey;
use capstan_tape::{InFlightEvent, StoreError};
use tokio::time::Instant;

use super::{SessionActor, SessionPhase};
use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::lease_keeper::LEASE_POLL_INTERVAL;

/// Events in flight up to those of a batch.
struct TurnSurvey {
    /// Events of this process.
    own: HashSet<EventKey>,
    /// First event of another process before those of the batch.
    earlier: Option<EarlierEvent>,
}

/// An event of another process that precedes a turn.
enum EarlierEvent {
    /// Its process is alive.
    Served(EventKey),
    /// Its process is dead, and this process may recover the event.
    Orphaned(EventKey),
}

impl SessionActor {
    /// Returns the events of a batch if it is their turn. Otherwise they go back to the mailbox, after the wait for the
    /// earlier events of other processes. Events that another process has adopted are left to that process.
    pub(super) async fn take_turn(&mut self, batch: TurnBatch) -> Option<TurnBatch> {
        let survey = match self.survey_events(&batch).await {
            Ok(survey) => survey,
            Err(error) => {
                // The commit that opens the run checks the ownership of the events.
                tracing::warn!(tape = %self.tape, %error, "cannot check the order of events across processes");
                return Some(batch);
            }
        };
        let batch = self.leave_adopted_events(batch, &survey.own)?;
        match survey.earlier {
            None => return Some(batch),
            Some(EarlierEvent::Orphaned(key)) => {
                // One attempt: the other process may have been faster, or the event cannot be recovered.
                self.overdue_events.insert(key);
                self.is_recovered = false;
                self.mailbox.push_front(batch.into_events());
            }
            Some(EarlierEvent::Served(key)) => self.wait_for_earlier_events(batch, key).await,
        }
        None
    }

    async fn survey_events(&self, batch: &TurnBatch) -> Result<TurnSurvey, StoreError> {
        let (first, newest) = (batch.first_entry(), batch.newest_entry());
        let own_name = self.pool.leases.owner.name();
        let mut survey = TurnSurvey { own: HashSet::new(), earlier: None };
        let mut events = self.pool.tapes.store().in_flight_events(Some(&self.tape));
        while let Some(event) = events.next().await?.filter(|event| event.entry <= newest) {
            if event.owner.as_deref() == Some(own_name) {
                survey.own.insert(event.key);
            } else if survey.earlier.is_none() && event.entry < first && !self.overdue_events.contains(&event.key) {
                survey.earlier = self.judge_earlier_event(event).await?;
            }
        }
        Ok(survey)
    }

    /// Returns the event if the turn has to wait for it. An event that no process of this workspace serves is not waited
    /// for.
    async fn judge_earlier_event(&self, event: InFlightEvent) -> Result<Option<EarlierEvent>, StoreError> {
        if event.owner.as_deref().is_some_and(|owner| self.pool.leases.owner.is_known_alive(owner)) {
            return Ok(Some(EarlierEvent::Served(event.key)));
        }
        let is_orphaned = self.pool.recovery.is_orphaned_event(&event).await?;
        Ok(is_orphaned.then_some(EarlierEvent::Orphaned(event.key)))
    }

    /// Removes the events that this process does not own any more. Their callers get the recorded outcomes. Returns
    /// `None` if no event is left.
    fn leave_adopted_events(&self, batch: TurnBatch, own: &HashSet<EventKey>) -> Option<TurnBatch> {
        if batch.events().all(|event| own.contains(&event.key)) {
            return Some(batch);
        }
        let (kept, adopted): (Vec<AcceptedEvent>, Vec<AcceptedEvent>) =
            batch.into_events().into_iter().partition(|event| own.contains(&event.key));
        for event in &adopted {
            tracing::warn!(tape = %self.tape, event = %event.key.event_id, "another process has adopted an event");
        }
        self.pool.closer.relay_adopted_events(adopted);
        TurnBatch::new(kept)
    }

    /// Passes the lease to the process of an earlier event, and waits until no earlier event of another process is left.
    async fn wait_for_earlier_events(&mut self, batch: TurnBatch, mut earlier: EventKey) {
        let pool = std::sync::Arc::clone(&self.pool);
        let timeout = pool.leases.session_wait_timeout;
        let mut deadline = Instant::now() + timeout;
        loop {
            self.pass_lease().await;
            tokio::select! {
                () = tokio::time::sleep(LEASE_POLL_INTERVAL) => {}
                signal = self.inbox.next_signal() => self.handle_signal(signal, SessionPhase::Idle),
                Some(_) = self.concurrent_commands.join_next() => {}
                () = pool.lifecycle.stop_token.cancelled() => break,
                () = pool.lifecycle.cancel_token.cancelled() => {
                    // The turns are cancelled in any order.
                    self.overdue_events.insert(earlier);
                    break;
                }
            }
            match self.survey_events(&batch).await {
                Ok(TurnSurvey { earlier: Some(EarlierEvent::Served(key)), .. }) => {
                    let is_served = pool.leases.is_held_elsewhere(&self.tape).await.unwrap_or(false);
                    if is_served || key != earlier {
                        deadline = Instant::now() + timeout;
                    }
                    earlier = key;
                }
                // The next attempt to take the turn reports an error.
                Ok(_) | Err(_) => break,
            }
            if Instant::now() >= deadline {
                tracing::warn!(tape = %self.tape, event = %earlier.event_id, "another process does not serve an earlier event");
                self.overdue_events.insert(earlier.clone());
            }
        }
        self.mailbox.push_front(batch.into_events());
    }

    /// Releases the lease, unless a sender or a concurrent command relies on it.
    async fn pass_lease(&mut self) {
        if self.fence.is_some() && self.concurrent_commands.is_empty() && self.pool.sessions.begin_release(&self.tape) {
            self.release_lease().await;
            self.pool.sessions.end_release(&self.tape);
        }
    }
}
