//! The session's tape, as a run may use it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{TapeApi, TapeInfo};
use capstan_protocol::{ApiError, ApiErrorCode, ChatMessage, Content, Map};
use capstan_tape::{Draft, Entry, Fact, Kind, Order, Query, Slice, Tapes, conversation};
use serde_json::Value;

use super::reserved::is_reserved;
use super::store_failed;
use crate::nesting;
use crate::runs::run::{Handoff, Run};

/// How many entries are given at once, whatever is asked for: each may be a megabyte.
const MOST_ENTRIES: usize = 200;
/// How many entries are read at once to count them.
const PAGE: usize = 100;
pub(super) struct SessionTape(pub(super) Arc<Run>);

impl SessionTape {
    /// Everything the run has written so far is on the tape before it is read.
    async fn read(&self) -> Result<&Tapes, ApiError> {
        self.0.flush_to_read().await.map_err(|error| store_failed(&error))?;
        Ok(&self.0.services.tapes)
    }

    /// How many entries there are, of which only a few are in memory at once.
    async fn count(&self, mut slice: Slice) -> Result<u64, ApiError> {
        slice.limit = Some(PAGE);
        let mut count = 0;
        loop {
            let page = self.0.services.tapes.read(self.0.journal.tape(), &slice).await;
            let page = page.map_err(|error| store_failed(&error))?;
            let Some(last) = page.last() else { return Ok(count) };
            slice.after = Some(last.id);
            count += page.len() as u64;
        }
    }
}

#[async_trait]
impl TapeApi for SessionTape {
    async fn view(&self) -> Result<Vec<ChatMessage>, ApiError> {
        self.0.take_in();
        // What the run has written and not committed is seen too: it is committed before anything is done with it.
        let view = &self.0.services.view;
        let messages = self.0.journal.view(view.kinds(), |window| view.messages(window)).await;
        Ok(conversation::request(messages.map_err(|error| store_failed(&error))?))
    }

    async fn handoff(&self, name: &str, state: Map) -> Result<(), ApiError> {
        if name.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "an anchor needs a name"));
        }
        nesting::check(&state)?;
        let handoff = Handoff { name: name.to_owned(), state };
        self.0.handoff(handoff).await.map_err(|error| store_failed(&error))
    }

    async fn note(&self, name: &str, data: Value) -> Result<(), ApiError> {
        if is_reserved(name) {
            let message = format!("events named {name:?} are written by the host alone");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        nesting::check(&data)?;
        self.0.append(Draft::event(name, data));
        Ok(())
    }

    async fn say(&self, content: Content) -> Result<(), ApiError> {
        nesting::check(&content)?;
        self.0.append(Draft::message(&ChatMessage::user(content)));
        Ok(())
    }

    async fn reset(&self, archive: bool) -> Result<(), ApiError> {
        let tapes = self.read().await?;
        let (run, tape) = (&self.0, self.0.journal.tape());
        let refused = |why: &str| Err(ApiError::new(ApiErrorCode::InvalidArgument, why));
        if !run.serves_command() {
            return refused("only a person can begin the tape anew; tape.handoff lets the context begin anew");
        }
        let in_flight = tapes.store().in_flight(Some(tape)).await.map_err(|error| store_failed(&error))?;
        // One that only waits has its turn on the tape as it is then. Of one that a run had taken in the message would be gone.
        let of_others = in_flight.iter().filter(|event| run.serves.iter().all(|(key, _)| *key != event.key));
        if of_others.into_iter().any(|event| event.taken_in.is_some()) {
            return refused("another message of this session is being worked on; try again when it is answered");
        }
        run.journal.push(Fact::Reset { tape: tape.clone(), archive });
        for draft in Draft::session_start() {
            run.append(draft);
        }
        run.flush().await.map_err(|error| store_failed(&error))
    }

    async fn info(&self) -> Result<TapeInfo, ApiError> {
        let tapes = self.read().await?;
        let name = self.0.journal.tape();
        let last = tapes.read(name, &Slice::last_anchor()).await.map_err(|error| store_failed(&error))?.pop();
        let record = tapes.record(name).await.map_err(|error| store_failed(&error))?;
        let anchors = Slice { kinds: vec![Kind::Anchor], ..Slice::default() };
        let since = Slice { after: last.as_ref().map(|anchor| anchor.id), ..Slice::default() };
        Ok(TapeInfo {
            name: name.clone(),
            head: record.map(|record| record.head).unwrap_or_default(),
            anchors: self.count(anchors).await?,
            last_anchor: last.as_ref().and_then(Entry::name).map(str::to_owned),
            entries_since_last_anchor: self.count(since).await?,
        })
    }

    async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let tapes = self.read().await?;
        let slice = Slice {
            kinds: vec![Kind::Anchor],
            order: Order::NewestFirst,
            limit: Some(limit.min(MOST_ENTRIES)),
            ..Slice::default()
        };
        tapes.read(self.0.journal.tape(), &slice).await.map_err(|error| store_failed(&error))
    }

    async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let tapes = self.read().await?;
        let kinds = vec![Kind::Message, Kind::ToolCall, Kind::ToolResult, Kind::Anchor];
        let query = Query { kinds, limit: Some(limit.min(MOST_ENTRIES)), ..Query::search(text) };
        tapes.query(self.0.journal.tape(), &query).await.map_err(|error| store_failed(&error))
    }
}
