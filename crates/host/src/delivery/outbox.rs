//! The outbox: what was committed with an outcome goes out, in order per chat, until its fate is known.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{Answer, Channel, Fate};
use capstan_protocol::Event;
use capstan_tape::{Batch, Fact, OutboxRecord, OutboxStatus, Promise, StoreError};

use super::asking::{SEND_DEADLINE, guarded, isolated};
use super::backoff::Backoff;
pub(crate) use super::chats::{Address, Outbox};
use super::chats::{Errand, Place, WAITING};
use super::parcel::{CallerGone, Receipt};
pub(crate) use super::parcel::{Parcel, Row};
use super::precedence::{BEHIND_OTHERS, Behind};
use crate::engine::Engine;
use crate::recovery::left::is_left;

/// How long to wait before another attempt.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) };
/// How often a message is tried before it is given up: for about a day, at the longest wait.
const ATTEMPTS: u32 = 300;

/// Why the message of a caller that waited was given up.
pub(crate) const CALLER_GONE: &str = "the caller is gone";

/// Why the message of a caller was given up that took nothing until the host had to end.
const NOT_TAKEN: &str = "the caller did not take it before the host stopped";

/// Why a message was not sent by a host that stops.
const LEFT: &str = "the host stopped before it could be sent";

/// Why a message was given up that came when too many waited for its chat.
const NO_ROOM: &str = "too many messages wait for this chat";

impl Engine {
    /// Sends a parcel on its way, and waits while too much waits for its chats.
    pub(crate) async fn deliver(self: &Arc<Self>, parcel: Parcel) {
        let addresses = self.send_out(parcel);
        self.wait_for_room(&addresses).await;
    }

    /// Sends a parcel on its way, and says to which chats. Whoever has more to say to them [waits for
    /// room](Self::wait_for_room) first.
    pub(crate) fn send_out(self: &Arc<Self>, parcel: Parcel) -> Vec<Address> {
        let mut addresses = Vec::new();
        for (address, errand) in self.errands(parcel) {
            self.put_errand(address.clone(), errand, Place::Counts);
            addresses.push(address);
        }
        addresses
    }

    /// Waits until not too much waits for these chats, or the host stops.
    pub(crate) async fn wait_for_room(&self, addresses: &[Address]) {
        for address in addresses {
            let Some(mut crowd) = self.outbox.crowd(address) else { continue };
            tokio::select! {
                // An error means that nothing waits any more.
                _ = crowd.wait_for(|count| *count < WAITING) => {}
                () = self.stopping.cancelled() => return,
            }
        }
    }

    /// Sends a parcel on its way. Where there is no room its messages are given up: whoever sent the event waits to hear
    /// that it was accepted, and with it everybody behind.
    pub(crate) fn deliver_at_once(self: &Arc<Self>, parcel: Parcel) {
        for (address, errand) in self.errands(parcel) {
            let is_full = self.outbox.crowd(&address).is_some();
            match errand {
                Errand::Send { row, receipt } if is_full => self.give_up(row, receipt),
                // There are no more of these than callers that wait, and each of them must hear.
                Errand::Answer { .. } if is_full => self.put_errand(address, errand, Place::Extra),
                Errand::Send { .. } | Errand::Answer { .. } => self.put_errand(address, errand, Place::Counts),
            }
        }
    }

    /// What is to be done for a parcel, in order.
    fn errands(&self, mut parcel: Parcel) -> Vec<(Address, Errand)> {
        // Whoever waits is where the event came from, wherever its answer is sent.
        let channel = parcel.inbound.source.clone();
        parcel.served.outbounds.extend(parcel.rows.iter().map(|row| row.message.clone()));
        let waits = self.services.caller_waits(&channel);
        let answer = waits.then(|| Box::new(parcel.answer(&channel)));
        let address = Address { channel: channel.clone(), chat: parcel.inbound.chat_id() };
        let is_gone = parcel.inbound.extensions().get::<CallerGone>().is_some();
        let receipt = Receipt::new(parcel.caller, parcel.served);
        let (own, others): (Vec<Row>, Vec<Row>) =
            parcel.rows.into_iter().partition(|row| waits && row.message.channel == channel);
        let answer = answer.map(|answer| (address, Errand::Answer { answer, rows: own, receipt: receipt.clone() }));
        let send = |row: Row| {
            let row = Row { caller_gone: is_gone && self.services.caller_waits(&row.message.channel), ..row };
            (Address::of(&row), Errand::Send { row, receipt: Some(receipt.clone()) })
        };
        answer.into_iter().chain(others.into_iter().map(send)).collect()
    }

