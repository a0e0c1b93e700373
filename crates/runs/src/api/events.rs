//! Methods of `events.*`: the log of events.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{EventsGet, EventsPage};
use capstan_hooks::contracts::{ApiMethod, CursorPage, EventLogItem, EventRecord, PageRequest};
use capstan_protocol::run_api::{EntryOrder, EventGetCall};
use capstan_protocol::{ApiError, ApiErrorCode, EntryId, EventKey, EventOperation, ReadScope};
use capstan_tape::{EventAcceptance, InboxRecord, TapeAddress, TapeSlice, tape_name};

use super::history::{self, TapeCursor, page_request_size, required_reach};
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::payload_size::{PayloadSize, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

impl MethodHandler for EventsGet {
    fn permission(_: &Run, _: &EventGetCall) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Get, ReadScope::Conversation)
    }

    fn payload(_: &Run, call: &EventGetCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: EventGetCall, _: CallPermit) -> Result<Box<EventRecord>, ApiError> {
        let id = call.id;
        let unknown =
            || ApiError::new(ApiErrorCode::NotFound, format!("there is no event {id} that this run can read"));
        let key = EventKey { event_id: id.clone(), ..EventKey::from(&run.context.event) };
        let record = run.environment.tapes.store().inbox_record(&key).await.map_err(|error| store_api_error(&error))?;
        let record = record.filter(|record| is_in_reach(run, record)).ok_or_else(unknown)?;
        let entries = run.environment.tapes.read_any_generation(&record.tape, &TapeSlice::single(record.entry)).await;
        let entry = entries.map_err(|error| store_api_error(&error))?.pop();
        let accepted = entry.as_ref().and_then(EventAcceptance::from_entry).ok_or_else(unknown)?;
        let (outcome, run_id) = record.outcome.unzip();
        Ok(Box::new(EventRecord {
            event: *accepted.event,
            session_id: record.session,
            accepted_at: record.accepted_at,
            outcome,
            run_id: run_id.flatten(),
        }))
    }
}

impl MethodHandler for EventsPage {
    fn permission(run: &Run, call: &PageRequest) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Page, required_reach(run, call.session.as_ref()))
    }

    fn payload(_: &Run, call: &PageRequest) -> PayloadSize {
        PayloadSize::Arguments(page_request_size(call))
    }

    async fn handle(run: &Arc<Run>, call: PageRequest, _: CallPermit) -> Result<CursorPage<EventLogItem>, ApiError> {
        let (limit, tape) =
            (paging::clamp_limit(call.limit)?, history::resolve_tape(run, call.session.as_ref()).await?);
        let mut cursor = TapeCursor::from_call(ApiMethod::EventsPage, &tape, &call)?;
        let tapes = &run.environment.tapes;
        let entries = tapes.read(&tape, &cursor.next_slice(limit)).await.map_err(|error| store_api_error(&error))?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(CursorPage { items: Vec::new(), next: None });
        };
        // The event log is read in the order of the tape, over the range of entries that the page covers.
        let (from, to) = (first.id.min(last.id), first.id.max(last.id));
        let slice =
            TapeSlice { after: Some(EntryId(from.0.saturating_sub(1))), up_to: Some(to), ..TapeSlice::default() };
        let mut items = tapes.event_log(&tape, &slice).await.map_err(|error| store_api_error(&error))?;
        if call.order == EntryOrder::NewestFirst {
            items.reverse();
        }
        cursor.last_read = Some(last.id);
        let items = items.into_iter().map(EventLogItem::from).collect();
        Ok(CursorPage { items, next: cursor.encode_cursor().filter(|_| entries.len() == limit) })
    }
}

/// Returns true if an event belongs to the run's own session, or to its workspace if the grant reaches that far.
fn is_in_reach(run: &Run, record: &InboxRecord) -> bool {
    let workspace = run.environment.workspace_id.clone();
    let is_own = record.session == run.context.conversation.session_id;
    let is_in_workspace = record.tape == tape_name(&TapeAddress { workspace, session: record.session.clone() });
    is_in_workspace && (is_own || run.grant().may.reach >= ReadScope::Workspace)
}
