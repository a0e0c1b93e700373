//! What waits to go out, chat by chat and in order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_hooks::contracts::Answer;
use capstan_protocol::{ChannelName, ChatId};
use capstan_tape::OutboxId;
use tokio::sync::watch;

use super::parcel::{Receipt, Row};

/// How many errands may wait for one chat. A session that has more to say waits too.
pub(crate) const WAITING: usize = 64;

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
pub(crate) struct Address {
    pub(crate) channel: ChannelName,
    pub(crate) chat: ChatId,
}

impl Address {
    pub(crate) fn of(row: &Row) -> Self {
        Self { channel: row.message.channel.clone(), chat: row.message.chat_id.clone() }
    }
}

/// A chat that something waits for. It is there exactly as long as a task works on it.
struct Chat {
    errands: VecDeque<(Errand, Place)>,
    /// How many of them count.
    crowd: watch::Sender<usize>,
}

impl Chat {
    fn new() -> Self {
        Self { errands: VecDeque::new(), crowd: watch::Sender::new(0) }
    }

    /// Puts an errand behind the messages that were staged before it. What a dead process left may come late.
    fn insert(&mut self, errand: Errand, place: Place) {
        let id = errand.row();
        let goes_behind = |(other, _): &&(Errand, _)| id.is_some() && other.row() > id;
        let behind = self.errands.iter().rev().take_while(goes_behind).count();
        self.errands.insert(self.errands.len() - behind, (errand, place));
    }
}

/// Whether an errand counts among those that wait for a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Whoever has more to say waits for it.
    Counts,
    /// It takes nobody's place: another process left it behind, or it is owed to a caller that waits.
    Extra,
}

/// Something that is to go out to one chat.
pub(crate) enum Errand {
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

    /// Where to hear how much waits for a chat, if it is too much.
    pub(crate) fn crowd(&self, address: &Address) -> Option<watch::Receiver<usize>> {
        let chats = self.lock();
        let chat = chats.waiting.get(address).filter(|chat| *chat.crowd.borrow() >= WAITING)?;
        Some(chat.crowd.subscribe())
    }

    /// Puts an errand last; says whether nobody works on the chat yet.
    pub(crate) fn put(&self, address: &Address, errand: Errand, place: Place) -> bool {
        let mut chats = self.lock();
        let is_new = !chats.waiting.contains_key(address);
        let chat = chats.waiting.entry(address.clone()).or_insert_with(Chat::new);
        chat.insert(errand, place);
        if place == Place::Counts {
            chat.crowd.send_modify(|count| *count += 1);
        }
        is_new
    }

    /// Puts an errand back that has to wait, to its place in the order. Whoever took it works on the chat.
    pub(crate) fn put_back(&self, address: &Address, errand: Errand, place: Place) {
        if let Some(chat) = self.lock().waiting.get_mut(address) {
            chat.insert(errand, place);
        }
    }

    /// The next errand; when there is none, nobody works on the chat any more.
    pub(crate) fn next(&self, address: &Address) -> Option<(Errand, Place)> {
        let mut chats = self.lock();
        let next = chats.waiting.get_mut(address).and_then(|chat| chat.errands.pop_front());
        if next.is_none() {
            chats.waiting.remove(address);
        }
        next
    }

    /// An errand is done.
    pub(crate) fn done(&self, address: &Address, place: Place) {
        if let Some(chat) = self.lock().waiting.get(address).filter(|_| place == Place::Counts) {
            chat.crowd.send_modify(|count| *count = count.saturating_sub(1));
        }
    }

    /// A message to this chat is left for the next start.
    pub(crate) fn leave(&self, address: &Address) {
        self.lock().left.insert(address.clone());
    }

    pub(crate) fn is_left(&self, address: &Address) -> bool {
        self.lock().left.contains(address)
    }
}
