//! What a run may reach outside of its conversation.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{KnowledgeApi, KnowledgeBase, Passage, PlatformApi};
use capstan_protocol::{ActionRequest, ApiError, ApiErrorCode};
use serde_json::Value;

use crate::runs::run::Run;

/// Knowledge bases, of which there are none yet.
pub(super) struct Knowledge;

#[async_trait]
impl KnowledgeApi for Knowledge {
    async fn list(&self) -> Result<Vec<KnowledgeBase>, ApiError> {
        Ok(Vec::new())
    }

    async fn retrieve(&self, base: &str, _: &str, _: usize) -> Result<Vec<Passage>, ApiError> {
        Err(ApiError::new(ApiErrorCode::NotFound, format!("there is no knowledge base {base}")))
    }
}

/// The platform that the run's event came from.
pub(super) struct Platform(pub(super) Arc<Run>);

#[async_trait]
impl PlatformApi for Platform {
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError> {
        self.0.act(request).await
    }
}
