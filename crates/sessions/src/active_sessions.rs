//! The sessions that are awake: each has a lane, a task of its own, from its first event until it is idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use capstan_turn::EventArrival;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::accepted_event::AcceptedEvent;
use crate::lease::LeaseClaim;

/// How many more events may wait that must get through although the queue is full.
const BYPASS_SLOTS: usize = 8;

/// What a lane hears.
#[derive(Debug)]
pub(crate) enum SessionSignal {
    /// An event.
    Event(Box<AcceptedEvent>),
    /// Something else has changed, which the lane looks up: nobody is about to send it anything any more, or it is to
    /// take something up.
    Wake,
}

/// Where a lane hears. As many events are in it as have places, and one call, however often the lane was called.
#[derive(Debug)]
pub(crate) struct SessionInbox {
    events: mpsc::Receiver<Box<AcceptedEvent>>,
    wake_signal: Arc<Notify>,
}

impl SessionInbox {
    /// The next thing to hear. Dropped before it is done, it has heard nothing.
    pub(crate) async fn next_signal(&mut self) -> SessionSignal {
        tokio::select! {
            Some(arrived) = self.events.recv() => SessionSignal::Event(arrived),
            () = self.wake_signal.notified() => SessionSignal::Wake,
        }
    }

    /// The next event that is there already.
    pub(crate) fn try_next_event(&mut self) -> Option<Box<AcceptedEvent>> {
        self.events.try_recv().ok()
    }
}

/// The sessions that are awake.
#[derive(Debug, Default, Clone)]
pub(crate) struct ActiveSessions(Arc<Mutex<HashMap<TapeName, ActiveSession>>>);

#[derive(Debug)]
struct ActiveSession {
    actor: mpsc::Sender<Box<AcceptedEvent>>,
    wake_signal: Arc<Notify>,
    claim: Arc<LeaseClaim>,
    slots: QueueSlots,
    /// How many senders the lane has not heard from.
    pending_senders: usize,
    /// How many events the lane has not heard of.
    undelivered_events: usize,
    /// A process that worked on this session died, and what it left is to be taken up.
    needs_recovery: bool,
    /// The places of what is to be taken up: it waits like any other event.
    recovery_slots: Vec<OwnedSemaphorePermit>,
    /// A turn is going on, or can begin.
    is_busy: bool,
    /// The lane is giving its lease back: nobody may count on it.
    is_releasing: bool,
}

/// The places of those that wait in a session.
#[derive(Debug, Clone)]
struct QueueSlots {
    /// For everybody.
    queue: Arc<Semaphore>,
    /// For what must get through although the queue is full.
    bypass: Arc<Semaphore>,
}

impl QueueSlots {
    fn new(queue: usize) -> Self {
        Self { queue: Arc::new(Semaphore::new(queue)), bypass: Arc::new(Semaphore::new(BYPASS_SLOTS)) }
    }

    fn try_acquire(&self, arrival: &EventArrival) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.queue).try_acquire_owned();
        let spare = || Arc::clone(&self.bypass).try_acquire_owned().ok();
        place.ok().or_else(|| arrival.can_bypass_queue().then(spare).flatten())
    }
}

/// What a new lane is made of.
pub(crate) struct SessionStart {
    pub(crate) tape: TapeName,
    pub(crate) claim: Arc<LeaseClaim>,
    pub(crate) inbox: SessionInbox,
}

/// The promise of a session to stay awake until it has heard from the holder.
#[derive(Debug)]
pub(crate) struct SessionReservation {
    sessions: ActiveSessions,
    tape: TapeName,
    actor: mpsc::Sender<Box<AcceptedEvent>>,
    /// The claim of the lane to the session's lease.
    pub(crate) claim: Arc<LeaseClaim>,
    /// Whether the lease can be taken for the lane together with the event.
    pub(crate) can_take_lease: bool,
    slots: QueueSlots,
    slot: Option<OwnedSemaphorePermit>,
    is_sent: bool,
}

impl ActiveSessions {
    /// Reserves a place in a session. A session that was asleep wakes up: its lane is to be begun.
    pub(crate) fn reserve(
        &self,
        tape: &TapeName,
        claim: impl FnOnce() -> LeaseClaim,
        queue: usize,
    ) -> (SessionReservation, Option<SessionStart>) {
        let mut awake = self.lock();
        let mut begun = None;
        let session = awake.entry(tape.clone()).or_insert_with(|| {
            // No event is sent that has no place, so there is always room.
            let (lane, events) = mpsc::channel(queue + BYPASS_SLOTS);
            let (claim, calls) = (Arc::new(claim()), Arc::new(Notify::new()));
            let inbox = SessionInbox { events, wake_signal: Arc::clone(&calls) };
            begun = Some(SessionStart { tape: tape.clone(), claim: Arc::clone(&claim), inbox });
            ActiveSession {
                actor: lane,
                wake_signal: calls,
                claim,
                slots: QueueSlots::new(queue),
                pending_senders: 0,
                undelivered_events: 0,
                needs_recovery: false,
                recovery_slots: Vec::new(),
                is_busy: false,
                is_releasing: false,
            }
        });
        session.pending_senders += 1;
        let reservation = SessionReservation {
            sessions: self.clone(),
            tape: tape.clone(),
            actor: session.actor.clone(),
            claim: Arc::clone(&session.claim),
            can_take_lease: !session.is_releasing,
            slots: session.slots.clone(),
            slot: None,
            is_sent: false,
        };
        (reservation, begun)
    }

