//! Outbox: delivers committed messages in order per chat, until their fate is known.
//!
//! [`Outbox`] is the service and its own handle. It spawns a task for each chat that something waits for, and knows
//! channels, tapes and the owner of its rows, but neither sessions nor turns.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{ChannelErrorKind, ChannelReply, IntakeError};
use capstan_protocol::{Event, RetryBackoff, WorkspaceId};
use capstan_tape::{Batch, CommitDurability, Fact, OutboxRecord, OutboxStatus, StoreError, TapeRepository};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel_directory::ChannelDirectory;
use super::chat_queue::{ChatAddress, ChatQueues, DeliveryJob, DepthAccounting, MAX_QUEUED_JOBS};
use super::event_delivery::{CallerReceipt, EventDelivery, OutboxRow};
use super::isolated_channel::{CHANNEL_SEND_TIMEOUT, STREAM_EVENT_TIMEOUT, call_catching_panics, call_with_deadline};
use super::ordering::{BEHIND_OTHERS_REASON, OrderingWait};

/// Backoff between attempts to send a message.
const SEND_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_mins(5) };
/// Maximum number of attempts to send a message: about a day, at the longest wait.
const MAX_SEND_ATTEMPTS: u32 = 300;

/// Why the message of a caller that waited was given up.
pub(crate) const CALLER_GONE_REASON: &str = "the caller is gone";

/// Why the message of a caller was given up that took nothing until the host had to end.
const UNCLAIMED_REASON: &str = "the caller did not take it before the host stopped";

/// Why a message was not sent by a host that stops.
const HOST_STOPPED_REASON: &str = "the host stopped before it could be sent";

/// Why a message was given up that came when too many waited for its chat.
const QUEUE_FULL_REASON: &str = "too many messages wait for this chat";

/// Identity of this process as the owner of outbox rows.
pub trait RowOwner: Send + Sync {
    /// Its name, as rows record it.
    fn name(&self) -> &str;

    /// Whether another owner is known to be dead.
    fn is_dead(&self, owner: &str) -> bool;

    /// Whether a row or event of this owner is orphaned. Those without an owner were recorded before owners were.
    fn is_orphaned(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| self.is_dead(owner))
    }
}

/// Options of an [`Outbox`].
pub struct OutboxOptions {
    /// The workspace whose messages it delivers.
    pub workspace_id: WorkspaceId,
    /// The owner of the rows it delivers.
    pub owner: Arc<dyn RowOwner>,
    /// Tracks its tasks.
    pub tasks: TaskTracker,
    /// Fires when messages that cannot be sent now are left for the next start.
    pub stop_token: CancellationToken,
    /// Fires when nothing is waited for any more, neither channels nor the store.
    pub abort_token: CancellationToken,
}

