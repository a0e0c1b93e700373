//! The outbox: what was committed with an outcome goes out, in order per chat, until its fate is known.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::{Answer, Channel, Fate};
use capstan_protocol::{ChannelName, ChatId};
use capstan_tape::{Batch, Fact, OutboxId, OutboxStatus};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::delivery::{SEND_DEADLINE, isolated};
use crate::engine::Engine;
use crate::parcel::{CallerGone, Receipt};
pub(crate) use crate::parcel::{Parcel, Row};
use crate::precedence::{BEHIND_OTHERS, Behind};

/// How many errands may wait for one chat. A session that has more to say waits too.
const WAITING: usize = 64;
/// How long the first wait before another attempt is; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long a wait is at most.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// How often a message is tried before it is given up: for about a day, at the longest wait.
const ATTEMPTS: u32 = 300;

/// Why the message of a caller that waited was given up.
pub(crate) const CALLER_GONE: &str = "the caller is gone";

/// Why a message was given up that came when too many waited for its chat.
const NO_ROOM: &str = "too many messages wait for this chat";

/// What waits to go out.
#[derive(Default)]
pub(crate) struct Outbox(Mutex<Chats>);

#[derive(Default)]
struct Chats {
    waiting: HashMap<Address, Chat>,
    /// Chats for which the host stopped with a message unsent: what comes after it waits in the store too.
    left: HashSet<Address>,
}

/// Where messages keep their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Address {
    channel: ChannelName,
    chat: ChatId,
}

impl Address {
    fn of(row: &Row) -> Self {
        Self { channel: row.message.channel.clone(), chat: row.message.chat_id.clone() }
    }
}

/// A chat that something waits for. It is there exactly as long as a task works on it.
struct Chat {
    errands: VecDeque<(Errand, Option<OwnedSemaphorePermit>)>,
    room: Arc<Semaphore>,
}

impl Chat {
    /// Puts an errand behind the messages that were staged before it. What a dead process left may come late.
    fn insert(&mut self, errand: Errand, place: Option<OwnedSemaphorePermit>) {
        let id = errand.row();
        let goes_behind = |(other, _): &&(Errand, _)| id.is_some() && other.row() > id;
        let behind = self.errands.iter().rev().take_while(goes_behind).count();
        self.errands.insert(self.errands.len() - behind, (errand, place));
    }
}

/// What to do when too much waits for a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WithoutRoom {
    /// Wait until there is room.
    Wait,
    /// Give the message up.
    GiveUp,
}

/// Something that is to go out to one chat.
enum Errand {
    /// A message, until its fate is known.
    Send { row: Row, receipt: Option<Receipt> },
    /// The word to a caller that waits, once.
    Answer { answer: Box<Answer>, rows: Vec<Row>, receipt: Receipt },
}

impl Errand {
    /// The row of a message.
    fn row(&self) -> Option<OutboxId> {
        match self {
            Self::Send { row, .. } => Some(row.id),
            Self::Answer { .. } => None,
        }
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Chats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many chats something waits for.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().waiting.len()
    }

    fn room(&self, address: &Address) -> Arc<Semaphore> {
        let room = self.lock().waiting.get(address).map(|chat| Arc::clone(&chat.room));
        room.unwrap_or_else(|| Arc::new(Semaphore::new(WAITING)))
    }

    /// Puts an errand last; says whether nobody works on the chat yet.
    fn put(
        &self,
        address: &Address,
        errand: Errand,
        place: Option<OwnedSemaphorePermit>,
        room: Arc<Semaphore>,
    ) -> bool {
        let mut chats = self.lock();
        if let Some(chat) = chats.waiting.get_mut(address) {
            chat.insert(errand, place);
            return false;
        }
        chats.waiting.insert(address.clone(), Chat { errands: VecDeque::from([(errand, place)]), room });
        true
    }

    /// Puts an errand back that has to wait, to its place in the order. Whoever took it works on the chat.
    fn put_back(&self, address: &Address, errand: Errand, place: Option<OwnedSemaphorePermit>) {
        if let Some(chat) = self.lock().waiting.get_mut(address) {
            chat.insert(errand, place);
        }
    }

    /// The next errand; when there is none, nobody works on the chat any more.
    fn next(&self, address: &Address) -> Option<(Errand, Option<OwnedSemaphorePermit>)> {
        let mut chats = self.lock();
        let next = chats.waiting.get_mut(address).and_then(|chat| chat.errands.pop_front());
        if next.is_none() {
            chats.waiting.remove(address);
        }
        next
    }

    /// A message to this chat is left for the next start.
    fn leave(&self, address: &Address) {
        self.lock().left.insert(address.clone());
    }

    fn is_left(&self, address: &Address) -> bool {
        self.lock().left.contains(address)
    }
}

impl Engine {
    /// Sends a parcel on its way, as soon as there is room for it.
    pub(crate) async fn deliver(self: &Arc<Self>, parcel: Parcel) {
        self.deliver_or(parcel, WithoutRoom::Wait).await;
    }

