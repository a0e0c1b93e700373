//! The outbox: what was committed with an outcome goes out, in order per chat, until its fate is known.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelErrorKind, ChannelReply};
use capstan_protocol::{Event, RetryBackoff};
use capstan_tape::{Batch, CommitDurability, Fact, OutboxRecord, OutboxStatus, StoreError};

pub(crate) use super::chat_queue::{ChatAddress, ChatQueues};
use super::chat_queue::{DeliveryJob, DepthAccounting, MAX_QUEUED_JOBS};
use super::event_delivery::CallerReceipt;
pub(crate) use super::event_delivery::{EventDelivery, OutboxRow};
use super::isolated_channel::{CHANNEL_SEND_TIMEOUT, call_catching_panics, call_with_deadline};
use super::ordering::{BEHIND_OTHERS_REASON, OrderingWait};
use crate::engine::Engine;
use crate::recovery::recover::is_orphaned_by;

/// How long to wait before another attempt.
const SEND_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_secs(1), max_delay: Duration::from_mins(5) };
/// How often a message is tried before it is given up: for about a day, at the longest wait.
const MAX_SEND_ATTEMPTS: u32 = 300;

/// Why the message of a caller that waited was given up.
pub(crate) const CALLER_GONE_REASON: &str = "the caller is gone";

/// Why the message of a caller was given up that took nothing until the host had to end.
const UNCLAIMED_REASON: &str = "the caller did not take it before the host stopped";

/// Why a message was not sent by a host that stops.
const HOST_STOPPED_REASON: &str = "the host stopped before it could be sent";

/// Why a message was given up that came when too many waited for its chat.
const QUEUE_FULL_REASON: &str = "too many messages wait for this chat";

impl Engine {
    /// Sends a parcel on its way, and waits while too much waits for its chats.
    pub(crate) async fn deliver(self: &Arc<Self>, parcel: EventDelivery) {
        let addresses = self.enqueue_delivery(parcel);
        self.wait_for_queue_capacity(&addresses).await;
    }

    /// Sends a parcel on its way, and says to which chats. Whoever has more to say to them [waits for
    /// room](Self::wait_for_room) first.
    pub(crate) fn enqueue_delivery(self: &Arc<Self>, parcel: EventDelivery) -> Vec<ChatAddress> {
        let mut addresses = Vec::new();
        for (address, errand) in self.delivery_jobs(parcel) {
            self.enqueue_job(address.clone(), errand, DepthAccounting::Counted);
            addresses.push(address);
        }
        addresses
    }

    /// Waits until not too much waits for these chats, or the host stops.
    pub(crate) async fn wait_for_queue_capacity(&self, addresses: &[ChatAddress]) {
        for address in addresses {
            let Some(mut crowd) = self.chat_queues.subscribe_if_full(address) else { continue };
            tokio::select! {
                // An error means that nothing waits any more.
                _ = crowd.wait_for(|count| *count < MAX_QUEUED_JOBS) => {}
                () = self.stop_token.cancelled() => return,
            }
        }
    }

    /// Sends a parcel on its way. Where there is no room its messages are given up: whoever sent the event waits to hear
    /// that it was accepted, and with it everybody behind.
    pub(crate) fn deliver_without_waiting(self: &Arc<Self>, parcel: EventDelivery) {
        for (address, errand) in self.delivery_jobs(parcel) {
            let is_full = self.chat_queues.subscribe_if_full(&address).is_some();
            match errand {
                DeliveryJob::Send { row, receipt } if is_full => self.give_up_message(row, receipt),
                // There are no more of these than callers that wait, and each of them must hear.
                DeliveryJob::Reply { .. } if is_full => self.enqueue_job(address, errand, DepthAccounting::Exempt),
                DeliveryJob::Send { .. } | DeliveryJob::Reply { .. } => {
                    self.enqueue_job(address, errand, DepthAccounting::Counted)
                }
            }
        }
    }

