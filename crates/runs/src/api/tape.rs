//! Methods of `tape.*`: the session's tape.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{
    TapeAnchors, TapeHandoff, TapeInfo, TapeNote, TapeReset, TapeSay, TapeSearch, TapeView,
};
use capstan_protocol::run_api::{
    AnchorsCall, EmptyCall, HandoffCall, NoteCall, ResetCall, SayCall, TapeEntry, TapeSearchCall, TapeSummary,
};
use capstan_protocol::{ApiError, ApiErrorCode, ChatMessage, TapeAccess};
use capstan_tape::{
    Entry, EntryDraft, EntryKind, EntryOrder, Fact, Query, TapeEventKind, TapeRepository, TapeSlice, conversation,
};

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::store_api_error;
use crate::nesting;
use crate::payload_size::{PayloadSize, content_size, json_size, text_size};
use crate::run::call_limiter::CallPermit;
use crate::run::{PendingHandoff, Run};

/// Maximum number of entries in a response: each may be a megabyte.
const MAX_TAPE_ENTRIES_READ: usize = 200;
/// Entries read at once to count them.
const ENTRY_COUNT_PAGE_SIZE: usize = 100;

const TAPE_READ: RequiredPermission = RequiredPermission::Tape(TapeAccess::Read);
const TAPE_WRITE: RequiredPermission = RequiredPermission::Tape(TapeAccess::Write);

impl MethodHandler for TapeView {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<ChatMessage>, ApiError> {
        run.ingest_message();
        // Includes pending entries, which are committed before the run acts on the view.
        let view = &run.environment.view;
        let messages = run.journal.view(view.kinds(), |window| view.messages(window)).await;
        Ok(conversation::normalize_request(messages.map_err(|error| store_api_error(&error))?))
    }
}

impl MethodHandler for TapeHandoff {
    fn permission(_: &Run, _: &HandoffCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &HandoffCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name) + json_size(&call.state))
    }

    async fn handle(run: &Arc<Run>, call: HandoffCall, _: CallPermit) -> Result<(), ApiError> {
        let HandoffCall { name, state } = call;
        if name.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "an anchor needs a name"));
        }
        nesting::check_nesting(&state)?;
        run.request_handoff(PendingHandoff { name, state }).await.map_err(|error| store_api_error(&error))
    }
}

impl MethodHandler for TapeNote {
    fn permission(_: &Run, _: &NoteCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &NoteCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name) + json_size(&call.data))
    }

    async fn handle(run: &Arc<Run>, call: NoteCall, _: CallPermit) -> Result<(), ApiError> {
        let NoteCall { name, data } = call;
        if TapeEventKind::is_reserved_name(&name) {
            let message = format!("events named {name:?} are written by the host alone");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        nesting::check_nesting(&data)?;
        run.append(EntryDraft::event(&name, data));
        Ok(())
    }
}

impl MethodHandler for TapeSay {
    fn permission(_: &Run, _: &SayCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &SayCall) -> PayloadSize {
        PayloadSize::Content(content_size(&call.content))
    }

    async fn handle(run: &Arc<Run>, call: SayCall, _: CallPermit) -> Result<(), ApiError> {
        nesting::check_nesting(&call.content)?;
        run.append(EntryDraft::message(&ChatMessage::user(call.content)));
        Ok(())
    }
}

impl MethodHandler for TapeReset {
    fn permission(_: &Run, _: &ResetCall) -> RequiredPermission {
        TAPE_WRITE
    }

    async fn handle(run: &Arc<Run>, call: ResetCall, _: CallPermit) -> Result<(), ApiError> {
        let tapes = flushed_tapes(run).await?;
        let tape = run.journal.tape();
        let refuse = |message: &str| Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        if !run.is_command() {
            return refuse("only a person can reset the tape; tape.handoff starts a new context");
        }
        let mut in_flight = tapes.store().in_flight_events(Some(tape));
        while let Some(event) = in_flight.next().await.map_err(|error| store_api_error(&error))? {
            let is_own = run.served_events.iter().any(|(key, _)| *key == event.key);
            // A waiting event gets its turn on the new tape. The message of an ingested event would be lost.
            if !is_own && event.ingestion.is_some() {
                return refuse("another message of this session is in progress; try again when it is answered");
            }
        }
        run.journal.push(Fact::ResetTape { tape: tape.clone(), archive: call.archive });
        for draft in EntryDraft::session_start() {
            run.append(draft);
        }
        run.journal.flush().await.map_err(|error| store_api_error(&error))
    }
}

