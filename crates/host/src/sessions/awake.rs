//! The sessions that are awake: each has a lane, a task of its own, from its first event until it is idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use capstan_tape::Fence;
use capstan_turn::Arrival;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::item::Item;
use super::lease::{Claim, Owner};

/// How many more events may wait that must get through although the queue is full.
const SPARE: usize = 8;

/// An event that was accepted, perhaps together with the lease.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) item: Box<Item>,
    pub(crate) lease: Option<Fence>,
}

/// What a lane hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An event.
    Event(Arrived),
    /// Something else has changed, which the lane looks up: nobody is about to send it anything any more, or it is to
    /// take something up.
    Call,
}

/// Where a lane hears. As many events are in it as have places, and one call, however often the lane was called.
#[derive(Debug)]
pub(crate) struct Inbox {
    events: mpsc::Receiver<Arrived>,
    calls: Arc<Notify>,
}

impl Inbox {
    /// The next thing to hear. Dropped before it is done, it has heard nothing.
    pub(crate) async fn next(&mut self) -> Heard {
        tokio::select! {
            Some(arrived) = self.events.recv() => Heard::Event(arrived),
            () = self.calls.notified() => Heard::Call,
        }
    }

    /// The next event that is there already.
    pub(crate) fn next_event(&mut self) -> Option<Arrived> {
        self.events.try_recv().ok()
    }
}

/// The sessions that are awake.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sessions(Arc<Mutex<HashMap<TapeName, Awake>>>);

#[derive(Debug)]
struct Awake {
    lane: mpsc::Sender<Arrived>,
    calls: Arc<Notify>,
    claim: Arc<Claim>,
    places: Places,
    /// How many senders the lane has not heard from.
    expected: usize,
    /// How many events the lane has not heard of.
    unheard: usize,
    /// A process that worked on this session died, and what it left is to be taken up.
    is_to_take_up: bool,
    /// The places of what is to be taken up: it waits like any other event.
    seats: Vec<OwnedSemaphorePermit>,
    /// A turn is going on, or can begin.
    works: bool,
    /// The lane is giving its lease back: nobody may count on it.
    releasing: bool,
}

/// The places of those that wait in a session.
#[derive(Debug, Clone)]
struct Places {
    /// For everybody.
    queue: Arc<Semaphore>,
    /// For what must get through although the queue is full.
    spare: Arc<Semaphore>,
}

impl Places {
    fn new(queue: usize) -> Self {
        Self { queue: Arc::new(Semaphore::new(queue)), spare: Arc::new(Semaphore::new(SPARE)) }
    }

    fn take(&self, arrival: &Arrival) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.queue).try_acquire_owned();
        let spare = || Arc::clone(&self.spare).try_acquire_owned().ok();
        place.ok().or_else(|| arrival.gets_through().then(spare).flatten())
    }
}

/// What a new lane is made of.
pub(crate) struct NewLane {
    pub(crate) tape: TapeName,
    pub(crate) claim: Arc<Claim>,
    pub(crate) inbox: Inbox,
}

/// The promise of a session to stay awake until it has heard from the holder.
#[derive(Debug)]
pub(crate) struct Reservation {
    sessions: Sessions,
    tape: TapeName,
    lane: mpsc::Sender<Arrived>,
    /// The claim of the lane to the session's lease.
    pub(crate) claim: Arc<Claim>,
    /// Whether the lease can be taken for the lane together with the event.
    pub(crate) takes_lease: bool,
    places: Places,
    place: Option<OwnedSemaphorePermit>,
    is_sent: bool,
}

impl Sessions {
    /// Reserves a place in a session. A session that was asleep wakes up: its lane is to be begun.
    pub(crate) fn reserve(&self, tape: &TapeName, owner: &Owner, queue: usize) -> (Reservation, Option<NewLane>) {
        let mut awake = self.lock();
        let mut begun = None;
        let session = awake.entry(tape.clone()).or_insert_with(|| {
            // No event is sent that has no place, so there is always room.
            let (lane, events) = mpsc::channel(queue + SPARE);
            let (claim, calls) = (Arc::new(owner.claim(tape)), Arc::new(Notify::new()));
            let inbox = Inbox { events, calls: Arc::clone(&calls) };
            begun = Some(NewLane { tape: tape.clone(), claim: Arc::clone(&claim), inbox });
            Awake {
                lane,
                calls,
                claim,
                places: Places::new(queue),
                expected: 0,
                unheard: 0,
                is_to_take_up: false,
                seats: Vec::new(),
                works: false,
                releasing: false,
            }
        });
        session.expected += 1;
        let reservation = Reservation {
            sessions: self.clone(),
            tape: tape.clone(),
            lane: session.lane.clone(),
            claim: Arc::clone(&session.claim),
            takes_lease: !session.releasing,
            places: session.places.clone(),
            place: None,
            is_sent: false,
        };
        (reservation, begun)
    }