    /// Sends a parcel on its way. Where there is no room its messages are given up: whoever sent the event waits to hear
    /// that it was accepted, and with it everybody behind.
    pub(crate) async fn deliver_at_once(self: &Arc<Self>, parcel: Parcel) {
        self.deliver_or(parcel, WithoutRoom::GiveUp).await;
    }

    async fn deliver_or(self: &Arc<Self>, mut parcel: Parcel, without_room: WithoutRoom) {
        // Whoever waits is where the event came from, wherever its answer is sent.
        let channel = parcel.inbound.source.clone();
        parcel.served.outbounds.extend(parcel.rows.iter().map(|row| row.message.clone()));
        let waits = self.services.channel(&channel).is_some_and(|channel| channel.capabilities().caller_waits);
        let answer = waits.then(|| Box::new(parcel.answer(&channel)));
        let address = Address { channel: channel.clone(), chat: parcel.inbound.chat_id() };
        let receipt = Receipt::new(parcel.caller, parcel.served);
        let (own, others): (Vec<Row>, Vec<Row>) =
            parcel.rows.into_iter().partition(|row| waits && row.message.channel == channel);
        if let Some(answer) = answer {
            let errand = Errand::Answer { answer, rows: own, receipt: receipt.clone() };
            self.run_errand(address, errand, without_room).await;
        }
        for row in others {
            let address = Address::of(&row);
            self.run_errand(address, Errand::Send { row, receipt: Some(receipt.clone()) }, without_room).await;
        }
    }

    /// Sends messages on their way that another process left behind, however many they are: no chat waits for another's,
    /// and nothing new goes before them.
    pub(crate) fn deliver_left_behind(self: &Arc<Self>, rows: Vec<Row>) {
        for row in rows {
            let address = Address::of(&row);
            let room = self.outbox.room(&address);
            self.put_errand(address, Errand::Send { row, receipt: None }, None, room);
        }
    }

    async fn run_errand(self: &Arc<Self>, address: Address, errand: Errand, without_room: WithoutRoom) {
        let room = self.outbox.room(&address);
        let place = match (Arc::clone(&room).try_acquire_owned(), without_room) {
            (Ok(place), _) => place,
            (Err(_), WithoutRoom::GiveUp) => return self.give_up(errand).await,
            (Err(_), WithoutRoom::Wait) => tokio::select! {
                Ok(place) = Arc::clone(&room).acquire_owned() => place,
                // It waits in the store, for the next start.
                () = self.stopping.cancelled() => return self.outbox.leave(&address),
            },
        };
        self.put_errand(address, errand, Some(place), room);
    }

    fn put_errand(
        self: &Arc<Self>,
        address: Address,
        errand: Errand,
        place: Option<OwnedSemaphorePermit>,
        room: Arc<Semaphore>,
    ) {
        if self.outbox.put(&address, errand, place, room) {
            let engine = Arc::clone(self);
            self.tasks.spawn(async move {
                let mut behind = Behind::default();
                while let Some((errand, place)) = engine.outbox.next(&address) {
                    match engine.run(&address, errand).await {
                        None => behind = Behind::default(),
                        Some(errand) => engine.wait_behind(&address, errand, place, &mut behind).await,
                    }
                }
            });
        }
    }

    /// Runs an errand; gives it back when it has to wait for those of other processes.
    async fn run(self: &Arc<Self>, address: &Address, errand: Errand) -> Option<Errand> {
        match errand {
            Errand::Answer { answer, rows, receipt } => self.answer(&answer, rows, &receipt).await,
            Errand::Send { .. } if self.outbox.is_left(address) => {}
            Errand::Send { row, receipt } if self.is_behind_others(&row).await => {
                return Some(Errand::Send { row, receipt });
            }
            Errand::Send { row, receipt } => self.send(address, row, receipt).await,
        }
        None
    }

    /// Puts a message back and waits before it is looked at again. Whoever waits for it in this process is not made to
    /// wait for long.
    async fn wait_behind(
        &self,
        address: &Address,
        mut errand: Errand,
        place: Option<OwnedSemaphorePermit>,
        behind: &mut Behind,
    ) {
        if behind.takes_long()
            && let Errand::Send { receipt, .. } = &mut errand
            && let Some(receipt) = receipt.take()
        {
            receipt.undelivered(BEHIND_OTHERS);
        }
        self.outbox.put_back(address, errand, place);
        tokio::select! {
            () = tokio::time::sleep(behind.look_again()) => {}
            // It waits in the store, for the next start.
            () = self.stopping.cancelled() => self.outbox.leave(address),
        }
    }