    /// Sends a message on its way that another process left behind, however many they are: no chat waits for another's,
    /// and nothing new goes before them.
    pub(crate) fn deliver_left_behind(self: &Arc<Self>, row: Row) {
        let address = Address::of(&row);
        self.put_errand(address, Errand::Send { row, receipt: None }, Place::Extra);
    }

    fn put_errand(self: &Arc<Self>, address: Address, errand: Errand, place: Place) {
        if self.outbox.put(&address, errand, place) {
            let engine = Arc::clone(self);
            self.tasks.spawn(async move {
                let mut behind = Behind::default();
                while let Some((errand, place)) = engine.outbox.next(&address) {
                    match engine.run(&address, errand, &behind).await {
                        None => {
                            behind = Behind::default();
                            engine.outbox.done(&address, place);
                        }
                        Some(errand) => engine.wait_behind(&address, errand, place, &mut behind).await,
                    }
                }
            });
        }
    }

    /// Runs an errand; gives it back when it has to wait for those of other processes.
    async fn run(self: &Arc<Self>, address: &Address, errand: Errand, behind: &Behind) -> Option<Errand> {
        match errand {
            Errand::Answer { answer, rows, receipt } => self.answer(&answer, rows, &receipt).await,
            Errand::Send { receipt, .. } if self.outbox.is_left(address) => not_sent_yet(receipt),
            Errand::Send { row, receipt } if self.is_behind_others(&row, behind).await => {
                return Some(Errand::Send { row, receipt });
            }
            Errand::Send { row, receipt } => self.send(address, row, receipt).await,
        }
        None
    }