    /// What is to be done for a parcel, in order.
    fn delivery_jobs(&self, mut parcel: EventDelivery) -> Vec<(ChatAddress, DeliveryJob)> {
        // Whoever waits is where the event came from, wherever its answer is sent.
        let channel = parcel.inbound.source.clone();
        parcel.served_event.outbounds.extend(parcel.rows.iter().map(|row| row.message.clone()));
        let waits = self.services.has_waiting_caller(&channel);
        let answer = waits.then(|| Box::new(parcel.to_channel_reply(&channel)));
        let address = ChatAddress { channel: channel.clone(), chat: parcel.inbound.chat_id() };
        let is_gone = parcel.is_caller_gone;
        let receipt = CallerReceipt::new(parcel.caller, parcel.served_event);
        let (own, others): (Vec<OutboxRow>, Vec<OutboxRow>) =
            parcel.rows.into_iter().partition(|row| waits && row.message.channel == channel);
        let answer = answer.map(|reply| {
            let receipt = receipt.clone();
            (address, DeliveryJob::Reply { reply, rows: own, receipt, is_caller_gone: is_gone })
        });
        let send = |row: OutboxRow| {
            let row =
                OutboxRow { is_caller_gone: is_gone && self.services.has_waiting_caller(&row.message.channel), ..row };
            (ChatAddress::from_row(&row), DeliveryJob::Send { row, receipt: Some(receipt.clone()) })
        };
        answer.into_iter().chain(others.into_iter().map(send)).collect()
    }

    /// Sends a message on its way that another process left behind, however many they are: no chat waits for another's,
    /// and nothing new goes before them.
    pub(crate) fn deliver_orphaned(self: &Arc<Self>, row: OutboxRow) {
        let address = ChatAddress::from_row(&row);
        self.enqueue_job(address, DeliveryJob::Send { row, receipt: None }, DepthAccounting::Exempt);
    }

    fn enqueue_job(self: &Arc<Self>, address: ChatAddress, errand: DeliveryJob, place: DepthAccounting) {
        if self.chat_queues.enqueue(&address, errand, place) {
            let engine = Arc::clone(self);
            self.tasks.spawn(async move {
                let mut behind = OrderingWait::default();
                while let Some((errand, place)) = engine.chat_queues.next_job(&address) {
                    match engine.run_job(&address, errand, &behind).await {
                        None => {
                            behind = OrderingWait::default();
                            engine.chat_queues.finish_job(&address, place);
                        }
                        Some(errand) => engine.requeue_and_wait(&address, errand, place, &mut behind).await,
                    }
                }
            });
        }
    }