    async fn give_up(&self, errand: Errand) {
        let (rows, receipt) = match errand {
            Errand::Answer { rows, receipt, .. } => (rows, Some(receipt)),
            Errand::Send { row, receipt } => (vec![row], receipt),
        };
        tracing::warn!(reason = NO_ROOM, "a message was given up");
        if let Some(receipt) = receipt {
            receipt.undelivered(NO_ROOM);
        }
        let status = OutboxStatus::Undelivered { reason: NO_ROOM.to_owned() };
        self.record(rows.into_iter().map(|row| (row, status.clone())).collect()).await;
    }

    /// Answers a caller that waits. There is no second attempt: either it is still there, or it is gone.
    async fn answer(&self, answer: &Answer, rows: Vec<Row>, receipt: &Receipt) {
        let is_gone = answer.event.extensions().get::<CallerGone>().is_some();
        let answered = match self.services.channel(&answer.event.source) {
            Some(channel) if !is_gone => isolated(channel.answer(answer), SEND_DEADLINE).await.map_err(|(why, _)| why),
            _ => Err(CALLER_GONE.to_owned()),
        };
        if let Err(reason) = &answered
            && !is_gone
        {
            tracing::warn!(channel = %answer.event.source, %reason, "a caller could not be answered");
            receipt.undelivered(reason);
        }
        let status = match answered {
            Ok(()) => OutboxStatus::sent(),
            Err(reason) => OutboxStatus::Undelivered { reason },
        };
        self.record(rows.into_iter().map(|row| (row, status.clone())).collect()).await;
    }

    /// Sends one message until its fate is known, or the host stops. Whoever waits in this process waits for the first
    /// attempt.
    async fn send(&self, address: &Address, mut row: Row, mut receipt: Option<Receipt>) {
        loop {
            let (reason, fate) = match self.attempt(&row).await {
                Ok(()) => {
                    let status = OutboxStatus::Sent { possible_duplicate: row.fate_unknown };
                    return self.record_fate(row, status, receipt).await;
                }
                Err(failed) => failed,
            };
            tracing::warn!(channel = %row.message.channel, %reason, "a message could not be delivered");
            if let Some(receipt) = receipt.take() {
                receipt.undelivered(&reason);
            }
            row.attempts += 1;
            row.fate_unknown |= fate == Fate::Unknown;
            if fate == Fate::Hopeless || row.attempts >= ATTEMPTS {
                return self.record_fate(row, OutboxStatus::Undelivered { reason }, receipt).await;
            }
            let status =
                OutboxStatus::Waiting { attempts: row.attempts, fate_unknown: row.fate_unknown, reason: Some(reason) };
            let wait = backoff(row.attempts);
            self.record(vec![(row.clone(), status)]).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // It waits in the store, for the next start.
                () = self.stopping.cancelled() => return self.outbox.leave(address),
            }
        }
    }

    async fn attempt(&self, row: &Row) -> Result<(), (String, Fate)> {
        let Some(channel) = self.services.channel(&row.message.channel) else {
            return Err((format!("there is no channel {}", row.message.channel), Fate::Hopeless));
        };
        let marked = row.fate_unknown.then(|| row.message.clone().possible_duplicate());
        isolated(channel.send(marked.as_ref().unwrap_or(&row.message)), SEND_DEADLINE).await
    }

    /// Records what became of messages, and says whether it is on record. If not they still wait in the store, and may be
    /// sent again.
    pub(crate) async fn record(&self, fates: Vec<(Row, OutboxStatus)>) -> bool {
        if fates.is_empty() {
            return true;
        }
        let facts = fates.into_iter().map(|(row, status)| Fact::Delivery { id: row.id, status }).collect();
        let recorded = self.services.tapes.store().commit(Batch { facts, ..Batch::new() }).await;
        if let Err(error) = &recorded {
            tracing::warn!(%error, "the fate of a message could not be recorded");
        }
        recorded.is_ok()
    }
}

/// How long to wait after so many attempts: twice as long each time, and never for everybody at the same moment.
fn backoff(attempts: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX));
    // A new state is seeded at random.
    let jitter = u32::try_from(RandomState::new().build_hasher().finish() % 1000).unwrap_or_default();
    doubled.min(LONGEST_WAIT) * (500 + jitter) / 1000
}

/// Whether a process with these channels listening may send what was left for one: it listens here, or nobody ever
/// will again.
pub(crate) fn may_send(channel: Option<&Arc<dyn Channel>>, listens: bool) -> bool {
    listens || channel.is_some_and(|channel| channel.capabilities().caller_waits)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_WAIT, backoff};
    use std::time::Duration;

    #[test]
    fn x03_the_wait_doubles_with_jitter_and_has_an_end() {
        for _ in 0..100 {
            let within = |attempts, seconds: f64| {
                let waited = backoff(attempts).as_secs_f64();
                assert!((seconds * 0.5..=seconds * 1.5).contains(&waited), "{attempts}: {waited}");
            };
            within(1, 1.0);
            within(2, 2.0);
            within(5, 16.0);
            assert!(backoff(300) <= LONGEST_WAIT * 3 / 2);
            assert!(backoff(u32::MAX) >= Duration::from_mins(2));
        }
    }
}
