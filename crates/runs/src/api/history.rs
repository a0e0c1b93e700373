//! Methods of `history.*`: the dialogue of a session.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{HistoryPage, HistorySearch};
use capstan_hooks::contracts::{ApiMethod, CursorPage, HistoryMessage, MessageEvent, PageRequest};
use capstan_protocol::run_api::HistorySearchCall;
use capstan_protocol::{
    ApiError, ChatMessage, Content, ContentPart, EntryId, Event, EventKey, HistoryOperation, MessageRole, ReadScope,
    RunId, SessionId, TapeName,
};
use capstan_tape::{
    Entry, EntryKind, EntryOrder, EventAcceptance, Query, StoreError, TapeAddress, TapeSlice, meta_keys, tape_name,
};
use serde::Deserialize as _;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::tape::admit_search;
use super::{paging, store_api_error};
use crate::attachments;
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// Maximum number of reads of the tape for one page.
const MAX_HISTORY_READS: usize = 16;

impl MethodHandler for HistoryPage {
    fn permission(run: &Run, call: &PageRequest) -> RequiredPermission {
        RequiredPermission::History(HistoryOperation::Page, required_reach(run, call.session.as_ref()))
    }

    fn payload(_: &Run, call: &PageRequest) -> PayloadSize {
        PayloadSize::Arguments(page_request_size(call))
    }

    async fn handle(run: &Arc<Run>, call: PageRequest, _: CallPermit) -> Result<CursorPage<HistoryMessage>, ApiError> {
        let (limit, tape) = (paging::clamp_limit(call.limit)?, resolve_tape(run, call.session.as_ref()).await?);
        let mut cursor = TapeCursor::from_call(ApiMethod::HistoryPage, &tape, &call)?;
        let mut items = Vec::new();
        for _ in 0..MAX_HISTORY_READS {
            let slice = TapeSlice { kinds: vec![EntryKind::Message], ..cursor.next_slice(limit - items.len()) };
            let entries = run.environment.tapes.read(&tape, &slice).await.map_err(|error| store_api_error(&error))?;
            let Some(last) = entries.last() else { return Ok(CursorPage { items, next: None }) };
            cursor.last_read = Some(last.id);
            for entry in &entries {
                items.extend(dialogue_message(run, entry).await?);
            }
            if items.len() >= limit {
                break;
            }
        }
        Ok(CursorPage { items, next: cursor.encode_cursor() })
    }
}

impl MethodHandler for HistorySearch {
    fn permission(run: &Run, call: &HistorySearchCall) -> RequiredPermission {
        RequiredPermission::History(HistoryOperation::Search, required_reach(run, call.session.as_ref()))
    }

    fn payload(_: &Run, call: &HistorySearchCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.text))
    }

    async fn handle(run: &Arc<Run>, call: HistorySearchCall, _: CallPermit) -> Result<Vec<HistoryMessage>, ApiError> {
        let (limit, tape) = (paging::clamp_limit(call.limit)?, resolve_tape(run, call.session.as_ref()).await?);
        let _permit = admit_search(run, &call.text).await?;
        let query = Query { kinds: vec![EntryKind::Message], limit: Some(limit), ..Query::search(&call.text) };
        let found = run.environment.tapes.query(&tape, &query).await.map_err(|error| store_api_error(&error))?;
        let mut messages = Vec::new();
        for entry in &found {
            messages.extend(dialogue_message(run, entry).await?);
        }
        Ok(messages)
    }
}

/// Reach that the grant needs to read a session.
pub(super) fn required_reach(run: &Run, session: Option<&SessionId>) -> ReadScope {
    match session {
        Some(session) if *session != run.context.conversation.session_id => ReadScope::Workspace,
        _ => ReadScope::Conversation,
    }
}

pub(super) fn page_request_size(call: &PageRequest) -> u64 {
    optional_text_size(call.cursor.as_deref()) + optional_text_size(call.session.as_ref().map(SessionId::as_str))
}

/// Message of an entry, if it is part of the dialogue, with the events that it was built from.
async fn dialogue_message(run: &Run, entry: &Entry) -> Result<Option<HistoryMessage>, ApiError> {
    if entry.is_hidden() {
        return Ok(None);
    }
    let Ok(message) = ChatMessage::deserialize(&entry.payload) else { return Ok(None) };
    if !matches!(message.role, MessageRole::User | MessageRole::Assistant) {
        return Ok(None);
    }
    let events = message_events(run, entry).await?;
    let content = if run.grant().may.prompt || events.is_empty() { message.content } else { said_content(&events) };
    Ok(Some(HistoryMessage {
        entry: entry.id,
        role: message.role,
        text: content.text(),
        date: entry.date.as_str().to_owned(),
        run_id: entry.run_id().map(RunId::new),
        content,
        events,
    }))
}

