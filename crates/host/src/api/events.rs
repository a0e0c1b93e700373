//! The log of events, as a run may read it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, EventRecord, EventsApi, Page, PageCall};
use capstan_protocol::{ApiError, ApiErrorCode, EntryId, Event, EventId, EventKey, Reach};
use capstan_tape::{AcceptedRecord, Logged, Order, Slice, TapeAddress, tape_name};
use serde::Deserialize as _;

use super::history::TapePlace;
use super::{parts, store_failed};
use crate::runs::run::Run;

pub(super) struct Events(pub(super) Arc<Run>);

#[async_trait]
impl EventsApi for Events {
    async fn get(&self, id: &EventId) -> Result<EventRecord, ApiError> {
        let run = &self.0;
        let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no event {id} in reach"));
        let key = EventKey { event_id: id.clone(), ..EventKey::from(&run.context.event) };
        let record = run.services.tapes.store().accepted(&key).await.map_err(|error| store_failed(&error))?;
        let record = record.filter(|record| self.is_in_reach(record)).ok_or_else(unknown)?;
        let told = run.services.tapes.read_any_generation(&record.tape, &Slice::just(record.entry)).await;
        let told = told.map_err(|error| store_failed(&error))?.pop();
        let event = told.and_then(|entry| Event::deserialize(&entry.payload["data"]["event"]).ok());
        let (outcome, run_id) = record.outcome.unzip();
        Ok(EventRecord {
            event: event.ok_or_else(unknown)?,
            session_id: record.session,
            at: record.at,
            outcome,
            run_id: run_id.flatten(),
        })
    }

    async fn page(&self, call: PageCall) -> Result<Page<Logged>, ApiError> {
        let (limit, tape) = (parts::most(call.limit)?, self.0.tape_of(call.session.as_ref()).await?);
        let mut place = TapePlace::of(ApiMethod::EventsPage, &tape, &call)?;
        let tapes = &self.0.services.tapes;
        let entries = tapes.read(&tape, &place.slice(limit)).await.map_err(|error| store_failed(&error))?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        // The log is told in the order of the tape; which entries it tells of was found either way.
        let (from, to) = (first.id.min(last.id), first.id.max(last.id));
        let slice = Slice { after: Some(EntryId(from.0.saturating_sub(1))), up_to: Some(to), ..Slice::default() };
        let mut items = tapes.event_log(&tape, &slice).await.map_err(|error| store_failed(&error))?;
        if call.order == Order::NewestFirst {
            items.reverse();
        }
        place.at = Some(last.id);
        Ok(Page { items, next: place.cursor().filter(|_| entries.len() == limit) })
    }
}

impl Events {
    /// Whether an event belongs to the run's own session, or to its workspace where the grant reaches so far.
    fn is_in_reach(&self, record: &AcceptedRecord) -> bool {
        let run = &self.0;
        let workspace = run.services.workspace_id.clone();
        let is_own = record.session == run.context.conversation.session_id;
        let is_of_workspace = record.tape == tape_name(&TapeAddress { workspace, session: record.session.clone() });
        is_of_workspace && (is_own || run.grant().may.reach >= Reach::Workspace)
    }
}
