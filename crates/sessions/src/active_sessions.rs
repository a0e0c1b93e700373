//! Registry of active sessions. Each has a session actor: a task that lives from the first event of the session until
//! the session is idle.
//!
//! # Design
//!
//! A sender reserves the session before it commits an event. It then either [sends](SessionReservation::send) the
//! accepted event, [requests recovery](SessionReservation::request_recovery), or drops the reservation. A queued event
//! holds a queue slot until its turn begins; some arrivals may use one of [`BYPASS_SLOTS`] when the queue is full.
//!
//! # Invariants
//!
//! - A session with a pending sender or a requested recovery is not passivated.
//! - The inbox has capacity for every slot, so an event with a slot can always be sent.
//! - Any number of wake signals that the actor has not received are one signal.
//! - While an actor releases its lease, new reservations cannot take the lease for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use capstan_turn::EventArrival;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::accepted_event::AcceptedEvent;
use crate::lease::LeaseClaim;

/// Number of additional slots for events that may enter a full queue.
const BYPASS_SLOTS: usize = 8;

/// Signal to a session actor.
#[derive(Debug)]
pub(crate) enum SessionSignal {
    /// An accepted event.
    Event(Box<AcceptedEvent>),
    /// A change of shared state that the actor has to check: a reservation was dropped, or recovery was requested.
    Wake,
}

/// Inbox of a session actor: at most one event for each slot, and at most one wake signal.
#[derive(Debug)]
pub(crate) struct SessionInbox {
    events: mpsc::Receiver<Box<AcceptedEvent>>,
    wake_signal: Arc<Notify>,
}

impl SessionInbox {
    /// Receives the next signal. Cancel safe: a dropped future has received nothing.
    pub(crate) async fn next_signal(&mut self) -> SessionSignal {
        tokio::select! {
            Some(event) = self.events.recv() => SessionSignal::Event(event),
            () = self.wake_signal.notified() => SessionSignal::Wake,
        }
    }

    /// Receives the next event, if there is one already.
    pub(crate) fn try_next_event(&mut self) -> Option<Box<AcceptedEvent>> {
        self.events.try_recv().ok()
    }
}

/// Registry of active sessions. Cheap to clone.
#[derive(Debug, Default, Clone)]
pub(crate) struct ActiveSessions(Arc<Mutex<HashMap<TapeName, ActiveSession>>>);

#[derive(Debug)]
struct ActiveSession {
    actor: mpsc::Sender<Box<AcceptedEvent>>,
    wake_signal: Arc<Notify>,
    claim: Arc<LeaseClaim>,
    slots: QueueSlots,
    /// Number of reservations that are neither dropped nor followed by an event that the actor received.
    pending_senders: usize,
    /// Number of events that were sent and that the actor has not received.
    undelivered_events: usize,
    /// Orphaned events of a dead process are to be recovered.
    needs_recovery: bool,
    /// Slots of the events to be recovered, which are queued like all others.
    recovery_slots: Vec<OwnedSemaphorePermit>,
    /// A turn is running, or can begin.
    is_busy: bool,
    /// Cancels the running turn.
    turn_cancel_token: Option<CancellationToken>,
    /// The actor is releasing its lease, so new events must not rely on the lease.
    is_releasing: bool,
}

/// Queue slots of a session.
#[derive(Debug, Clone)]
struct QueueSlots {
    /// For all events.
    queue: Arc<Semaphore>,
    /// For events that may enter a full queue.
    bypass: Arc<Semaphore>,
}

impl QueueSlots {
    fn new(queue_size: usize) -> Self {
        Self { queue: Arc::new(Semaphore::new(queue_size)), bypass: Arc::new(Semaphore::new(BYPASS_SLOTS)) }
    }

    fn try_acquire(&self, arrival: &EventArrival) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.queue).try_acquire_owned();
        let bypass_slot = || Arc::clone(&self.bypass).try_acquire_owned().ok();
        slot.ok().or_else(|| arrival.can_bypass_queue().then(bypass_slot).flatten())
    }
}

