//! Methods of `runs.*`.

use std::sync::Arc;

use capstan_hooks::contracts::methods::RunsChild;
use capstan_hooks::contracts::{ChildRunCall, ChildRunOutcome};
use capstan_protocol::ApiError;

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use crate::payload_size::{PayloadSize, content_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::{child_run, nesting};

impl MethodHandler for RunsChild {
    fn permission(_: &Run, _: &ChildRunCall) -> RequiredPermission {
        RequiredPermission::Children
    }

    fn payload(_: &Run, call: &ChildRunCall) -> PayloadSize {
        PayloadSize::Content(content_size(&call.prompt))
    }

    async fn handle(run: &Arc<Run>, call: ChildRunCall, _: CallPermit) -> Result<ChildRunOutcome, ApiError> {
        nesting::check_nesting(&call.prompt)?;
        child_run::run_child(run, call, super::runner_api).await
    }
}