    /// Whether a session that is awake has a turn to do. Nothing is known of one that is asleep.
    pub(crate) fn is_busy(&self, tape: &TapeName) -> Option<bool> {
        self.lock().get(tape).map(|session| session.is_busy || session.undelivered_events > 0)
    }

    /// The lane has a turn to do, or has none.
    pub(crate) fn set_busy(&self, tape: &TapeName, works: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.is_busy = works;
        }
    }

    /// The lane has heard of an event; `works` says whether it has a turn to do now.
    pub(crate) fn record_received(&self, tape: &TapeName, works: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.pending_senders = session.pending_senders.saturating_sub(1);
            session.undelivered_events = session.undelivered_events.saturating_sub(1);
            session.is_busy = works;
        }
    }

    /// Whether the lane is to take up what a dead process left. It is told so once.
    pub(crate) fn take_recovery_request(&self, tape: &TapeName) -> bool {
        self.lock().get_mut(tape).is_some_and(|session| std::mem::take(&mut session.needs_recovery))
    }

    /// The places that were kept for what the lane has taken up now.
    pub(crate) fn take_recovery_slots(&self, tape: &TapeName) -> Vec<OwnedSemaphorePermit> {
        self.lock().get_mut(tape).map(|session| std::mem::take(&mut session.recovery_slots)).unwrap_or_default()
    }

    fn record_sent(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.undelivered_events += 1;
        }
    }

    /// The lane wants to give its lease back. It may when nobody counts on it; until it says that it is done, nobody
    /// will.
    pub(crate) fn begin_release(&self, tape: &TapeName) -> bool {
        match self.lock().get_mut(tape) {
            Some(session) if session.pending_senders == 0 => {
                session.is_releasing = true;
                true
            }
            _ => false,
        }
    }

    /// The lane has given its lease back, or has not.
    pub(crate) fn end_release(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.is_releasing = false;
        }
    }

    /// The lane has nothing to do. Says whether it may end: nobody is about to send it anything.
    pub(crate) fn passivate(&self, tape: &TapeName) -> bool {
        let mut awake = self.lock();
        if awake.get(tape).is_some_and(|session| session.pending_senders > 0 || session.needs_recovery) {
            return false;
        }
        awake.remove(tape);
        true
    }

    /// A lane does not listen any more: the next event of its session begins another.
    fn remove_actor(&self, tape: &TapeName, lane: &mpsc::Sender<Box<AcceptedEvent>>) {
        let mut awake = self.lock();
        if awake.get(tape).is_some_and(|session| session.actor.same_channel(lane)) {
            awake.remove(tape);
        }
    }

    /// How many are awake.
    pub(crate) fn active_count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, ActiveSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionReservation {
    /// Takes a place among the events that wait; says whether there was one for an event that arrives like this.
    pub(crate) fn acquire_slot(&mut self, arrival: &EventArrival) -> bool {
        self.slot = self.slots.try_acquire(arrival);
        self.slot.is_some()
    }

    /// Hands over an accepted event that has its place.
    pub(crate) fn send(mut self, mut item: AcceptedEvent) {
        item.slot = self.slot.take();
        self.is_sent = true;
        self.sessions.record_sent(&self.tape);
        if self.actor.try_send(Box::new(item)).is_err() {
            // A lane that does not listen has been ended with its host: the event is on disk, for the next one.
            tracing::warn!(tape = %self.tape, "a session ended before it heard of an event");
            self.sessions.remove_actor(&self.tape, &self.actor);
        }
    }

    /// Has the lane take up what a dead process left: so many events, which have their places before anything new does, as
    /// far as there are places.
    pub(crate) fn request_recovery(self, count: usize) {
        if let Some(session) = self.sessions.lock().get_mut(&self.tape) {
            session.needs_recovery = true;
            let free = std::iter::from_fn(|| Arc::clone(&session.slots.queue).try_acquire_owned().ok());
            let missing = count.saturating_sub(session.recovery_slots.len());
            session.recovery_slots.extend(free.take(missing));
        }
    }

    /// Nothing is sent: the lane may be waiting only for this.
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