    /// Whether a session that is awake has a turn to do. Nothing is known of one that is asleep.
    pub(crate) fn is_busy(&self, tape: &TapeName) -> Option<bool> {
        self.lock().get(tape).map(|session| session.works || session.unheard > 0)
    }

    /// The lane has a turn to do, or has none.
    pub(crate) fn works(&self, tape: &TapeName, works: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.works = works;
        }
    }

    /// The lane has heard of an event; `works` says whether it has a turn to do now.
    pub(crate) fn heard(&self, tape: &TapeName, works: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.expected = session.expected.saturating_sub(1);
            session.unheard = session.unheard.saturating_sub(1);
            session.works = works;
        }
    }

    /// Whether the lane is to take up what a dead process left. It is told so once.
    pub(crate) fn is_to_take_up(&self, tape: &TapeName) -> bool {
        self.lock().get_mut(tape).is_some_and(|session| std::mem::take(&mut session.is_to_take_up))
    }

    /// The places that were kept for what the lane has taken up now.
    pub(crate) fn take_seats(&self, tape: &TapeName) -> Vec<OwnedSemaphorePermit> {
        self.lock().get_mut(tape).map(|session| std::mem::take(&mut session.seats)).unwrap_or_default()
    }

    fn sends_event(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.unheard += 1;
        }
    }

    /// The lane wants to give its lease back. It may when nobody counts on it; until it says that it is done, nobody
    /// will.
    pub(crate) fn begin_release(&self, tape: &TapeName) -> bool {
        match self.lock().get_mut(tape) {
            Some(session) if session.expected == 0 => {
                session.releasing = true;
                true
            }
            _ => false,
        }
    }

    /// The lane has given its lease back, or has not.
    pub(crate) fn end_release(&self, tape: &TapeName) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.releasing = false;
        }
    }

    /// The lane has nothing to do. Says whether it may end: nobody is about to send it anything.
    pub(crate) fn fall_asleep(&self, tape: &TapeName) -> bool {
        let mut awake = self.lock();
        if awake.get(tape).is_some_and(|session| session.expected > 0 || session.is_to_take_up) {
            return false;
        }
        awake.remove(tape);
        true
    }

    /// A lane does not listen any more: the next event of its session begins another.
    fn forget(&self, tape: &TapeName, lane: &mpsc::Sender<Arrived>) {
        let mut awake = self.lock();
        if awake.get(tape).is_some_and(|session| session.lane.same_channel(lane)) {
            awake.remove(tape);
        }
    }

    /// How many are awake.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, Awake>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Takes a place among the events that wait; says whether there was one for an event that arrives like this.
    pub(crate) fn take_place(&mut self, arrival: &Arrival) -> bool {
        self.place = self.places.take(arrival);
        self.place.is_some()
    }

    /// Hands over an accepted event that has its place.
    pub(crate) fn send(mut self, mut item: Item, lease: Option<Fence>) {
        item.place = self.place.take();
        self.is_sent = true;
        self.sessions.sends_event(&self.tape);
        if self.lane.try_send(Arrived { item: Box::new(item), lease }).is_err() {
            // A lane that does not listen has been ended with its host: the event is on disk, for the next one.
            tracing::warn!(tape = %self.tape, "a session ended before it heard of an event");
            self.sessions.forget(&self.tape, &self.lane);
        }
    }

    /// Has the lane take up what a dead process left: so many events, which have their places before anything new does, as
    /// far as there are places.
    pub(crate) fn take_up(self, count: usize) {
        if let Some(session) = self.sessions.lock().get_mut(&self.tape) {
            session.is_to_take_up = true;
            let free = std::iter::from_fn(|| Arc::clone(&session.places.queue).try_acquire_owned().ok());
            let missing = count.saturating_sub(session.seats.len());
            session.seats.extend(free.take(missing));
        }
    }

    /// Nothing is sent: the lane may be waiting only for this.
    fn leave(&self) {
        if self.lane.is_closed() {
            return self.sessions.forget(&self.tape, &self.lane);
        }
        if let Some(session) = self.sessions.lock().get_mut(&self.tape) {
            session.expected = session.expected.saturating_sub(1);
            session.calls.notify_one();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_sent {
            self.leave();
        }
    }
}

#[cfg(test)]
#[path = "awake_tests.rs"]
mod tests;
