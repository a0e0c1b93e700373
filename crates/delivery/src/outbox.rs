//! Outbox: delivers committed messages in order per chat, until they are sent or given up.
//!
//! # Design
//!
//! [`Outbox`] is the service and its own handle. Messages are committed as rows before they are enqueued here. Each chat
//! with pending deliveries has a queue and a task that serves it. A message is retried with backoff until it is sent or
//! given up; the reply to a waiting caller is attempted once. Full queues make sessions wait (backpressure).
//!
//! # Invariants
//!
//! - Messages to one chat are sent in the order of their commits, across all processes of the workspace. Exceptions:
//!   held and resent messages, and orphaned messages that no process here may deliver; see
//!   [`ordering`](super::ordering).
//! - A message whose earlier attempt may have succeeded is sent with a mark of a possible duplicate.
//! - When the host stops, unsent messages stay in the store, and so do later messages to the same chats.
//! - A panic or a hang of a channel affects only deliveries to the same chat.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{ChannelError, ChannelErrorKind, ChannelReply, IntakeError};
use capstan_protocol::{Event, RetryBackoff, WorkspaceId};
use capstan_tape::{
    Batch, CommitDurability, Fact, OutboxRecord, OutboxStatus, RESTORED_OWNER, StoreError, TapeRepository,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel_directory::ChannelDirectory;
use super::chat_queue::{ChatAddress, ChatQueues, DeliveryJob, DepthAccounting, MAX_QUEUED_JOBS, QueueOverflow};
use super::event_delivery::{EventDelivery, LocalCallerReceipt, OutboxRow};
use super::held_messages::{HELD_REASON, StalePolicy, hold_message};
use super::isolated_channel::{CHANNEL_SEND_TIMEOUT, STREAM_EVENT_TIMEOUT, call_catching_panics, call_with_deadline};
use super::media::{adapt_message, adapt_reply};
use super::ordering_wait::{BEHIND_OTHERS_REASON, OrderingWait};

/// Backoff between attempts to send a message.
const SEND_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_mins(5) };
/// Maximum number of attempts to send a message: about a day at the maximum delay.
const MAX_SEND_ATTEMPTS: u32 = 300;

/// Backoff between attempts to record delivery results.
const RECORD_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(20), max_delay: Duration::from_secs(1) };

/// Reason for not delivering a message whose waiting caller has disconnected.
pub const CALLER_DISCONNECTED_REASON: &str = "the caller has disconnected";

/// Reason for giving up a reply that was not read before the host aborted.
const CALLER_TOO_SLOW_REASON: &str = "the caller had not read it before the host stopped";

/// Reason reported for a message that stays in the store because the host stops.
const HOST_STOPPED_REASON: &str = "the host stopped before it could be sent";

/// Reason for giving up a message because the queue of its chat was full.
const QUEUE_FULL_REASON: &str = "the queue of this chat is full";

/// Identity of this process, and liveness of other processes, as owners of outbox rows.
pub trait OwnerRegistry: Send + Sync {
    /// Name of this process, as recorded in its rows.
    fn own_name(&self) -> &str;

    /// Returns true if another owner is known to be dead.
    fn is_known_dead(&self, owner: &str) -> bool;

    /// Returns true if the rows and events of this owner are orphaned: it is known to be dead, the record comes from a
    /// version before ownership was recorded, or from a restored copy.
    fn has_orphans_of(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| owner == RESTORED_OWNER || self.is_known_dead(owner))
    }
}

/// Options of an [`Outbox`].
pub struct OutboxOptions {
    /// The workspace whose messages it delivers.
    pub workspace_id: WorkspaceId,
    /// Owners of rows: this process, and the liveness of others.
    pub owners: Arc<dyn OwnerRegistry>,
    /// Decides which pending messages are held for the operator.
    pub stale_policy: StalePolicy,
    /// Tracks its tasks.
    pub tasks: TaskTracker,
    /// Fires when the host stops: messages that cannot be sent now stay in the store for the next start.
    pub stop_token: CancellationToken,
    /// Fires when the host aborts: the outbox waits neither for channels nor for the store.
    pub abort_token: CancellationToken,
}