/// Reservation of a session, which stays active until the reservation is used or dropped.
#[derive(Debug)]
pub(crate) struct SessionReservation {
    sessions: ActiveSessions,
    tape: TapeName,
    actor: mpsc::Sender<Box<AcceptedEvent>>,
    /// Claim of the session actor to the lease of the session.
    pub(crate) claim: Arc<LeaseClaim>,
    /// The commit of the event may acquire the lease for the session actor.
    pub(crate) can_take_lease: bool,
    slots: QueueSlots,
    slot: Option<OwnedSemaphorePermit>,
    is_sent: bool,
}

impl ActiveSessions {
    /// Reserves a session. If it was not active, `start_actor` starts its actor with this inbox, and returns the claim of
    /// the actor to the lease.
    pub(crate) fn reserve(
        &self,
        tape: &TapeName,
        queue_size: usize,
        start_actor: impl FnOnce(SessionInbox) -> Arc<LeaseClaim>,
    ) -> SessionReservation {
        let mut sessions = self.lock();
        let session = sessions.entry(tape.clone()).or_insert_with(|| {
            // Capacity for every slot, and no event is sent without a slot.
            let (actor, events) = mpsc::channel(queue_size + BYPASS_SLOTS);
            let wake_signal = Arc::new(Notify::new());
            let inbox = SessionInbox { events, wake_signal: Arc::clone(&wake_signal) };
            ActiveSession {
                actor,
                wake_signal,
                claim: start_actor(inbox),
                slots: QueueSlots::new(queue_size),
                pending_senders: 0,
                undelivered_events: 0,
                needs_recovery: false,
                recovery_slots: Vec::new(),
                is_busy: false,
                turn_cancel_token: None,
                is_releasing: false,
            }
        });
        session.pending_senders += 1;
        SessionReservation {
            sessions: self.clone(),
            tape: tape.clone(),
            actor: session.actor.clone(),
            claim: Arc::clone(&session.claim),
            can_take_lease: !session.is_releasing,
            slots: session.slots.clone(),
            slot: None,
            is_sent: false,
        }
    }

    /// Returns true if an active session has a turn to run; `None` if the session is not active.
    pub(crate) fn is_busy(&self, tape: &TapeName) -> Option<bool> {
        self.lock().get(tape).map(|session| session.is_busy || session.undelivered_events > 0)
    }

