//! Queues of delivery jobs, one for each chat, in order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{ChannelName, ChatId};
use capstan_tape::OutboxId;
use tokio::sync::watch;

use super::event_delivery::{LocalCallerReceipt, OutboxRow};

/// Maximum number of jobs queued for one chat. A session with further messages waits (backpressure).
pub(crate) const MAX_QUEUED_JOBS: usize = 64;

/// Queues of delivery jobs.
#[derive(Default)]
pub(crate) struct ChatQueues(Mutex<ChatQueueMap>);

#[derive(Default)]
struct ChatQueueMap {
    queues: HashMap<ChatAddress, ChatQueue>,
    /// Chats with an unsent message when the host stopped: later messages to them stay in the store too.
    abandoned: HashSet<ChatAddress>,
}

/// Address of a chat, within which messages keep their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChatAddress {
    /// Channel of the chat.
    pub channel: ChannelName,
    /// Chat on that channel.
    pub chat: ChatId,
}

impl ChatAddress {
    pub(crate) fn from_row(row: &OutboxRow) -> Self {
        Self { channel: row.message.channel.clone(), chat: row.message.chat_id.clone() }
    }
}

/// Queue of one chat. It exists exactly as long as a task serves it.
struct ChatQueue {
    jobs: VecDeque<(DeliveryJob, DepthAccounting)>,
    /// Number of counted jobs.
    depth: watch::Sender<usize>,
}

impl ChatQueue {
    fn new() -> Self {
        Self { jobs: VecDeque::new(), depth: watch::Sender::new(0) }
    }

    /// Inserts a job after the messages that were staged before it. Orphaned messages may arrive late.
    fn insert(&mut self, job: DeliveryJob, accounting: DepthAccounting) {
        let id = job.outbox_id();
        let is_later = |(other, _): &&(DeliveryJob, _)| id.is_some() && other.outbox_id() > id;
        let later = self.jobs.iter().rev().take_while(is_later).count();
        self.jobs.insert(self.jobs.len() - later, (job, accounting));
    }
}

/// Accounting of a job in the queue depth of its chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepthAccounting {
    /// Counted: a session with further messages waits for the job.
    Counted,
    /// Not counted: an orphaned message, or a reply owed to a waiting caller.
    Exempt,
}

/// Treatment of a message to a chat whose queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOverflow {
    /// Enqueue it: the sender waits for capacity before it sends more.
    Enqueue,
    /// Give it up: a wait would block the source of the event, and every event behind it.
    GiveUp,
}

/// Delivery to one chat.
pub(crate) enum DeliveryJob {
    /// A message, until its fate is known.
    Send { row: OutboxRow, receipt: Option<LocalCallerReceipt> },
    /// The reply to a waiting caller, attempted once.
    Reply { reply: Box<ChannelReply>, rows: Vec<OutboxRow>, receipt: LocalCallerReceipt, is_caller_disconnected: bool },
}

impl DeliveryJob {
    /// The row of a message job.
    fn outbox_id(&self) -> Option<OutboxId> {
        match self {
            Self::Send { row, .. } => Some(row.id),
            Self::Reply { .. } => None,
        }
    }
}

impl ChatQueues {
    fn lock(&self) -> MutexGuard<'_, ChatQueueMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of chats with pending deliveries.
    pub(crate) fn queue_count(&self) -> usize {
        self.lock().queues.len()
    }

    /// Receiver of the depth of a chat's queue, if the queue is full.
    pub(crate) fn subscribe_if_full(&self, address: &ChatAddress) -> Option<watch::Receiver<usize>> {
        let chats = self.lock();
        let chat = chats.queues.get(address).filter(|chat| *chat.depth.borrow() >= MAX_QUEUED_JOBS)?;
        Some(chat.depth.subscribe())
    }

    /// Enqueues a job. Returns true if no task serves the chat yet.
    pub(crate) fn enqueue(&self, address: &ChatAddress, job: DeliveryJob, accounting: DepthAccounting) -> bool {
        let mut chats = self.lock();
        let is_new = !chats.queues.contains_key(address);
        let chat = chats.queues.entry(address.clone()).or_insert_with(ChatQueue::new);
        chat.insert(job, accounting);
        if accounting == DepthAccounting::Counted {
            chat.depth.send_modify(|count| *count += 1);
        }
        is_new
    }

    /// Returns a job that has to wait to its position in the queue.
    pub(crate) fn requeue(&self, address: &ChatAddress, job: DeliveryJob, accounting: DepthAccounting) {
        if let Some(chat) = self.lock().queues.get_mut(address) {
            chat.insert(job, accounting);
        }
    }

    /// Takes the next job; without one the queue is removed, and its task ends.
    pub(crate) fn next_job(&self, address: &ChatAddress) -> Option<(DeliveryJob, DepthAccounting)> {
        let mut chats = self.lock();
        let next = chats.queues.get_mut(address).and_then(|chat| chat.jobs.pop_front());
        if next.is_none() {
            chats.queues.remove(address);
        }
        next
    }

    /// Counts a job as done.
    pub(crate) fn finish_job(&self, address: &ChatAddress, accounting: DepthAccounting) {
        if let Some(chat) = self.lock().queues.get(address).filter(|_| accounting == DepthAccounting::Counted) {
            chat.depth.send_modify(|count| *count = count.saturating_sub(1));
        }
    }

    /// Leaves the messages to this chat in the store for the next start.
    pub(crate) fn abandon(&self, address: &ChatAddress) {
        self.lock().abandoned.insert(address.clone());
    }

    pub(crate) fn is_abandoned(&self, address: &ChatAddress) -> bool {
        self.lock().abandoned.contains(address)
    }
}
