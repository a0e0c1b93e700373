//! What was said, as a run may read it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, CursorPage, HistoryApi, HistoryMessage, PageRequest};
use capstan_protocol::{ApiError, ChatMessage, EntryId, MessageRole, RunId, SessionId, TapeName};
use capstan_tape::{Entry, EntryKind, EntryOrder, Query, TapeAddress, TapeSlice, tape_name};
use serde::Deserialize as _;

use super::cursor::PagedList;
use super::{paging, store_api_error};
use crate::runs::run::Run;

pub(super) struct HistoryHandler(pub(super) Arc<Run>);

/// How many parts of a tape are looked at for one part of a history.
const MAX_HISTORY_READS: usize = 16;

#[async_trait]
impl HistoryApi for HistoryHandler {
    async fn page(&self, call: PageRequest) -> Result<CursorPage<HistoryMessage>, ApiError> {
        let (limit, tape) = (paging::clamp_limit(call.limit)?, self.0.resolve_tape(call.session.as_ref()).await?);
        let mut place = TapeCursor::from_call(ApiMethod::HistoryPage, &tape, &call)?;
        let mut items = Vec::new();
        for _ in 0..MAX_HISTORY_READS {
            let slice = TapeSlice { kinds: vec![EntryKind::Message], ..place.next_slice(limit - items.len()) };
            let entries = self.0.services.tapes.read(&tape, &slice).await.map_err(|error| store_api_error(&error))?;
            let Some(last) = entries.last() else { return Ok(CursorPage { items, next: None }) };
            place.last_read = Some(last.id);
            items.extend(entries.iter().filter_map(dialogue_message));
            if items.len() >= limit {
                break;
            }
        }
        Ok(CursorPage { items, next: place.encode_cursor() })
    }

    async fn search(
        &self,
        session: Option<SessionId>,
        text: &str,
        limit: usize,
    ) -> Result<Vec<HistoryMessage>, ApiError> {
        let (limit, tape) = (paging::clamp_limit(limit)?, self.0.resolve_tape(session.as_ref()).await?);
        let query = Query { kinds: vec![EntryKind::Message], limit: Some(limit), ..Query::search(text) };
        let found = self.0.services.tapes.query(&tape, &query).await.map_err(|error| store_api_error(&error))?;
        Ok(found.iter().filter_map(dialogue_message).collect())
    }
}

/// What an entry says, if it is part of the dialogue.
fn dialogue_message(entry: &Entry) -> Option<HistoryMessage> {
    if entry.is_hidden() {
        return None;
    }
    let message = ChatMessage::deserialize(&entry.payload).ok()?;
    matches!(message.role, MessageRole::User | MessageRole::Assistant).then(|| HistoryMessage {
        entry: entry.id,
        role: message.role,
        text: message.content.text(),
        date: entry.date.as_str().to_owned(),
        run_id: entry.run_id().map(RunId::new),
    })
}

impl Run {
    /// The tape of a session of the workspace, or the run's own. What the run itself has written is seen.
    pub(super) async fn resolve_tape(&self, session: Option<&SessionId>) -> Result<TapeName, ApiError> {
        let other = session.filter(|session| **session != self.context.conversation.session_id);
        if let Some(session) = other {
            let workspace = self.services.workspace_id.clone();
            return Ok(tape_name(&TapeAddress { workspace, session: session.clone() }));
        }
        self.flush_before_read().await.map_err(|error| store_api_error(&error))?;
        Ok(self.journal.tape().clone())
    }
}

/// A place on a tape that is read in parts.
pub(super) struct TapeCursor {
    method: ApiMethod,
    of: String,
    order: EntryOrder,
    /// The last entry that was read.
    pub(super) last_read: Option<EntryId>,
}

impl TapeCursor {
    /// Where a call begins to read.
    pub(super) fn from_call(method: ApiMethod, tape: &TapeName, call: &PageRequest) -> Result<Self, ApiError> {
        // The other way round it is another list.
        let place = Self { method, of: format!("{tape} {:?}", call.order), order: call.order, last_read: None };
        let Some(cursor) = &call.cursor else { return Ok(place) };
        let at = place.paged_list().decode_cursor(cursor)?.parse().unwrap_or_default();
        Ok(Self { last_read: Some(EntryId(at)), ..place })
    }

    /// What comes next.
    pub(super) fn next_slice(&self, limit: usize) -> TapeSlice {
        let slice = TapeSlice { order: self.order, limit: Some(limit), ..TapeSlice::default() };
        match (self.order, self.last_read) {
            (EntryOrder::OldestFirst, after) => TapeSlice { after, ..slice },
            (EntryOrder::NewestFirst, before) => {
                TapeSlice { up_to: before.map(|before| EntryId(before.0.saturating_sub(1))), ..slice }
            }
        }
    }

    /// What the next part is asked for with.
    pub(super) fn encode_cursor(&self) -> Option<String> {
        self.last_read.map(|at| self.paged_list().encode_cursor(&at.to_string()))
    }

    fn paged_list(&self) -> PagedList<'_> {
        PagedList { method: self.method, list_key: &self.of }
    }
}
