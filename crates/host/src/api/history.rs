//! What was said, as a run may read it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, HistoryApi, Page, PageCall, Said};
use capstan_protocol::{ApiError, ChatMessage, EntryId, Role, RunId, SessionId, TapeName};
use capstan_tape::{Entry, Kind, Order, Query, Slice, TapeAddress, tape_name};
use serde::Deserialize as _;

use super::cursor::List;
use super::{parts, store_failed};
use crate::runs::run::Run;

pub(super) struct History(pub(super) Arc<Run>);

/// How many parts of a tape are looked at for one part of a history.
const MOST_LOOKS: usize = 16;

#[async_trait]
impl HistoryApi for History {
    async fn page(&self, call: PageCall) -> Result<Page<Said>, ApiError> {
        let (limit, tape) = (parts::most(call.limit)?, self.0.tape_of(call.session.as_ref()).await?);
        let mut place = TapePlace::of(ApiMethod::HistoryPage, &tape, &call)?;
        let mut items = Vec::new();
        for _ in 0..MOST_LOOKS {
            let slice = Slice { kinds: vec![Kind::Message], ..place.slice(limit - items.len()) };
            let entries = self.0.services.tapes.read(&tape, &slice).await.map_err(|error| store_failed(&error))?;
            let Some(last) = entries.last() else { return Ok(Page { items, next: None }) };
            place.at = Some(last.id);
            items.extend(entries.iter().filter_map(said));
            if items.len() >= limit {
                break;
            }
        }
        Ok(Page { items, next: place.cursor() })
    }

    async fn search(&self, session: Option<SessionId>, text: &str, limit: usize) -> Result<Vec<Said>, ApiError> {
        let (limit, tape) = (parts::most(limit)?, self.0.tape_of(session.as_ref()).await?);
        let query = Query { kinds: vec![Kind::Message], limit: Some(limit), ..Query::search(text) };
        let found = self.0.services.tapes.query(&tape, &query).await.map_err(|error| store_failed(&error))?;
        Ok(found.iter().filter_map(said).collect())
    }
}

/// What an entry says, if it is part of the dialogue.
fn said(entry: &Entry) -> Option<Said> {
    if entry.is_hidden() {
        return None;
    }
    let message = ChatMessage::deserialize(&entry.payload).ok()?;
    matches!(message.role, Role::User | Role::Assistant).then(|| Said {
        entry: entry.id,
        role: message.role,
        text: message.content.text(),
        date: entry.date.as_str().to_owned(),
        run_id: entry.run_id().map(RunId::new),
    })
}

impl Run {
    /// The tape of a session of the workspace, or the run's own. What the run itself has written is seen.
    pub(super) async fn tape_of(&self, session: Option<&SessionId>) -> Result<TapeName, ApiError> {
        let other = session.filter(|session| **session != self.context.conversation.session_id);
        if let Some(session) = other {
            let workspace = self.services.workspace_id.clone();
            return Ok(tape_name(&TapeAddress { workspace, session: session.clone() }));
        }
        self.flush_to_read().await.map_err(|error| store_failed(&error))?;
        Ok(self.journal.tape().clone())
    }
}

/// A place on a tape that is read in parts.
pub(super) struct TapePlace {
    method: ApiMethod,
    of: String,
    order: Order,
    /// The last entry that was read.
    pub(super) at: Option<EntryId>,
}

impl TapePlace {
    /// Where a call begins to read.
    pub(super) fn of(method: ApiMethod, tape: &TapeName, call: &PageCall) -> Result<Self, ApiError> {
        // The other way round it is another list.
        let place = Self { method, of: format!("{tape} {:?}", call.order), order: call.order, at: None };
        let Some(cursor) = &call.cursor else { return Ok(place) };
        let at = place.list().place(cursor)?.parse().unwrap_or_default();
        Ok(Self { at: Some(EntryId(at)), ..place })
    }

    /// What comes next.
    pub(super) fn slice(&self, limit: usize) -> Slice {
        let slice = Slice { order: self.order, limit: Some(limit), ..Slice::default() };
        match (self.order, self.at) {
            (Order::OldestFirst, after) => Slice { after, ..slice },
            (Order::NewestFirst, before) => {
                Slice { up_to: before.map(|before| EntryId(before.0.saturating_sub(1))), ..slice }
            }
        }
    }

    /// What the next part is asked for with.
    pub(super) fn cursor(&self) -> Option<String> {
        self.at.map(|at| self.list().cursor(&at.to_string()))
    }

    fn list(&self) -> List<'_> {
        List { method: self.method, of: &self.of }
    }
}
