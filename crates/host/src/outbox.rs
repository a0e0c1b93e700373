//! The outbox: what was committed with an outcome goes out, in order per chat, until its fate is known.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::{Answer, Channel, Fate};
use capstan_protocol::{ChannelName, ChatId};
use capstan_tape::{Batch, Fact, OutboxStatus};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::backoff::Backoff;
use crate::delivery::{SEND_DEADLINE, isolated};
use crate::engine::Engine;
use crate::parcel::{CallerGone, Receipt};
pub(crate) use crate::parcel::{Parcel, Row};

/// How many errands may wait for one chat. A session that has more to say waits too.
const WAITING: usize = 64;
/// How long to wait before another attempt.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) };
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
    Send { row: Row, receipt: Receipt },
    /// The word to a caller that waits, once.
    Answer { answer: Box<Answer>, rows: Vec<Row>, receipt: Receipt },
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
            chat.errands.push_back((errand, place));
            return false;
        }
        chats.waiting.insert(address.clone(), Chat { errands: VecDeque::from([(errand, place)]), room });
        true
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
        let waits = self.services.caller_waits(&channel);
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
            self.run_errand(address, Errand::Send { row, receipt: receipt.clone() }, without_room).await;
        }
    }

    /// Sends messages on their way that another process left behind, however many they are: no chat waits for another's,
    /// and nothing new goes before them.
    pub(crate) fn deliver_left_behind(self: &Arc<Self>, rows: Vec<Row>) {
        let nobody = Receipt::of_nobody();
        for row in rows {
            let address = Address::of(&row);
            let room = self.outbox.room(&address);
            self.put_errand(address, Errand::Send { row, receipt: nobody.clone() }, None, room);
        }
    }

    async fn run_errand(self: &Arc<Self>, address: Address, errand: Errand, without_room: WithoutRoom) {
        let room = self.outbox.room(&address);
        let place = match (Arc::clone(&room).try_acquire_owned(), without_room, &errand) {
            (Ok(place), _, _) => Some(place),
            // There are no more of these than callers that wait, and each of them must hear.
            (Err(_), WithoutRoom::GiveUp, Errand::Answer { .. }) => None,
            (Err(_), WithoutRoom::GiveUp, Errand::Send { .. }) => return self.give_up(errand).await,
            (Err(_), WithoutRoom::Wait, _) => tokio::select! {
                Ok(place) = Arc::clone(&room).acquire_owned() => Some(place),
                // It waits in the store, for the next start.
                () = self.stopping.cancelled() => return self.outbox.leave(&address),
            },
        };
        self.put_errand(address, errand, place, room);
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
                while let Some((errand, _place)) = engine.outbox.next(&address) {
                    engine.run(&address, errand).await;
                }
            });
        }
    }

    async fn run(&self, address: &Address, errand: Errand) {
        match errand {
            Errand::Answer { answer, rows, receipt } => self.answer(&answer, rows, &receipt).await,
            Errand::Send { .. } if self.outbox.is_left(address) => {}
            Errand::Send { row, receipt } => self.send(address, row, receipt).await,
        }
    }

    async fn give_up(&self, errand: Errand) {
        let (rows, receipt) = match errand {
            Errand::Answer { rows, receipt, .. } => (rows, receipt),
            Errand::Send { row, receipt } => (vec![row], receipt),
        };
        tracing::warn!(reason = NO_ROOM, "a message was given up");
        receipt.undelivered(NO_ROOM);
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
    async fn send(&self, address: &Address, mut row: Row, receipt: Receipt) {
        let mut receipt = Some(receipt);
        loop {
            let (reason, fate) = match self.attempt(&row).await {
                Ok(()) => {
                    let status = OutboxStatus::Sent { possible_duplicate: row.fate_unknown };
                    return self.record(vec![(row, status)]).await;
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
                return self.record(vec![(row, OutboxStatus::Undelivered { reason })]).await;
            }
            let status =
                OutboxStatus::Waiting { attempts: row.attempts, fate_unknown: row.fate_unknown, reason: Some(reason) };
            let wait = BACKOFF.after(row.attempts);
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

    /// Records what became of messages. When that fails they still wait in the store, and may be sent again.
    async fn record(&self, fates: Vec<(Row, OutboxStatus)>) {
        if fates.is_empty() {
            return;
        }
        let facts = fates.into_iter().map(|(row, status)| Fact::Delivery { id: row.id, status }).collect();
        if let Err(error) = self.services.tapes.store().commit(Batch { facts, ..Batch::new() }).await {
            tracing::warn!(%error, "the fate of a message could not be recorded");
        }
    }
}

/// Whether a process with these channels listening may send what was left for one: it listens here, or nobody ever
/// will again.
pub(crate) fn may_send(channel: Option<&Arc<dyn Channel>>, listens: bool) -> bool {
    listens || channel.is_some_and(|channel| channel.capabilities().caller_waits)
}