/// Texts and attachments of the events of a message, without the additions of the prompt that was built from them.
fn said_content(events: &[MessageEvent]) -> Content {
    let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).filter(|text| !text.is_empty()).collect();
    let text = texts.join("\n");
    let mut attachments = events.iter().flat_map(|event| event.contents.iter().cloned()).peekable();
    if attachments.peek().is_none() {
        return Content::Text(text);
    }
    let text = (!text.is_empty()).then(|| ContentPart::from_text(text));
    Content::Parts(text.into_iter().chain(attachments).collect())
}

/// Events that the message of an entry was built from, as they were accepted and in that order. The entry names the event
/// that the turn answers first.
async fn message_events(run: &Run, entry: &Entry) -> Result<Vec<MessageEvent>, ApiError> {
    let keys = entry.meta.get(meta_keys::EVENTS).cloned().unwrap_or_default();
    let keys: Vec<EventKey> = serde_json::from_value(keys).unwrap_or_default();
    let tapes = &run.environment.tapes;
    let mut events = Vec::new();
    for key in keys {
        let record = tapes.store().inbox_record(&key).await.map_err(|error| store_api_error(&error))?;
        let Some(record) = record else { continue };
        let slice = TapeSlice::single(record.entry);
        let accepted =
            tapes.read_any_generation(&record.tape, &slice).await.map_err(|error| store_api_error(&error))?;
        let accepted = accepted.first().and_then(EventAcceptance::from_entry);
        events.extend(accepted.map(|accepted| (record.entry, message_event(run, record.entry, &accepted.event))));
    }
    events.sort_by_key(|(entry, _)| *entry);
    Ok(events.into_iter().map(|(_, event)| event).collect())
}

/// Event of a message. Its attachments are artifacts for a run that may read artifacts.
pub(super) fn message_event(run: &Run, entry: EntryId, event: &Event) -> MessageEvent {
    let mut message = MessageEvent::from(event);
    if !run.grant().may.artifacts.is_empty() {
        let attachments = attachments::event_attachments(entry, event);
        message.attachments = attachments.map(|attachment| attachment.artifact).collect();
    }
    message
}

/// Tape of another session of the workspace, or the run's own tape with all pending entries written.
pub(super) async fn resolve_tape(run: &Run, session: Option<&SessionId>) -> Result<TapeName, ApiError> {
    let other_session = session.filter(|session| **session != run.context.conversation.session_id);
    if let Some(session) = other_session {
        let workspace = run.environment.workspace_id.clone();
        let address = TapeAddress { workspace, session: session.clone() };
        return match run.environment.tapes.session_tape(&address).await {
            // Like a session without entries.
            Err(StoreError::TapeNotFound { .. }) => Ok(tape_name(&address)),
            tape => tape.map_err(|error| store_api_error(&error)),
        };
    }
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    Ok(run.journal.tape().clone())
}

/// Position on a tape that is read page by page.
pub(super) struct TapeCursor {
    method: ApiMethod,
    list_key: String,
    order: EntryOrder,
    /// Last entry that was read.
    pub(super) last_read: Option<EntryId>,
}

impl TapeCursor {
    /// Position at which a call starts to read.
    pub(super) fn from_call(method: ApiMethod, tape: &TapeName, call: &PageRequest) -> Result<Self, ApiError> {
        // A cursor of one order is not valid for the other.
        let list_key = format!("{tape} {:?}", call.order);
        let start = Self { method, list_key, order: call.order, last_read: None };
        let Some(cursor) = &call.cursor else { return Ok(start) };
        let last_read = start.paged_list().decode_cursor(cursor)?.parse().unwrap_or_default();
        Ok(Self { last_read: Some(EntryId(last_read)), ..start })
    }

    /// Slice of the next entries.
    pub(super) fn next_slice(&self, limit: usize) -> TapeSlice {
        let slice = TapeSlice { order: self.order, limit: Some(limit), ..TapeSlice::default() };
        match (self.order, self.last_read) {
            (EntryOrder::OldestFirst, after) => TapeSlice { after, ..slice },
            (EntryOrder::NewestFirst, before) => {
                TapeSlice { up_to: before.map(|before| EntryId(before.0.saturating_sub(1))), ..slice }
            }
        }
    }

    /// Cursor of the next page.
    pub(super) fn encode_cursor(&self) -> Option<String> {
        self.last_read.map(|last_read| self.paged_list().encode_cursor(&last_read.to_string()))
    }

    fn paged_list(&self) -> PagedList<'_> {
        PagedList { method: self.method, list_key: &self.list_key }
    }
}