    /// Records that the session has a turn to run.
    pub(crate) fn mark_busy(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.is_busy = true;
        }
    }

    /// Records the token that cancels the running turn.
    pub(crate) fn set_turn_cancel_token(&self, tape: &TapeName, cancel_token: CancellationToken) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.turn_cancel_token = Some(cancel_token);
        }
    }

    /// Records that the turn is over, and whether the session has another one to run.
    pub(crate) fn end_turn(&self, tape: &TapeName, is_busy: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.turn_cancel_token = None;
            session.is_busy = is_busy;
        }
    }

    /// Cancels the running turn of a session. Returns true if one was running.
    pub(crate) fn cancel_turn(&self, tape: &TapeName) -> bool {
        let sessions = self.lock();
        let cancel_token = sessions.get(tape).and_then(|session| session.turn_cancel_token.as_ref());
        cancel_token.inspect(|cancel_token| cancel_token.cancel()).is_some()
    }

    /// Records that the actor received an event, and whether the session has a turn to run now.
    pub(crate) fn record_received(&self, tape: &TapeName, is_busy: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.pending_senders = session.pending_senders.saturating_sub(1);
            session.undelivered_events = session.undelivered_events.saturating_sub(1);
            session.is_busy = is_busy;
        }
    }

    /// Takes the request to recover the session; a request is returned once.
    pub(crate) fn take_recovery_request(&self, tape: &TapeName) -> bool {
        self.lock().get_mut(tape).is_some_and(|session| std::mem::take(&mut session.needs_recovery))
    }

    /// Takes the slots that are reserved for recovered events.
    pub(crate) fn take_recovery_slots(&self, tape: &TapeName) -> Vec<OwnedSemaphorePermit> {
        self.lock().get_mut(tape).map(|session| std::mem::take(&mut session.recovery_slots)).unwrap_or_default()
    }

    fn record_sent(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.undelivered_events += 1;
        }
    }

    /// Begins the release of the lease, unless a sender relies on it. Until [`end_release`](Self::end_release) no new
    /// sender does. Returns true if the actor may release the lease.
    pub(crate) fn begin_release(&self, tape: &TapeName) -> bool {
        match self.lock().get_mut(tape) {
            Some(session) if session.pending_senders == 0 => {
                session.is_releasing = true;
                true
            }
            _ => false,
        }
    }

    /// Ends the release of the lease, successful or not.
    pub(crate) fn end_release(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.is_releasing = false;
        }
    }

    /// Removes an idle session, unless a sender is pending or recovery is requested. Returns true if the actor may end.
    pub(crate) fn passivate(&self, tape: &TapeName) -> bool {
        let mut sessions = self.lock();
        if sessions.get(tape).is_some_and(|session| session.pending_senders > 0 || session.needs_recovery) {
            return false;
        }
        sessions.remove(tape);
        true
    }

    /// Removes the session of an actor that has ended: the next event of the session starts another actor.
    fn remove_actor(&self, tape: &TapeName, actor: &mpsc::Sender<Box<AcceptedEvent>>) {
        let mut sessions = self.lock();
        if sessions.get(tape).is_some_and(|session| session.actor.same_channel(actor)) {
            sessions.remove(tape);
        }
    }

    /// Number of active sessions.
    pub(crate) fn active_count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, ActiveSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionReservation {
    /// Acquires a queue slot for an event with this arrival. Returns true if there was one.
    pub(crate) fn acquire_slot(&mut self, arrival: &EventArrival) -> bool {
        self.slot = self.slots.try_acquire(arrival);
        self.slot.is_some()
    }

    /// Sends an accepted event, with the slot acquired for it, to the session actor.
    pub(crate) fn send(mut self, mut event: AcceptedEvent) {
        event.slot = self.slot.take();
        self.is_sent = true;
        self.sessions.record_sent(&self.tape);
        if self.actor.try_send(Box::new(event)).is_err() {
            // An actor with a closed inbox ended with its host: the event stays in the store for the next start.
            tracing::warn!(tape = %self.tape, "a session actor ended before it received an event");
            self.sessions.remove_actor(&self.tape, &self.actor);
        }
    }

    /// Requests recovery of `count` orphaned events. Free queue slots are reserved for them, before new events can
    /// acquire the slots.
    pub(crate) fn request_recovery(self, count: usize) {
        if let Some(session) = self.sessions.lock().get_mut(&self.tape) {
            session.needs_recovery = true;
            let free_slots = std::iter::from_fn(|| Arc::clone(&session.slots.queue).try_acquire_owned().ok());
            let missing = count.saturating_sub(session.recovery_slots.len());
            session.recovery_slots.extend(free_slots.take(missing));
        }
    }

    /// Ends a reservation without an event, and wakes the actor: it may be waiting only for this.
    fn cancel(&self) {
        if self.actor.is_closed() {
            return self.sessions.remove_actor(&self.tape, &self.actor);
        }
        if let Some(session) = self.sessions.lock().get_mut(&self.tape) {
            session.pending_senders = session.pending_senders.saturating_sub(1);
            session.wake_signal.notify_one();
        }
    }
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        if !self.is_sent {
            self.cancel();
        }
    }
}

#[cfg(test)]
#[path = "active_sessions_tests.rs"]
mod tests;