/// Outbox of a host. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<OutboxState>);

/// Shared state of the clones of an [`Outbox`].
pub struct OutboxState {
    pub(super) options: OutboxOptions,
    pub(super) channels: ChannelDirectory,
    pub(super) tapes: TapeRepository,
    queues: ChatQueues,
}

impl std::ops::Deref for Outbox {
    type Target = OutboxState;

    fn deref(&self) -> &OutboxState {
        &self.0
    }
}

impl Outbox {
    /// Outbox that sends to these channels.
    pub fn new(options: OutboxOptions, channels: ChannelDirectory, tapes: TapeRepository) -> Self {
        Self(Arc::new(OutboxState { options, channels, tapes, queues: ChatQueues::default() }))
    }

    /// Enqueues the delivery of an event: the reply to its waiting caller, with the messages to the caller's channel, and
    /// every other message. Returns the chats of the delivery. A session that sends more messages to them must first
    /// [wait for capacity](Self::wait_for_capacity).
    pub fn enqueue(&self, delivery: EventDelivery, overflow: QueueOverflow) -> Vec<ChatAddress> {
        let EventDelivery { mut reply, rows, is_caller_disconnected, receipt } = delivery;
        let must_give_up =
            |chat: &ChatAddress| overflow == QueueOverflow::GiveUp && self.queues.subscribe_if_full(chat).is_some();
        // The caller waits at the source of the event, wherever the reply is sent.
        let channel = reply.event.source.clone();
        let has_waiting_caller = self.channels.has_waiting_caller(&channel);
        let (own, others): (Vec<OutboxRow>, Vec<OutboxRow>) =
            rows.into_iter().partition(|row| has_waiting_caller && row.message.channel == channel);
        let mut chats = Vec::new();
        if has_waiting_caller {
            let chat = ChatAddress { channel: channel.clone(), chat: reply.event.chat_id() };
            reply.messages.retain(|message| message.channel == channel);
            reply.messages.extend(own.iter().map(|row| row.message.clone()));
            let (reply, receipt) = (Box::new(reply), receipt.clone());
            let job = DeliveryJob::Reply { reply, rows: own, receipt, is_caller_disconnected };
            // A reply cannot be given up, so it is exempt from the depth instead. Exempt jobs are bounded by the number of
            // waiting callers.
            let accounting = if must_give_up(&chat) { DepthAccounting::Exempt } else { DepthAccounting::Counted };
            self.enqueue_job(chat.clone(), job, accounting);
            chats.push(chat);
        }
        for row in others {
            let is_caller_disconnected =
                is_caller_disconnected && self.channels.has_waiting_caller(&row.message.channel);
            let (row, receipt) = (OutboxRow { is_caller_disconnected, ..row }, Some(receipt.clone()));
            let chat = ChatAddress::from_row(&row);
            if must_give_up(&chat) {
                self.give_up_message(row, receipt);
            } else {
                self.enqueue_job(chat.clone(), DeliveryJob::Send { row, receipt }, DepthAccounting::Counted);
                chats.push(chat);
            }
        }
        chats
    }

    /// Waits until the queues of these chats have capacity, or the host stops.
    pub async fn wait_for_capacity(&self, addresses: &[ChatAddress]) {
        for address in addresses {
            let Some(mut depth) = self.queues.subscribe_if_full(address) else { continue };
            tokio::select! {
                // An error means that the queue was removed because it is empty.
                _ = depth.wait_for(|count| *count < MAX_QUEUED_JOBS) => {}
                () = self.options.stop_token.cancelled() => return,
            }
        }
    }

    /// Notifies a waiting caller that the outcome of its event is delayed by a store failure. Returns without waiting
    /// for the channel.
    pub fn notify_delayed(&self, event: &InboundEvent, reason: IntakeError) {
        if !self.channels.has_waiting_caller(&event.source) {
            return;
        }
        let Some(channel) = self.channels.get(&event.source).map(Arc::clone) else { return };
        let event = event.clone();
        self.options.tasks.spawn(async move {
            let notified = call_with_deadline(channel.notify_delayed(&event, &reason), STREAM_EVENT_TIMEOUT).await;
            if let Err((reason, _)) = notified {
                tracing::warn!(channel = %channel.name(), %reason, "cannot notify a caller of the store failure");
            }
        });
    }