impl MethodHandler for TapeInfo {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<TapeSummary, ApiError> {
        let tapes = flushed_tapes(run).await?;
        let name = run.journal.tape();
        let record = tapes.record(name).await.map_err(|error| store_api_error(&error))?;
        let head = record.map(|record| record.head).unwrap_or_default();
        // A command runs concurrently with a turn that writes: entries after the head are not counted.
        let up_to_head = TapeSlice { up_to: Some(head), ..TapeSlice::default() };
        let last_anchor = TapeSlice { up_to: Some(head), ..TapeSlice::last_anchor() };
        let last_anchor = tapes.read(name, &last_anchor).await.map_err(|error| store_api_error(&error))?.pop();
        let anchors = TapeSlice { kinds: vec![EntryKind::Anchor], ..up_to_head.clone() };
        let since_anchor = TapeSlice { after: last_anchor.as_ref().map(|anchor| anchor.id), ..up_to_head };
        Ok(TapeSummary {
            name: name.clone(),
            head,
            anchors: count_entries(run, anchors).await?,
            last_anchor: last_anchor.as_ref().and_then(Entry::name).map(str::to_owned),
            entries_since_last_anchor: count_entries(run, since_anchor).await?,
        })
    }
}

impl MethodHandler for TapeAnchors {
    fn permission(_: &Run, _: &AnchorsCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, call: AnchorsCall, _: CallPermit) -> Result<Vec<TapeEntry>, ApiError> {
        let tapes = flushed_tapes(run).await?;
        let slice = TapeSlice {
            kinds: vec![EntryKind::Anchor],
            order: EntryOrder::NewestFirst,
            limit: Some(call.limit.min(MAX_TAPE_ENTRIES_READ)),
            ..TapeSlice::default()
        };
        let anchors = tapes.read(run.journal.tape(), &slice).await.map_err(|error| store_api_error(&error))?;
        Ok(anchors.into_iter().map(TapeEntry::from).collect())
    }
}

impl MethodHandler for TapeSearch {
    fn permission(_: &Run, _: &TapeSearchCall) -> RequiredPermission {
        TAPE_READ
    }

    fn payload(_: &Run, call: &TapeSearchCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.text))
    }

    async fn handle(run: &Arc<Run>, call: TapeSearchCall, _: CallPermit) -> Result<Vec<TapeEntry>, ApiError> {
        let tapes = flushed_tapes(run).await?;
        let kinds = vec![EntryKind::Message, EntryKind::ToolCall, EntryKind::ToolResult, EntryKind::Anchor];
        let query = Query { kinds, limit: Some(call.limit.min(MAX_TAPE_ENTRIES_READ)), ..Query::search(&call.text) };
        let found = tapes.query(run.journal.tape(), &query).await.map_err(|error| store_api_error(&error))?;
        Ok(found.into_iter().map(TapeEntry::from).collect())
    }
}

/// Tapes, with the pending entries of the run written.
async fn flushed_tapes(run: &Run) -> Result<&TapeRepository, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    Ok(&run.environment.tapes)
}

/// Counts entries, with only a page of them in memory at once.
async fn count_entries(run: &Run, mut slice: TapeSlice) -> Result<u64, ApiError> {
    slice.limit = Some(ENTRY_COUNT_PAGE_SIZE);
    let mut count = 0;
    loop {
        let page = run.environment.tapes.read(run.journal.tape(), &slice).await;
        let page = page.map_err(|error| store_api_error(&error))?;
        let Some(last) = page.last() else { return Ok(count) };
        slice.after = Some(last.id);
        count += page.len() as u64;
    }
}
