//! The sessions that are awake: each has a lane, a task of its own, from its first event until it is idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use capstan_tape::Fence;
use capstan_turn::Arrival;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::item::Item;
use crate::lease::{Claim, Owner};

/// How many more events may wait that must get through although the queue is full.
const SPARE: usize = 8;

/// What a lane is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// An event was accepted, perhaps together with the lease.
    Event(Box<Item>, Option<Fence>),
    /// A process that worked on this session died: what it left is to be taken up.
    TakeUp,
    /// Somebody who wanted to send something did not.
    Nothing,
}

/// The sessions that are awake.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sessions(Arc<Mutex<HashMap<TapeName, Awake>>>);

#[derive(Debug)]
struct Awake {
    lane: mpsc::UnboundedSender<Message>,
    claim: Arc<Claim>,
    places: Places,
    /// How many senders the lane has not heard from.
    expected: usize,
    /// How many events the lane has not heard of.
    unheard: usize,
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
    pub(crate) inbox: mpsc::UnboundedReceiver<Message>,
}

/// The promise of a session to stay awake until it has heard from the holder.
#[derive(Debug)]
pub(crate) struct Reservation {
    sessions: Sessions,
    tape: TapeName,
    lane: mpsc::UnboundedSender<Message>,
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
            // Bounded by the places, without which no event is sent.
            let (lane, inbox) = mpsc::unbounded_channel();
            let claim = Arc::new(owner.claim(tape));
            begun = Some(NewLane { tape: tape.clone(), claim: Arc::clone(&claim), inbox });
            Awake { lane, claim, places: Places::new(queue), expected: 0, unheard: 0, works: false, releasing: false }
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

    /// The lane has heard from a sender, perhaps of an event; `works` says whether it has a turn to do now.
    pub(crate) fn heard(&self, tape: &TapeName, of_event: bool, works: bool) {
        if let Some(session) = self.lock().get_mut(tape) {
            session.expected = session.expected.saturating_sub(1);
            session.unheard = session.unheard.saturating_sub(usize::from(of_event));
            session.works = works;
        }
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
        if awake.get(tape).is_some_and(|session| session.expected > 0) {
            return false;
        }
        awake.remove(tape);
        true
    }

    /// A lane does not listen any more: the next event of its session begins another.
    fn forget(&self, tape: &TapeName, lane: &mpsc::UnboundedSender<Message>) {
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
        self.sessions.sends_event(&self.tape);
        self.tell(Message::Event(Box::new(item), lease));
    }

    /// Has the lane take up what a dead process left.
    pub(crate) fn take_up(mut self) {
        self.tell(Message::TakeUp);
    }

    fn tell(&mut self, message: Message) {
        self.is_sent = true;
        if self.lane.send(message).is_err() {
            // A lane that does not listen has been ended with its host: the event is on disk, for the next one.
            tracing::warn!(tape = %self.tape, "a session ended before it heard of an event");
            self.sessions.forget(&self.tape, &self.lane);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_sent {
            self.tell(Message::Nothing);
        }
    }
}
