//! Child runs, as a run may begin them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ChildRunCall, ChildRunOutcome, RunsApi};
use capstan_protocol::ApiError;

use crate::nesting;
use crate::runs::child_run;
use crate::runs::run::Run;

pub(super) struct ChildRunsHandler(pub(super) Arc<Run>);

#[async_trait]
impl RunsApi for ChildRunsHandler {
    async fn child(&self, call: ChildRunCall) -> Result<ChildRunOutcome, ApiError> {
        nesting::check_nesting(&call.prompt)?;
        child_run::run_child(&self.0, call).await
    }
}
