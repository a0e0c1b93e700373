//! What a run may reach outside of its conversation.

use async_trait::async_trait;
use capstan_hooks::contracts::PlatformApi;
use capstan_protocol::{ActionRequest, ApiError, ApiErrorCode};
use serde_json::Value;

/// The platform, which does nothing yet.
pub(super) struct Platform;

#[async_trait]
impl PlatformApi for Platform {
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError> {
        Err(ApiError::new(ApiErrorCode::NotFound, format!("this channel has no action {}", request.action)))
    }
}