    /// Puts a message back and waits before it is looked at again. Whoever waits for it in this process is not made to
    /// wait for long.
    async fn wait_behind(&self, address: &Address, mut errand: Errand, place: Place, behind: &mut Behind) {
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

    /// Gives a message up. Nobody waits until that is on record, but it is seen to: what comes after it waits for it.
    fn give_up(self: &Arc<Self>, row: Row, receipt: Option<Receipt>) {
        tracing::warn!(reason = NO_ROOM, "a message was given up");
        if let Some(receipt) = &receipt {
            receipt.undelivered(NO_ROOM);
        }
        let (engine, status) = (Arc::clone(self), OutboxStatus::Undelivered { reason: NO_ROOM.to_owned() });
        self.tasks.spawn(async move { engine.record_fates(vec![(row, status)], receipt).await });
    }

    /// Answers a caller that waits. There is no second attempt: either it is still there, or it is gone. One that is there
    /// may take its time: its channel knows when it is gone, and what others are told does not wait for it.
    async fn answer(self: &Arc<Self>, answer: &Answer, rows: Vec<Row>, receipt: &Receipt) {
        let is_gone = answer.event.extensions().get::<CallerGone>().is_some();
        let answered = match self.services.channel(&answer.event.source) {
            Some(channel) if !is_gone => tokio::select! {
                biased;
                answered = guarded(channel.answer(answer)) => answered,
                () = self.giving_up.cancelled() => Err((NOT_TAKEN.to_owned(), Fate::Hopeless)),
            },
            _ => Err((CALLER_GONE.to_owned(), Fate::Hopeless)),
        };
        if let Err((reason, fate)) = &answered
            && !is_gone
        {
            let channel = &answer.event.source;
            match fate {
                // That callers go is no trouble, and there may be many: it is on record for each of them.
                Fate::Hopeless => tracing::info!(%channel, %reason, "a caller is gone"),
                Fate::NotSent | Fate::Unknown => tracing::warn!(%channel, %reason, "a caller could not be answered"),
            }
            receipt.undelivered(reason);
        }
        let fate = |row: Row| {
            let status = match &answered {
                Ok(()) => OutboxStatus::Sent { possible_duplicate: row.fate_unknown },
                // That it was not taken is on record already, or will be by whoever sees to what was left.
                Err(_) if answer.duplicate => return None,
                Err((reason, _)) => OutboxStatus::Undelivered { reason: reason.clone() },
            };
            Some((row, status))
        };
        let fates: Vec<(Row, OutboxStatus)> = rows.into_iter().filter_map(fate).collect();
        // An answer that was given is given again to whoever asks for it again, on record or not.
        if let Err(error) = self.record(fates.clone(), Promise::Ordered).await
            && error.may_pass()
        {
            // The next answer does not wait for it.
            let engine = Arc::clone(self);
            self.tasks.spawn(async move { engine.record_fates(fates, None).await });
        }
    }

    /// Whether a message of an event that was sent again is for the caller that waits, and none has taken it.
    pub(crate) fn is_not_given(&self, event: &Event, row: &OutboxRecord) -> bool {
        let is_open = match &row.status {
            OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => true,
            // Whoever was to give it died.
            OutboxStatus::Waiting { .. } => is_left(self, row.owner.as_deref()),
            OutboxStatus::Sent { .. } => false,
        };
        is_open && row.message.channel == event.source && self.services.caller_waits(&event.source)
    }

    /// Sends one message until its fate is known, or the host stops. Whoever waits in this process waits for the first
    /// attempt.
    async fn send(&self, address: &Address, mut row: Row, mut receipt: Option<Receipt>) {
        loop {
            let attempted = tokio::select! {
                biased;
                attempted = self.attempt(&row) => attempted,
                // Whoever takes it over does not know its fate either.
                () = self.giving_up.cancelled() => {
                    not_sent_yet(receipt);
                    return self.outbox.leave(address);
                }
            };
            let (reason, fate) = match attempted {
                Ok(()) => {
                    let status = OutboxStatus::Sent { possible_duplicate: row.fate_unknown };
                    return self.record_fates(vec![(row, status)], receipt).await;
                }
                Err(failed) => failed,
            };
            if row.caller_gone {
                // That callers go is no trouble, and it is on record.
                tracing::info!(channel = %row.message.channel, "a caller is gone");
            } else {
                tracing::warn!(channel = %row.message.channel, %reason, "a message could not be delivered");
            }
            if let Some(receipt) = receipt.take() {
                receipt.undelivered(&reason);
            }
            row.attempts += 1;
            row.fate_unknown |= fate == Fate::Unknown;
            if fate == Fate::Hopeless || row.attempts >= ATTEMPTS {
                return self.record_fates(vec![(row, OutboxStatus::Undelivered { reason })], receipt).await;
            }
            let status =
                OutboxStatus::Waiting { attempts: row.attempts, fate_unknown: row.fate_unknown, reason: Some(reason) };
            let wait = BACKOFF.after(row.attempts);
            // Unrecorded it still waits, and may be sent again.
            let _unrecorded = self.record(vec![(row.clone(), status)], Promise::Durable).await;
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
        if row.caller_gone {
            return Err((CALLER_GONE.to_owned(), Fate::Hopeless));
        }
        let marked = row.fate_unknown.then(|| row.message.clone().possible_duplicate());
        isolated(channel.send(marked.as_ref().unwrap_or(&row.message)), SEND_DEADLINE).await
    }

    /// Records what became of messages. If that fails they still wait in the store, and may be sent again.
    pub(crate) async fn record(&self, fates: Vec<(Row, OutboxStatus)>, promise: Promise) -> Result<(), StoreError> {
        if fates.is_empty() {
            return Ok(());
        }
        let facts = fates.into_iter().map(|(row, status)| Fact::Delivery { id: row.id, status }).collect();
        let recorded = self.services.tapes.store().commit(Batch { promise, facts, ..Batch::new() }).await;
        if let Err(error) = &recorded {
            tracing::warn!(%error, "the fate of a message could not be recorded");
        }
        recorded.map(drop)
    }
}

/// Whoever waits in this process is told that a message waits for the next start.
fn not_sent_yet(receipt: Option<Receipt>) {
    if let Some(receipt) = receipt {
        receipt.undelivered(LEFT);
    }
}

/// Whether a process with these channels listening may send what was left for one: it listens here, or nobody ever
/// will again.
pub(crate) fn may_send(channel: Option<&Arc<dyn Channel>>, listens: bool) -> bool {
    listens || channel.is_some_and(|channel| channel.capabilities().caller_waits)
}