    /// Runs an errand; gives it back when it has to wait for those of other processes.
    async fn run_job(
        self: &Arc<Self>,
        address: &ChatAddress,
        errand: DeliveryJob,
        behind: &OrderingWait,
    ) -> Option<DeliveryJob> {
        match errand {
            DeliveryJob::Reply { reply, rows, receipt, is_caller_gone } => {
                self.reply_to_caller(&reply, rows, &receipt, is_caller_gone).await
            }
            DeliveryJob::Send { receipt, .. } if self.chat_queues.is_abandoned(address) => report_unsent(receipt),
            DeliveryJob::Send { row, receipt } if self.has_earlier_messages(&row, behind).await => {
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
        mut errand: DeliveryJob,
        place: DepthAccounting,
        behind: &mut OrderingWait,
    ) {
        if behind.is_overdue()
            && let DeliveryJob::Send { receipt, .. } = &mut errand
            && let Some(receipt) = receipt.take()
        {
            receipt.record_undelivered(BEHIND_OTHERS_REASON);
        }
        self.chat_queues.requeue(address, errand, place);
        tokio::select! {
            () = tokio::time::sleep(behind.next_poll_delay()) => {}
            // It waits in the store, for the next start.
            () = self.stop_token.cancelled() => self.chat_queues.abandon(address),
        }
    }

    /// Gives a message up. Nobody waits until that is on record, but it is seen to: what comes after it waits for it.
    fn give_up_message(self: &Arc<Self>, row: OutboxRow, receipt: Option<CallerReceipt>) {
        tracing::warn!(reason = QUEUE_FULL_REASON, "a message was given up");
        if let Some(receipt) = &receipt {
            receipt.record_undelivered(QUEUE_FULL_REASON);
        }
        let (engine, status) = (Arc::clone(self), OutboxStatus::Undelivered { reason: QUEUE_FULL_REASON.to_owned() });
        self.tasks.spawn(async move { engine.record_deliveries_with_retry(vec![(row, status)], receipt).await });
    }

    /// Answers a caller that waits. There is no second attempt: either it is still there, or it is gone. One that is there
    /// may take its time: its channel knows when it is gone, and what others are told does not wait for it.
    async fn reply_to_caller(
        self: &Arc<Self>,
        answer: &ChannelReply,
        rows: Vec<OutboxRow>,
        receipt: &CallerReceipt,
        is_gone: bool,
    ) {
        let answered = match self.services.channel(&answer.event.source) {
            Some(channel) if !is_gone => tokio::select! {
                biased;
                answered = call_catching_panics(channel.reply(answer)) => answered,
                () = self.abort_token.cancelled() => Err((UNCLAIMED_REASON.to_owned(), ChannelErrorKind::Permanent)),
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
                    tracing::warn!(%channel, %reason, "a caller could not be answered")
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
            let engine = Arc::clone(self);
            self.tasks.spawn(async move { engine.record_deliveries_with_retry(fates, None).await });
        }
    }

    /// Whether a message of an event that was sent again is for the caller that waits, and none has taken it.
    pub(crate) fn is_unclaimed(&self, event: &Event, row: &OutboxRecord) -> bool {
        let is_open = match &row.status {
            OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => true,
            // Whoever was to give it died.
            OutboxStatus::Waiting { .. } => is_orphaned_by(self, row.owner.as_deref()),
            OutboxStatus::Sent { .. } => false,
        };
        is_open && row.message.channel == event.source && self.services.has_waiting_caller(&event.source)
    }

    /// Sends one message until its fate is known, or the host stops. Whoever waits in this process waits for the first
    /// attempt.
    async fn send_message(&self, address: &ChatAddress, mut row: OutboxRow, mut receipt: Option<CallerReceipt>) {
        loop {
            let attempted = tokio::select! {
                biased;
                attempted = self.attempt_send(&row) => attempted,
                // Whoever takes it over does not know its fate either.
                () = self.abort_token.cancelled() => {
                    report_unsent(receipt);
                    return self.chat_queues.abandon(address);
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
                () = self.stop_token.cancelled() => return self.chat_queues.abandon(address),
            }
        }
    }

    async fn attempt_send(&self, row: &OutboxRow) -> Result<(), (String, ChannelErrorKind)> {
        let Some(channel) = self.services.channel(&row.message.channel) else {
            return Err((format!("there is no channel {}", row.message.channel), ChannelErrorKind::Permanent));
        };
        if row.is_caller_gone {
            return Err((CALLER_GONE_REASON.to_owned(), ChannelErrorKind::Permanent));
        }
        let marked = row.is_fate_unknown.then(|| row.message.clone().mark_possible_duplicate());
        call_with_deadline(channel.send(marked.as_ref().unwrap_or(&row.message)), CHANNEL_SEND_TIMEOUT).await
    }

    /// Records what became of messages. If that fails they still wait in the store, and may be sent again.
    pub(crate) async fn record_deliveries(
        &self,
        fates: Vec<(OutboxRow, OutboxStatus)>,
        promise: CommitDurability,
    ) -> Result<(), StoreError> {
        if fates.is_empty() {
            return Ok(());
        }
        let facts = fates.into_iter().map(|(row, status)| Fact::RecordDelivery { id: row.id, status }).collect();
        let recorded = self.services.tapes.store().commit(Batch { durability: promise, facts, ..Batch::new() }).await;
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

/// Whether a process with these channels listening may send what was left for one: it listens here, or nobody ever
/// will again.
pub(crate) fn can_send_orphaned(channel: Option<&Arc<dyn Channel>>, listens: bool) -> bool {
    listens || channel.is_some_and(|channel| channel.capabilities().has_waiting_callers)
}
