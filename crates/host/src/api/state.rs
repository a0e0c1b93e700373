//! State, as a run may use it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ApiMethod, KeptValue, Page, StateApi};
use capstan_protocol::{ApiError, Map, StateScope};
use serde_json::Value;

use super::cursor::List;
use super::{parts, store_failed};
use crate::runs::run::Run;

pub(super) struct States(pub(super) Arc<Run>);

#[async_trait]
impl StateApi for States {
    async fn get(&self, scope: StateScope, key: &str) -> Result<Option<Value>, ApiError> {
        let space = self.read(scope).await?;
        let kept = self.0.services.tapes.store().kept(&space, key).await.map_err(|error| store_failed(&error))?;
        Ok(kept.map(|kept| kept.value))
    }

    async fn set(&self, scope: StateScope, key: &str, value: Value) -> Result<(), ApiError> {
        self.0.keep_state(scope, &Map::from_iter([(key.to_owned(), value)])).await
    }

    async fn list(&self, scope: StateScope, cursor: Option<&str>, limit: usize) -> Result<Page<KeptValue>, ApiError> {
        let space = self.read(scope).await?;
        let list = List { method: ApiMethod::StateList, of: &space };
        let page = parts::kept(&self.0, &list, cursor, limit).await?;
        let items = page.items.into_iter().map(|kept| KeptValue { key: kept.key, value: kept.value, at: kept.at });
        Ok(Page { items: items.collect(), next: page.next })
    }

    async fn delete(&self, scope: StateScope, key: &str) -> Result<bool, ApiError> {
        let was_there = self.get(scope, key).await?.is_some();
        if was_there {
            self.set(scope, key, Value::Null).await?;
        }
        Ok(was_there)
    }
}

impl States {
    /// What the run itself has written is seen. What else waits goes on waiting.
    async fn read(&self, scope: StateScope) -> Result<String, ApiError> {
        let space = self.0.granted_space(scope)?;
        if self.0.journal.changes(&space) {
            self.0.flush().await.map_err(|error| store_failed(&error))?;
        }
        Ok(space)
    }
}
