//! To the channels: stream events while a run goes on, final messages from the outbox.

use capstan_hooks::Inbound;
use capstan_protocol::{EventKey, StreamEvent};
use capstan_tape::{Batch, Fact, OutboxStatus, StoreError};

use crate::services::Services;

/// Shows a stream event to the channel the turn answers on, if there is one that wants to see it.
pub(crate) async fn show(services: &Services, event: &StreamEvent, inbound: &Inbound) {
    let Some(channel) = services.channel(&inbound.channel()) else { return };
    if !channel.capabilities().streaming {
        return;
    }
    if let Err(error) = channel.on_event(event, inbound).await {
        tracing::warn!(%error, "a stream event could not be shown");
    }
}

/// Sends what waits in the outbox for an event, and records what became of it.
pub(crate) async fn send_waiting(services: &Services, event: &EventKey) -> Result<Vec<OutboxStatus>, StoreError> {
    let store = services.tapes.store();
    let mut statuses = Vec::new();
    for row in store.outbox(event).await? {
        if row.status != OutboxStatus::Waiting {
            continue;
        }
        let sent = match services.channel(&row.message.channel) {
            Some(channel) => channel.send(&row.message).await.map_err(|error| error.message),
            None => Err(format!("there is no channel {}", row.message.channel)),
        };
        let status = match sent {
            Ok(()) => OutboxStatus::Sent,
            Err(reason) => {
                tracing::warn!(channel = %row.message.channel, %reason, "a message could not be delivered");
                OutboxStatus::Undelivered { reason }
            }
        };
        let mut batch = Batch::new();
        batch.push(Fact::Delivery { id: row.id, status: status.clone() });
        store.commit(batch).await?;
        statuses.push(status);
    }
    Ok(statuses)
}