    /// Number of chats with pending deliveries.
    pub fn queue_count(&self) -> usize {
        self.queues.queue_count()
    }

    /// Enqueues an orphaned message regardless of the queue depth: chats do not wait for each other, and new messages
    /// are queued behind it.
    pub(super) fn enqueue_orphaned(&self, row: OutboxRow) {
        let address = ChatAddress::from_row(&row);
        self.enqueue_job(address, DeliveryJob::Send { row, receipt: None }, DepthAccounting::Exempt);
    }

    /// Enqueues a job, and starts the task of its chat if there is none.
    fn enqueue_job(&self, address: ChatAddress, job: DeliveryJob, accounting: DepthAccounting) {
        if !self.queues.enqueue(&address, job, accounting) {
            return;
        }
        let outbox = self.clone();
        self.options.tasks.spawn(async move {
            let mut ordering = OrderingWait::default();
            while let Some((job, accounting)) = outbox.queues.next_job(&address) {
                match job {
                    DeliveryJob::Reply { reply, rows, receipt, is_caller_disconnected } => {
                        outbox.reply_to_caller(&reply, rows, &receipt, is_caller_disconnected).await;
                    }
                    DeliveryJob::Send { receipt, .. } if outbox.queues.is_abandoned(&address) => report_unsent(receipt),
                    DeliveryJob::Send { row, receipt } if outbox.has_earlier_messages(&row, &ordering).await => {
                        outbox.requeue_and_wait(&address, row, receipt, accounting, &mut ordering).await;
                        continue;
                    }
                    DeliveryJob::Send { row, receipt } => outbox.send_message(&address, row, receipt).await,
                }
                ordering = OrderingWait::default();
                outbox.queues.finish_job(&address, accounting);
            }
        });
    }

    /// Requeues a message and waits before the next poll. When the wait is overdue, the local caller gets a delivery error.
    async fn requeue_and_wait(
        &self,
        address: &ChatAddress,
        row: OutboxRow,
        mut receipt: Option<LocalCallerReceipt>,
        accounting: DepthAccounting,
        ordering: &mut OrderingWait,
    ) {
        if ordering.is_overdue()
            && let Some(receipt) = receipt.take()
        {
            receipt.add_delivery_error(BEHIND_OTHERS_REASON);
        }
        self.queues.requeue(address, DeliveryJob::Send { row, receipt }, accounting);
        tokio::select! {
            () = tokio::time::sleep(ordering.next_poll_delay()) => {}
            // The message stays in the store for the next start.
            () = self.options.stop_token.cancelled() => self.queues.abandon(address),
        }
    }

    /// Marks a message as undelivered, in a task of its own: the code that enqueues must not wait for the store. Later
    /// messages to the chat wait for the record.
    fn give_up_message(&self, row: OutboxRow, receipt: Option<LocalCallerReceipt>) {
        let (channel, chat) = (&row.message.channel, &row.message.chat_id);
        tracing::warn!(%channel, %chat, reason = QUEUE_FULL_REASON, "gave up a message");
        if let Some(receipt) = &receipt {
            receipt.add_delivery_error(QUEUE_FULL_REASON);
        }
        let (outbox, status) = (self.clone(), OutboxStatus::Undelivered { reason: QUEUE_FULL_REASON.to_owned() });
        self.options
            .tasks
            .spawn(async move { outbox.record_deliveries_with_retry(vec![(row, status)], receipt).await });
    }

