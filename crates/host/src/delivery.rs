//! To the channels: stream events while a run goes on, final messages from the outbox.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_hooks::Inbound;
use capstan_hooks::contracts::{Channel, ChannelError};
use capstan_protocol::{EventKey, StreamEvent};
use capstan_tape::{Batch, Fact, OutboxStatus, StoreError};
use futures::FutureExt as _;

use crate::services::Services;

/// How long a channel may take to show a stream event: the run waits for it.
const SHOW_DEADLINE: Duration = Duration::from_secs(10);
/// How long a channel may take to send a message.
const SEND_DEADLINE: Duration = Duration::from_mins(1);

/// Shows a stream event to the channel the turn answers on, if there is one that wants to see it.
pub(crate) async fn show(services: &Services, event: &StreamEvent, inbound: &Inbound) {
    let Some(channel) = services.channel(&inbound.channel()) else { return };
    if !channel.capabilities().streaming || inbound.extensions().get::<ShowsNoMore>().is_some() {
        return;
    }
    if let Err(reason) = isolated(channel.on_event(event, inbound), SHOW_DEADLINE).await {
        tracing::warn!(channel = %channel.name(), %reason, "a stream event could not be shown, nor will the rest be");
        inbound.extensions().insert(ShowsNoMore);
    }
}

/// The channel failed to show an event of this turn: it gets the final message, and holds the run up no further.
struct ShowsNoMore;

/// Stops a channel, as far as it lets itself be stopped.
pub(crate) async fn stop(channel: &dyn Channel) {
    if let Err(reason) = isolated(channel.stop(), SHOW_DEADLINE).await {
        tracing::warn!(channel = %channel.name(), %reason, "a channel did not stop cleanly");
    }
}

/// Sends what waits in the outbox for an event, and records what became of it.
///
/// Gives the reasons of what could not be delivered.
pub(crate) async fn send_waiting(services: &Services, event: &EventKey) -> Result<Vec<String>, StoreError> {
    let store = services.tapes.store();
    let mut undelivered = Vec::new();
    for row in store.outbox(event).await? {
        if !matches!(row.status, OutboxStatus::Waiting { .. }) {
            continue;
        }
        let sent = match services.channel(&row.message.channel) {
            Some(channel) => isolated(channel.send(&row.message), SEND_DEADLINE).await,
            None => Err(format!("there is no channel {}", row.message.channel)),
        };
        let status = match sent {
            Ok(()) => OutboxStatus::sent(),
            Err(reason) => {
                tracing::warn!(channel = %row.message.channel, %reason, "a message could not be delivered");
                undelivered.push(reason.clone());
                OutboxStatus::Undelivered { reason }
            }
        };
        let mut batch = Batch::new();
        batch.push(Fact::Delivery { id: row.id, status });
        store.commit(batch).await?;
    }
    Ok(undelivered)
}

/// A channel that panics or hangs fails at what it was asked, and hurts nobody else.
async fn isolated(asked: impl Future<Output = Result<(), ChannelError>>, deadline: Duration) -> Result<(), String> {
    match tokio::time::timeout(deadline, AssertUnwindSafe(asked).catch_unwind()).await {
        Ok(Ok(done)) => done.map_err(|error| error.message),
        Ok(Err(_)) => Err("the channel crashed".to_owned()),
        Err(_) => Err("the channel did not answer in time".to_owned()),
    }
}
