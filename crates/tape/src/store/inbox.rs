//! Accepted events.

use async_trait::async_trait;
use capstan_protocol::{EventKey, TapeName};

use super::RowPages;
use crate::{InFlightEvent, InboxRecord, SettledEvent, StoreError};

/// Accepted events, from acceptance to outcome.
#[async_trait]
pub trait InboxStore: Send + Sync + 'static {
    /// Accepted event with this key.
    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError>;

    /// Event with this key, if it has no outcome yet.
    async fn in_flight_event(&self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError>;

    /// Events without an outcome, of one tape or of all, after the event `after`; ordered by tape, entry and key, at
    /// most `limit`.
    async fn in_flight_page(
        &self,
        tape: Option<&TapeName>,
        after: Option<&InFlightEvent>,
        limit: usize,
    ) -> Result<Vec<InFlightEvent>, StoreError>;

    /// All events without an outcome, of one tape or of all, ordered by tape and entry.
    fn in_flight_events(&self, tape: Option<&TapeName>) -> RowPages<'_, InFlightEvent> {
        let tape = tape.cloned();
        RowPages::new(move |after: Option<InFlightEvent>, limit| {
            let tape = tape.clone();
            Box::pin(async move { self.in_flight_page(tape.as_ref(), after.as_ref(), limit).await })
        })
    }

    /// Events with an outcome and with keys after `after`, ordered by key, at most `limit`.
    async fn settled_page(&self, after: Option<&EventKey>, limit: usize) -> Result<Vec<SettledEvent>, StoreError>;

    /// All events with an outcome, ordered by key.
    fn settled_events(&self) -> RowPages<'_, SettledEvent> {
        RowPages::new(move |after: Option<SettledEvent>, limit| {
            Box::pin(async move { self.settled_page(after.as_ref().map(|event| &event.key), limit).await })
        })
    }
}