    /// Replies to a waiting caller, in one attempt: the caller is either connected or not. A connected caller may take
    /// its time: its channel notices when it disconnects, and deliveries to other chats do not wait for it.
    async fn reply_to_caller(
        &self,
        reply: &ChannelReply,
        rows: Vec<OutboxRow>,
        receipt: &LocalCallerReceipt,
        is_caller_disconnected: bool,
    ) {
        let result = match self.channels.get(&reply.event.source) {
            Some(channel) if !is_caller_disconnected => tokio::select! {
                biased;
                result = call_catching_panics(async {
                    let adapted = adapt_reply(reply, channel.capabilities(), &self.tapes).await;
                    channel.reply(&*adapted.map_err(|error| ChannelError::new(channel.name(), error.to_string()))?).await
                }) => result,
                () = self.options.abort_token.cancelled() => Err((CALLER_TOO_SLOW_REASON.to_owned(), ChannelErrorKind::Permanent)),
            },
            _ => Err((CALLER_DISCONNECTED_REASON.to_owned(), ChannelErrorKind::Permanent)),
        };
        if let Err((reason, error_kind)) = &result
            && !is_caller_disconnected
        {
            let channel = &reply.event.source;
            match error_kind {
                // Usually a disconnect. Not a host error, and frequent, so only info; the store records each one.
                ChannelErrorKind::Permanent => {
                    tracing::info!(%channel, %reason, "cannot reply to a caller; not retried");
                }
                ChannelErrorKind::NotSent | ChannelErrorKind::Unknown => {
                    tracing::warn!(%channel, %reason, "cannot reply to a caller");
                }
            }
            receipt.add_delivery_error(reason);
        }
        let delivery_result = |row: OutboxRow| {
            let status = match &result {
                Ok(()) => OutboxStatus::Sent { possible_duplicate: row.may_have_been_sent },
                // Already recorded as undelivered, or recorded during the recovery of orphaned messages.
                Err(_) if reply.is_duplicate => return None,
                Err((reason, _)) => OutboxStatus::Undelivered { reason: reason.clone() },
            };
            Some((row, status))
        };
        let results: Vec<(OutboxRow, OutboxStatus)> = rows.into_iter().filter_map(delivery_result).collect();
        // No need to be durable: if the record is lost, the same event id gets the reply again, which is harmless.
        if let Err(error) = self.record_deliveries(results.clone(), CommitDurability::Ordered).await
            && error.is_transient()
        {
            // In a task of its own, so that the next reply does not wait for it.
            let outbox = self.clone();
            self.options.tasks.spawn(async move { outbox.record_deliveries_with_retry(results, None).await });
        }
    }

    /// Returns true if a caller that repeats the event may get this message: no caller has received it, and no live
    /// process will send it.
    pub fn may_return_to_caller(&self, event: &Event, row: &OutboxRecord) -> bool {
        let is_unsent = match &row.status {
            OutboxStatus::Undelivered { .. } | OutboxStatus::Held { .. } | OutboxStatus::Acknowledged { .. } => true,
            // Only if the process that owned it has died.
            OutboxStatus::Waiting { .. } => self.options.owners.has_orphans_of(row.owner.as_deref()),
            OutboxStatus::Sent { .. } => false,
        };
        is_unsent && row.message.channel == event.source && self.channels.has_waiting_caller(&event.source)
    }

