//! The session's tape, as a run may use it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{TapeApi, TapeInfo};
use capstan_protocol::{ApiError, ApiErrorCode, ChatMessage, Content, JsonObject};
use capstan_tape::{
    Entry, EntryDraft, EntryKind, EntryOrder, Fact, Query, TapeEventKind, TapeRepository, TapeSlice, conversation,
};
use serde_json::Value;

use super::store_api_error;
use crate::nesting;
use crate::runs::run::{PendingHandoff, Run};

/// How many entries are given at once, whatever is asked for: each may be a megabyte.
const MAX_TAPE_ENTRIES_READ: usize = 200;
/// How many entries are read at once to count them.
const ENTRY_COUNT_PAGE_SIZE: usize = 100;
pub(super) struct TapeHandler(pub(super) Arc<Run>);

impl TapeHandler {
    /// Everything the run has written so far is on the tape before it is read.
    async fn flushed_tapes(&self) -> Result<&TapeRepository, ApiError> {
        self.0.flush_before_read().await.map_err(|error| store_api_error(&error))?;
        Ok(&self.0.services.tapes)
    }

    /// How many entries there are, of which only a few are in memory at once.
    async fn count_entries(&self, mut slice: TapeSlice) -> Result<u64, ApiError> {
        slice.limit = Some(ENTRY_COUNT_PAGE_SIZE);
        let mut count = 0;
        loop {
            let page = self.0.services.tapes.read(self.0.journal.tape(), &slice).await;
            let page = page.map_err(|error| store_api_error(&error))?;
            let Some(last) = page.last() else { return Ok(count) };
            slice.after = Some(last.id);
            count += page.len() as u64;
        }
    }
}

#[async_trait]
impl TapeApi for TapeHandler {
    async fn view(&self) -> Result<Vec<ChatMessage>, ApiError> {
        self.0.ingest_message();
        // What the run has written and not committed is seen too: it is committed before anything is done with it.
        let view = &self.0.services.view;
        let messages = self.0.journal.view(view.kinds(), |window| view.messages(window)).await;
        Ok(conversation::normalize_request(messages.map_err(|error| store_api_error(&error))?))
    }

    async fn handoff(&self, name: &str, state: JsonObject) -> Result<(), ApiError> {
        if name.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "an anchor needs a name"));
        }
        nesting::check_nesting(&state)?;
        let handoff = PendingHandoff { name: name.to_owned(), state };
        self.0.request_handoff(handoff).await.map_err(|error| store_api_error(&error))
    }

    async fn note(&self, name: &str, data: Value) -> Result<(), ApiError> {
        if TapeEventKind::is_reserved_name(name) {
            let message = format!("events named {name:?} are written by the host alone");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        nesting::check_nesting(&data)?;
        self.0.append(EntryDraft::event(name, data));
        Ok(())
    }

    async fn say(&self, content: Content) -> Result<(), ApiError> {
        nesting::check_nesting(&content)?;
        self.0.append(EntryDraft::message(&ChatMessage::user(content)));
        Ok(())
    }

    async fn reset(&self, archive: bool) -> Result<(), ApiError> {
        let tapes = self.flushed_tapes().await?;
        let (run, tape) = (&self.0, self.0.journal.tape());
        let refused = |why: &str| Err(ApiError::new(ApiErrorCode::InvalidArgument, why));
        if !run.is_command() {
            return refused("only a person can begin the tape anew; tape.handoff lets the context begin anew");
        }
        let in_flight = tapes.store().in_flight_events(Some(tape)).await.map_err(|error| store_api_error(&error))?;
        // One that only waits has its turn on the tape as it is then. Of one that a run had taken in the message would be gone.
        let of_others = in_flight.iter().filter(|event| run.served_events.iter().all(|(key, _)| *key != event.key));
        if of_others.into_iter().any(|event| event.ingestion.is_some()) {
            return refused("another message of this session is being worked on; try again when it is answered");
        }
        run.journal.push(Fact::ResetTape { tape: tape.clone(), archive });
        for draft in EntryDraft::session_start() {
            run.append(draft);
        }
        run.flush().await.map_err(|error| store_api_error(&error))
    }

    async fn info(&self) -> Result<TapeInfo, ApiError> {
        let tapes = self.flushed_tapes().await?;
        let name = self.0.journal.tape();
        let last = tapes.read(name, &TapeSlice::last_anchor()).await.map_err(|error| store_api_error(&error))?.pop();
        let record = tapes.record(name).await.map_err(|error| store_api_error(&error))?;
        let anchors = TapeSlice { kinds: vec![EntryKind::Anchor], ..TapeSlice::default() };
        let since = TapeSlice { after: last.as_ref().map(|anchor| anchor.id), ..TapeSlice::default() };
        Ok(TapeInfo {
            name: name.clone(),
            head: record.map(|record| record.head).unwrap_or_default(),
            anchors: self.count_entries(anchors).await?,
            last_anchor: last.as_ref().and_then(Entry::name).map(str::to_owned),
            entries_since_last_anchor: self.count_entries(since).await?,
        })
    }

    async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let tapes = self.flushed_tapes().await?;
        let slice = TapeSlice {
            kinds: vec![EntryKind::Anchor],
            order: EntryOrder::NewestFirst,
            limit: Some(limit.min(MAX_TAPE_ENTRIES_READ)),
            ..TapeSlice::default()
        };
        tapes.read(self.0.journal.tape(), &slice).await.map_err(|error| store_api_error(&error))
    }

    async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let tapes = self.flushed_tapes().await?;
        let kinds = vec![EntryKind::Message, EntryKind::ToolCall, EntryKind::ToolResult, EntryKind::Anchor];
        let query = Query { kinds, limit: Some(limit.min(MAX_TAPE_ENTRIES_READ)), ..Query::search(text) };
        tapes.query(self.0.journal.tape(), &query).await.map_err(|error| store_api_error(&error))
    }
}
