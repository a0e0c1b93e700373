//! State, as a run may use it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, CursorPage, StateApi, StateEntry};
use capstan_protocol::{ApiError, JsonObject, StateScope};
use serde_json::Value;

use super::cursor::PagedList;
use super::{paging, store_api_error};
use crate::runs::run::Run;

pub(super) struct StateHandler(pub(super) Arc<Run>);

#[async_trait]
impl StateApi for StateHandler {
    async fn get(&self, scope: StateScope, key: &str) -> Result<Option<Value>, ApiError> {
        let space = self.readable_namespace(scope).await?;
        let kept =
            self.0.services.tapes.store().key_value(&space, key).await.map_err(|error| store_api_error(&error))?;
        Ok(kept.map(|kept| kept.value))
    }

    async fn set(&self, scope: StateScope, key: &str, value: Value) -> Result<(), ApiError> {
        self.0.set_state(scope, &JsonObject::from_iter([(key.to_owned(), value)])).await
    }

    async fn list(
        &self,
        scope: StateScope,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StateEntry>, ApiError> {
        let space = self.readable_namespace(scope).await?;
        let list = PagedList { method: ApiMethod::StateList, list_key: &space };
        let page = paging::list_entries(&self.0, &list, cursor, limit).await?;
        let items = page.items.into_iter().map(|kept| StateEntry { key: kept.key, value: kept.value, at: kept.at });
        Ok(CursorPage { items: items.collect(), next: page.next })
    }

    async fn delete(&self, scope: StateScope, key: &str) -> Result<bool, ApiError> {
        let was_there = self.get(scope, key).await?.is_some();
        if was_there {
            self.set(scope, key, Value::Null).await?;
        }
        Ok(was_there)
    }
}

impl StateHandler {
    /// What the run itself has written is seen. What else waits goes on waiting.
    async fn readable_namespace(&self, scope: StateScope) -> Result<String, ApiError> {
        let space = self.0.granted_namespace(scope)?;
        if self.0.journal.has_pending_change(&space) {
            self.0.flush().await.map_err(|error| store_api_error(&error))?;
        }
        Ok(space)
    }
}
