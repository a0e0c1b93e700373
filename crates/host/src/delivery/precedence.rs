//! Messages to one chat keep their order over all processes of a home: one goes out when every earlier one has.

use std::sync::Arc;
use std::time::Duration;

use capstan_tape::{OutboxId, OutboxRecord, OutboxStatus, Promise, StoreError};

use super::outbox::Row;
use super::parcel::Receipt;
use crate::engine::Engine;
use crate::recovery::left::{is_left, is_served};

/// How long the first wait is before it is looked again whether earlier messages have gone out; each is twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// How long such a wait is at most.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// How long whoever waits in this process is made to wait for the messages of others.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many earlier messages are read at once. The first of them that counts is enough.
const PAGE: usize = 16;

/// Why whoever waits in this process was not made to wait longer.
pub(crate) const BEHIND_OTHERS: &str = "an earlier message to this chat is still to be sent by another process";

/// How long a chat has waited for the messages of other processes.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    waited: Duration,
    next: Duration,
}

impl Behind {
    /// How long to wait before looking again.
    pub(crate) fn look_again(&mut self) -> Duration {
        self.next = (self.next * 2).clamp(FIRST_LOOK, LONGEST_LOOK);
        self.waited += self.next;
        self.next
    }

    /// Whether that takes long.
    pub(crate) fn takes_long(&self) -> bool {
        self.waited > PATIENCE
    }
}

impl Engine {
    /// Records the fates of messages, as often as it takes until the host gives up: other processes wait for it. Whoever
    /// waits in this one does not.
    pub(crate) async fn record_fates(&self, fates: Vec<(Row, OutboxStatus)>, mut receipt: Option<Receipt>) {
        let mut look = Behind::default();
        loop {
            match self.record(fates.clone(), Promise::Durable).await {
                Err(error) if error.may_pass() => drop(receipt.take()),
                _ => return,
            }
            tokio::select! {
                () = tokio::time::sleep(look.look_again()) => {}
                () = self.giving_up.cancelled() => return,
            }
        }
    }

    /// Whether a message has to wait for an earlier one to the same chat that another process has to send. What a dead one
    /// left is taken over here where it may be, and is then sent first.
    ///
    /// Rows are numbered in the order of their commits, so no earlier one can come up later. Those of this process are
    /// in its own queue, or about to be: for these it is not waited long. Another workspace may have another account on a
    /// channel of the same name, and what a dead process left may be for a channel that does not listen here, which
    /// nobody may ever send: neither is waited for.
    pub(crate) async fn is_behind_others(self: &Arc<Self>, row: &Row, behind: &Behind) -> bool {
        let channel = self.services.channel(&row.message.channel);
        if channel.is_none_or(|channel| channel.capabilities().caller_waits) {
            return false;
        }
        match self.find_others_before(row, behind).await {
            Ok(is_behind) => is_behind,
            Err(error) => {
                tracing::warn!(%error, "which messages go before another could not be told");
                true
            }
        }
    }

    async fn find_others_before(self: &Arc<Self>, row: &Row, behind: &Behind) -> Result<bool, StoreError> {
        let me = self.services.settings.owner.name();
        let mut after = OutboxId(0);
        loop {
            let page = self.services.tapes.store().waiting_before(row.id, &row.message, after, PAGE).await?;
            let Some(last) = page.last().map(|other| other.id) else { return Ok(false) };
            for other in page {
                let is_ours = other.owner.as_deref() == Some(me);
                if is_ours && behind.takes_long() || !self.is_of_this_workspace(&other).await? {
                    continue;
                }
                if is_left(self, other.owner.as_deref()) {
                    if !is_served(self, &other.message.channel) {
                        continue;
                    }
                    self.take_over_messages().await?;
                }
                return Ok(true);
            }
            after = last;
        }
    }

    /// Whether a message answers an event of this workspace, or of none that is known.
    pub(crate) async fn is_of_this_workspace(&self, row: &OutboxRecord) -> Result<bool, StoreError> {
        let tape = match self.services.tapes.store().accepted(&row.event).await? {
            Some(event) => self.services.tapes.record(&event.tape).await?,
            None => None,
        };
        Ok(tape.is_none_or(|tape| self.is_ours(&tape)))
    }
}