/// Outbox of a host. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<OutboxState>);

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

    /// Delivers an event, and waits while too much waits for its chats.
    pub async fn deliver(&self, delivery: EventDelivery) {
        let addresses = self.enqueue(delivery);
        self.wait_for_capacity(&addresses).await;
    }

    /// Enqueues the delivery of an event, and returns the chats it goes to. A session that has more to say to them
    /// [waits for capacity](Self::wait_for_capacity) first.
    pub fn enqueue(&self, delivery: EventDelivery) -> Vec<ChatAddress> {
        let mut addresses = Vec::new();
        for (address, job) in self.delivery_jobs(delivery) {
            self.enqueue_job(address.clone(), job, DepthAccounting::Counted);
            addresses.push(address);
        }
        addresses
    }

    /// Waits until not too much waits for these chats, or the host stops.
    pub async fn wait_for_capacity(&self, addresses: &[ChatAddress]) {
        for address in addresses {
            let Some(mut depth) = self.queues.subscribe_if_full(address) else { continue };
            tokio::select! {
                // An error means that nothing waits any more.
                _ = depth.wait_for(|count| *count < MAX_QUEUED_JOBS) => {}
                () = self.options.stop_token.cancelled() => return,
            }
        }
    }

    /// Enqueues the delivery of an event. Where a queue is full its messages are given up: the source of the event waits
    /// for its acceptance, and with it everything behind.
    pub fn enqueue_or_give_up(&self, delivery: EventDelivery) {
        for (address, job) in self.delivery_jobs(delivery) {
            let is_full = self.queues.subscribe_if_full(&address).is_some();
            match job {
                DeliveryJob::Send { row, receipt } if is_full => self.give_up_message(row, receipt),
                // There are no more of these than callers that wait, and each of them must hear.
                DeliveryJob::Reply { .. } if is_full => self.enqueue_job(address, job, DepthAccounting::Exempt),
                DeliveryJob::Send { .. } | DeliveryJob::Reply { .. } => {
                    self.enqueue_job(address, job, DepthAccounting::Counted);
                }
            }
        }
    }

    /// Tells a caller that waits behind a channel that the store delays the outcome of its event. The call does not wait.
    pub fn notify_delayed(&self, event: &InboundEvent, reason: IntakeError) {
        if !self.channels.has_waiting_caller(&event.source) {
            return;
        }
        let Some(channel) = self.channels.get(&event.source).map(Arc::clone) else { return };
        let event = event.clone();
        self.options.tasks.spawn(async move {
            let told = call_with_deadline(channel.notify_delayed(&event, &reason), STREAM_EVENT_TIMEOUT).await;
            if let Err((reason, _)) = told {
                tracing::warn!(channel = %channel.name(), %reason, "a caller could not be told that the store fails");
            }
        });
    }

    /// Number of chats that something waits for.
    pub fn queue_count(&self) -> usize {
        self.queues.queue_count()
    }

    /// The jobs of a delivery, in order.
    fn delivery_jobs(&self, delivery: EventDelivery) -> Vec<(ChatAddress, DeliveryJob)> {
        let EventDelivery { mut reply, rows, is_caller_gone, receipt } = delivery;
        // The caller waits where the event came from, wherever its reply is sent.
        let channel = reply.event.source.clone();
        let waits = self.channels.has_waiting_caller(&channel);
        let mut jobs = Vec::new();
        let (own, others): (Vec<OutboxRow>, Vec<OutboxRow>) =
            rows.into_iter().partition(|row| waits && row.message.channel == channel);
        if waits {
            let address = ChatAddress { channel: channel.clone(), chat: reply.event.chat_id() };
            reply.messages.retain(|message| message.channel == channel);
            reply.messages.extend(own.iter().map(|row| row.message.clone()));
            let (reply, receipt) = (Box::new(reply), receipt.clone());
            jobs.push((address, DeliveryJob::Reply { reply, rows: own, receipt, is_caller_gone }));
        }
        for row in others {
            let is_caller_gone = is_caller_gone && self.channels.has_waiting_caller(&row.message.channel);
            let row = OutboxRow { is_caller_gone, ..row };
            jobs.push((ChatAddress::from_row(&row), DeliveryJob::Send { row, receipt: Some(receipt.clone()) }));
        }
        jobs
    }

    /// Enqueues an orphaned message, however many there are: no chat waits for another's, and nothing new goes before
    /// them.
    pub(super) fn enqueue_orphaned(&self, row: OutboxRow) {
        let address = ChatAddress::from_row(&row);
        self.enqueue_job(address, DeliveryJob::Send { row, receipt: None }, DepthAccounting::Exempt);
    }

    fn enqueue_job(&self, address: ChatAddress, job: DeliveryJob, accounting: DepthAccounting) {
        if self.queues.enqueue(&address, job, accounting) {
            let outbox = self.clone();
            self.options.tasks.spawn(async move {
                let mut ordering = OrderingWait::default();
                while let Some((job, accounting)) = outbox.queues.next_job(&address) {
                    match outbox.run_job(&address, job, &ordering).await {
                        None => {
                            ordering = OrderingWait::default();
                            outbox.queues.finish_job(&address, accounting);
                        }
                        Some(job) => outbox.requeue_and_wait(&address, job, accounting, &mut ordering).await,
                    }
                }
            });
        }
    }

    /// Runs a job; returns it when it has to wait for messages of other processes.
    async fn run_job(&self, address: &ChatAddress, job: DeliveryJob, ordering: &OrderingWait) -> Option<DeliveryJob> {
        match job {
            DeliveryJob::Reply { reply, rows, receipt, is_caller_gone } => {
                self.reply_to_caller(&reply, rows, &receipt, is_caller_gone).await;
            }
            DeliveryJob::Send { receipt, .. } if self.queues.is_abandoned(address) => report_unsent(receipt),
            DeliveryJob::Send { row, receipt } if self.has_earlier_messages(&row, ordering).await => {
                return Some(DeliveryJob::Send { row, receipt });
            }
            DeliveryJob::Send { row, receipt } => self.send_message(address, row, receipt).await,
        }
        None
    }

    /// Puts a message back and waits before it is looked at again. Whoever waits for it in this process is not made to
    /// wait for long.
    async fn requeue_and_wait(
        &self,
        address: &ChatAddress,
        mut job: DeliveryJob,
        accounting: DepthAccounting,
        ordering: &mut OrderingWait,
    ) {
        if ordering.is_overdue()
            && let DeliveryJob::Send { receipt, .. } = &mut job
            && let Some(receipt) = receipt.take()
        {
            receipt.record_undelivered(BEHIND_OTHERS_REASON);
        }
        self.queues.requeue(address, job, accounting);
        tokio::select! {
            () = tokio::time::sleep(ordering.next_poll_delay()) => {}
            // It waits in the store, for the next start.
            () = self.options.stop_token.cancelled() => self.queues.abandon(address),
        }
    }

    /// Gives a message up, and records that in a task of its own: messages after it wait for the record.
    fn give_up_message(&self, row: OutboxRow, receipt: Option<CallerReceipt>) {
        tracing::warn!(reason = QUEUE_FULL_REASON, "a message was given up");
        if let Some(receipt) = &receipt {
            receipt.record_undelivered(QUEUE_FULL_REASON);
        }
        let (outbox, status) = (self.clone(), OutboxStatus::Undelivered { reason: QUEUE_FULL_REASON.to_owned() });
        self.options
            .tasks
            .spawn(async move { outbox.record_deliveries_with_retry(vec![(row, status)], receipt).await });
    }

    /// Answers a caller that waits. There is no second attempt: either it is still there, or it is gone. One that is there
    /// may take its time: its channel knows when it is gone, and what others are told does not wait for it.
    async fn reply_to_caller(
        &self,
        answer: &ChannelReply,
        rows: Vec<OutboxRow>,
        receipt: &CallerReceipt,
        is_gone: bool,
    ) {
        let answered = match self.channels.get(&answer.event.source) {
            Some(channel) if !is_gone => tokio::select! {
                biased;
                answered = call_catching_panics(channel.reply(answer)) => answered,
                () = self.options.abort_token.cancelled() => Err((UNCLAIMED_REASON.to_owned(), ChannelErrorKind::Permanent)),
            },
            _ => Err((CALLER_GONE_REASON.to_owned(), ChannelErrorKind::Permanent)),
        };
        if let Err((reason, fate)) = &answered
            && !is_gone
        {
            let channel = &answer.event.source;
            match fate {
                // That callers go is no trouble, and there may be many: it is on record for each of them.
                ChannelErrorKind::Permanent => tracing::info!(%channel, %reason, "a caller is gone"),
                ChannelErrorKind::NotSent | ChannelErrorKind::Unknown => {
                    tracing::warn!(%channel, %reason, "a caller could not be answered");
                }
            }
            receipt.record_undelivered(reason);
        }
        let fate = |row: OutboxRow| {
            let status = match &answered {
                Ok(()) => OutboxStatus::Sent { possible_duplicate: row.is_fate_unknown },
                // That it was not taken is on record already, or will be by whoever sees to what was left.
                Err(_) if answer.is_duplicate => return None,
                Err((reason, _)) => OutboxStatus::Undelivered { reason: reason.clone() },
            };
            Some((row, status))
        };
        let fates: Vec<(OutboxRow, OutboxStatus)> = rows.into_iter().filter_map(fate).collect();
        // An answer that was given is given again to whoever asks for it again, on record or not.
        if let Err(error) = self.record_deliveries(fates.clone(), CommitDurability::Ordered).await
            && error.is_transient()
        {
            // The next answer does not wait for it.
            let outbox = self.clone();
            self.options.tasks.spawn(async move { outbox.record_deliveries_with_retry(fates, None).await });
        }
    }

    /// Whether a message of an event that was sent again is for the caller that waits, and none has taken it.
    pub fn is_unclaimed(&self, event: &Event, row: &OutboxRecord) -> bool {
        let is_open = match &row.status {
            OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => true,
            // Whoever was to give it died.
            OutboxStatus::Waiting { .. } => self.options.owner.is_orphaned(row.owner.as_deref()),
            OutboxStatus::Sent { .. } => false,
        };
        is_open && row.message.channel == event.source && self.channels.has_waiting_caller(&event.source)
    }

    /// Sends one message until its fate is known, or the host stops. Whoever waits in this process waits for the first
    /// attempt.
    async fn send_message(&self, address: &ChatAddress, mut row: OutboxRow, mut receipt: Option<CallerReceipt>) {
        loop {
            let attempted = tokio::select! {
                biased;
                attempted = self.attempt_send(&row) => attempted,
                // Whoever takes it over does not know its fate either.
                () = self.options.abort_token.cancelled() => {
                    report_unsent(receipt);
                    return self.queues.abandon(address);
                }
            };
            let (reason, fate) = match attempted {
                Ok(()) => {
                    let status = OutboxStatus::Sent { possible_duplicate: row.is_fate_unknown };
                    return self.record_deliveries_with_retry(vec![(row, status)], receipt).await;
                }
                Err(failed) => failed,
            };
            if row.is_caller_gone {
                // That callers go is no trouble, and it is on record.
                tracing::info!(channel = %row.message.channel, "a caller is gone");
            } else {
                tracing::warn!(channel = %row.message.channel, %reason, "a message could not be delivered");
            }
            if let Some(receipt) = receipt.take() {
                receipt.record_undelivered(&reason);
            }
            row.attempts += 1;
            row.is_fate_unknown |= fate == ChannelErrorKind::Unknown;
            if fate == ChannelErrorKind::Permanent || row.attempts >= MAX_SEND_ATTEMPTS {
                return self
                    .record_deliveries_with_retry(vec![(row, OutboxStatus::Undelivered { reason })], receipt)
                    .await;
            }
            let status = OutboxStatus::Waiting {
                attempts: row.attempts,
                fate_unknown: row.is_fate_unknown,
                reason: Some(reason),
            };
            let wait = SEND_BACKOFF.delay_after(row.attempts);
            // Unrecorded it still waits, and may be sent again.
            let _unrecorded = self.record_deliveries(vec![(row.clone(), status)], CommitDurability::Durable).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // It waits in the store, for the next start.
                () = self.options.stop_token.cancelled() => return self.queues.abandon(address),
            }
        }
    }

    async fn attempt_send(&self, row: &OutboxRow) -> Result<(), (String, ChannelErrorKind)> {
        let Some(channel) = self.channels.get(&row.message.channel) else {
            return Err((format!("there is no channel {}", row.message.channel), ChannelErrorKind::Permanent));
        };
        if row.is_caller_gone {
            return Err((CALLER_GONE_REASON.to_owned(), ChannelErrorKind::Permanent));
        }
        let marked = row.is_fate_unknown.then(|| row.message.clone().mark_possible_duplicate());
        call_with_deadline(channel.send(marked.as_ref().unwrap_or(&row.message)), CHANNEL_SEND_TIMEOUT).await
    }

    /// Records what became of messages. If that fails they still wait in the store, and may be sent again.
    pub async fn record_deliveries(
        &self,
        fates: Vec<(OutboxRow, OutboxStatus)>,
        promise: CommitDurability,
    ) -> Result<(), StoreError> {
        if fates.is_empty() {
            return Ok(());
        }
        let facts = fates.into_iter().map(|(row, status)| Fact::RecordDelivery { id: row.id, status }).collect();
        let recorded = self.tapes.store().commit(Batch { durability: promise, facts, ..Batch::new() }).await;
        if let Err(error) = &recorded {
            tracing::warn!(%error, "the fate of a message could not be recorded");
        }
        recorded.map(drop)
    }
}

/// Whoever waits in this process is told that a message waits for the next start.
fn report_unsent(receipt: Option<CallerReceipt>) {
    if let Some(receipt) = receipt {
        receipt.record_undelivered(HOST_STOPPED_REASON);
    }
}
