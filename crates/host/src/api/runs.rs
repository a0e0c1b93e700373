//! Child runs, as a run may begin them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ChildCall, ChildEnd, RunsApi};
use capstan_protocol::ApiError;

use crate::nesting;
use crate::runs::child;
use crate::runs::run::Run;

pub(super) struct Runs(pub(super) Arc<Run>);

#[async_trait]
impl RunsApi for Runs {
    async fn child(&self, call: ChildCall) -> Result<ChildEnd, ApiError> {
        nesting::check(&call.prompt)?;
        child::run(&self.0, call).await
    }
}
