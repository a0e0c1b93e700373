//! The log of events, as a run may read it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, CursorPage, EventRecord, EventsApi, PageRequest};
use capstan_protocol::{ApiError, ApiErrorCode, EntryId, EventId, EventKey, ReadScope};
use capstan_tape::{EntryOrder, EventAcceptance, EventLogRecord, InboxRecord, TapeAddress, TapeSlice, tape_name};

use super::history::TapeCursor;
use super::{paging, store_api_error};
use crate::runs::run::Run;

pub(super) struct EventsHandler(pub(super) Arc<Run>);

#[async_trait]
impl EventsApi for EventsHandler {
    async fn get(&self, id: &EventId) -> Result<EventRecord, ApiError> {
        let run = &self.0;
        let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no event {id} in reach"));
        let key = EventKey { event_id: id.clone(), ..EventKey::from(&run.context.event) };
        let record = run.services.tapes.store().inbox_record(&key).await.map_err(|error| store_api_error(&error))?;
        let record = record.filter(|record| self.is_in_reach(record)).ok_or_else(unknown)?;
        let told = run.services.tapes.read_any_generation(&record.tape, &TapeSlice::single(record.entry)).await;
        let told = told.map_err(|error| store_api_error(&error))?.pop();
        let accepted = told.as_ref().and_then(EventAcceptance::from_entry).ok_or_else(unknown)?;
        let (outcome, run_id) = record.outcome.unzip();
        Ok(EventRecord {
            event: *accepted.event,
            session_id: record.session,
            accepted_at: record.accepted_at,
            outcome,
            run_id: run_id.flatten(),
        })
    }

    async fn page(&self, call: PageRequest) -> Result<CursorPage<EventLogRecord>, ApiError> {
        let (limit, tape) = (paging::clamp_limit(call.limit)?, self.0.resolve_tape(call.session.as_ref()).await?);
        let mut place = TapeCursor::from_call(ApiMethod::EventsPage, &tape, &call)?;
        let tapes = &self.0.services.tapes;
        let entries = tapes.read(&tape, &place.next_slice(limit)).await.map_err(|error| store_api_error(&error))?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(CursorPage { items: Vec::new(), next: None });
        };
        // The log is told in the order of the tape; which entries it tells of was found either way.
        let (from, to) = (first.id.min(last.id), first.id.max(last.id));
        let slice =
            TapeSlice { after: Some(EntryId(from.0.saturating_sub(1))), up_to: Some(to), ..TapeSlice::default() };
        let mut items = tapes.event_log(&tape, &slice).await.map_err(|error| store_api_error(&error))?;
        if call.order == EntryOrder::NewestFirst {
            items.reverse();
        }
        place.last_read = Some(last.id);
        Ok(CursorPage { items, next: place.encode_cursor().filter(|_| entries.len() == limit) })
    }
}

impl EventsHandler {
    /// Whether an event belongs to the run's own session, or to its workspace where the grant reaches so far.
    fn is_in_reach(&self, record: &InboxRecord) -> bool {
        let run = &self.0;
        let workspace = run.services.workspace_id.clone();
        let is_own = record.session == run.context.conversation.session_id;
        let is_of_workspace = record.tape == tape_name(&TapeAddress { workspace, session: record.session.clone() });
        is_of_workspace && (is_own || run.grant().may.reach >= ReadScope::Workspace)
    }
}
