//! Methods of `events.*`: the log of events.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{EventsGet, EventsPage, EventsRaw};
use capstan_hooks::contracts::{ApiMethod, CursorPage, EventLogItem, EventRecord, PageRequest, RawPayloadPart};
use capstan_protocol::run_api::{EntryOrder, EventGetCall, RawPayloadCall};
use capstan_protocol::{ApiError, ApiErrorCode, EntryId, EventId, EventKey, EventOperation, ReadScope};
use capstan_tape::{EventAcceptance, InboxRecord, StoreError, TapeAddress, TapeSlice};

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
        let (record, accepted) = find_event(run, &call.id).await?;
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

impl MethodHandler for EventsRaw {
    fn permission(_: &Run, _: &RawPayloadCall) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Get, ReadScope::Conversation)
    }

    fn payload(_: &Run, call: &RawPayloadCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: RawPayloadCall, _: CallPermit) -> Result<RawPayloadPart, ApiError> {
        let (_, accepted) = find_event(run, &call.id).await?;
        let content = match (accepted.raw, &accepted.event.raw_ref) {
            (Some(text), _) => Some(text.into_bytes()),
            (None, Some(raw)) => {
                let stored = run.environment.tapes.store().blob(&raw.blob).await;
                stored.map_err(|error| store_api_error(&error))?
            }
            (None, None) => None,
        };
        let content = content.ok_or_else(|| {
            ApiError::new(ApiErrorCode::NotFound, format!("the raw payload of event {} is not stored", call.id))
        })?;
        let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let part = content[clamp(call.offset)..clamp(call.offset.saturating_add(call.limit))].to_vec();
        Ok(RawPayloadPart { bytes: content.len() as u64, offset: call.offset, content: part })
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

/// An event with the source of the run's own event that the run may read, as it was accepted.
async fn find_event(run: &Run, id: &EventId) -> Result<(InboxRecord, EventAcceptance), ApiError> {
    let unknown = || ApiError::new(ApiErrorCode::NotFound, format!("there is no event {id} that this run can read"));
    let key = EventKey { event_id: id.clone(), ..EventKey::from(&run.context.event) };
    let record = run.environment.tapes.store().inbox_record(&key).await.map_err(|error| store_api_error(&error))?;
    let record = record.ok_or_else(unknown)?;
    if !is_in_reach(run, &record).await? {
        return Err(unknown());
    }
    let entries = run.environment.tapes.read_any_generation(&record.tape, &TapeSlice::single(record.entry)).await;
    let entry = entries.map_err(|error| store_api_error(&error))?.pop();
    let accepted = entry.as_ref().and_then(EventAcceptance::from_entry).ok_or_else(unknown)?;
    Ok((record, accepted))
}

/// Returns true if an event belongs to the run's own session, or to its workspace if the grant reaches that far.
async fn is_in_reach(run: &Run, record: &InboxRecord) -> Result<bool, ApiError> {
    let is_own = record.session == run.context.conversation.session_id;
    if !is_own && run.grant().may.reach < ReadScope::Workspace {
        return Ok(false);
    }
    let address = TapeAddress { workspace: run.environment.workspace_id.clone(), session: record.session.clone() };
    match run.environment.tapes.session_tape(&address).await {
        Ok(tape) => Ok(tape == record.tape),
        Err(StoreError::TapeNotFound { .. }) => Ok(false),
        Err(error) => Err(store_api_error(&error)),
    }
}