    /// Sends one message, with retries until it is sent, given up or the host stops. A local caller is released after
    /// the first attempt.
    async fn send_message(&self, address: &ChatAddress, mut row: OutboxRow, mut receipt: Option<LocalCallerReceipt>) {
        loop {
            if self.options.stale_policy.is_stale(&row) {
                let status = hold_message(&row, HELD_REASON);
                if let Some(receipt) = &receipt {
                    receipt.add_delivery_error(HELD_REASON);
                }
                return self.record_deliveries_with_retry(vec![(row, status)], receipt).await;
            }
            let result = tokio::select! {
                biased;
                result = self.attempt_send(&row) => result,
                // The attempt may have succeeded; the process that adopts the message assumes so too.
                () = self.options.abort_token.cancelled() => {
                    report_unsent(receipt);
                    return self.queues.abandon(address);
                }
            };
            let (reason, error_kind) = match result {
                Ok(()) => {
                    let status = OutboxStatus::Sent { possible_duplicate: row.may_have_been_sent };
                    return self.record_deliveries_with_retry(vec![(row, status)], receipt).await;
                }
                Err(failure) => failure,
            };
            if row.is_caller_disconnected {
                // Not a host error, and frequent, so only info; the store records each one.
                tracing::info!(channel = %row.message.channel, "a caller has disconnected");
            } else {
                tracing::warn!(channel = %row.message.channel, %reason, "cannot deliver a message");
            }
            if let Some(receipt) = receipt.take() {
                receipt.add_delivery_error(&reason);
            }
            row.attempts += 1;
            row.may_have_been_sent |= error_kind == ChannelErrorKind::Unknown;
            if error_kind == ChannelErrorKind::Permanent || row.attempts >= MAX_SEND_ATTEMPTS {
                return self
                    .record_deliveries_with_retry(vec![(row, OutboxStatus::Undelivered { reason })], receipt)
                    .await;
            }
            let status = OutboxStatus::Waiting {
                attempts: row.attempts,
                may_have_been_sent: row.may_have_been_sent,
                reason: Some(reason),
            };
            let wait = SEND_BACKOFF.delay_after(row.attempts);
            // If this fails the message is still pending, and may be sent again.
            let _unrecorded = self.record_deliveries(vec![(row.clone(), status)], CommitDurability::Durable).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The message stays in the store for the next start.
                () = self.options.stop_token.cancelled() => return self.queues.abandon(address),
            }
        }
    }

    async fn attempt_send(&self, row: &OutboxRow) -> Result<(), (String, ChannelErrorKind)> {
        let Some(channel) = self.channels.get(&row.message.channel) else {
            return Err((format!("there is no channel {}", row.message.channel), ChannelErrorKind::Permanent));
        };
        if row.is_caller_disconnected {
            return Err((CALLER_DISCONNECTED_REASON.to_owned(), ChannelErrorKind::Permanent));
        }
        let marked_duplicate = row.may_have_been_sent.then(|| row.message.clone().mark_possible_duplicate());
        let message = marked_duplicate.as_ref().unwrap_or(&row.message);
        let adapted = adapt_message(message, channel.capabilities(), &self.tapes).await;
        let message = adapted.map_err(|error| (error.to_string(), ChannelErrorKind::NotSent))?;
        call_with_deadline(channel.send(&message), CHANNEL_SEND_TIMEOUT).await
    }

    /// Records delivery results. If that fails the messages are still pending in the store, and may be sent again.
    pub async fn record_deliveries(
        &self,
        results: Vec<(OutboxRow, OutboxStatus)>,
        durability: CommitDurability,
    ) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let facts = results.into_iter().map(|(row, status)| Fact::RecordDelivery { id: row.id, status }).collect();
        let recorded = self.tapes.store().commit(Batch { durability, facts, ..Batch::new() }).await;
        if let Err(error) = &recorded {
            tracing::warn!(%error, "cannot record the delivery of a message");
        }
        recorded.map(drop)
    }

    /// Records delivery results, with retries until the host aborts: other processes wait for the records. A local
    /// caller is released after the first failed attempt.
    async fn record_deliveries_with_retry(
        &self,
        results: Vec<(OutboxRow, OutboxStatus)>,
        mut receipt: Option<LocalCallerReceipt>,
    ) {
        let mut attempts: u32 = 0;
        loop {
            match self.record_deliveries(results.clone(), CommitDurability::Durable).await {
                Err(error) if error.is_transient() => drop(receipt.take()),
                _ => return,
            }
            attempts = attempts.saturating_add(1);
            tokio::select! {
                () = tokio::time::sleep(RECORD_BACKOFF.base_delay(attempts)) => {}
                () = self.options.abort_token.cancelled() => return,
            }
        }
    }
}

/// Reports to a local caller that a message stays in the store for the next start.
fn report_unsent(receipt: Option<LocalCallerReceipt>) {
    if let Some(receipt) = receipt {
        receipt.add_delivery_error(HOST_STOPPED_REASON);
    }
}
