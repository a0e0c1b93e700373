//! Handler of one method of the run API.

use std::sync::Arc;

use capstan_hooks::contracts::RunApiMethod;
use capstan_protocol::ApiError;

use super::required_permission::RequiredPermission;
use crate::payload_size::PayloadSize;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// Handler of one method: the authority it needs, the size of its request, and its implementation. The files of this
/// folder contain the handlers by group; the [guard](super::guard) calls them.
pub(super) trait MethodHandler: RunApiMethod {
    /// Returns true if the method is a tool step of its own: a tool cannot call it.
    fn is_tool_step() -> bool {
        false
    }

    /// Permission that a call requires in the grant.
    fn permission(run: &Run, request: &Self::Request) -> RequiredPermission;

    /// Size of the request, in bytes. Zero by default, for requests without variable content.
    fn payload(run: &Run, request: &Self::Request) -> PayloadSize {
        let _ = (run, request);
        PayloadSize::Arguments(0)
    }

    /// Serves a call that was admitted. The permit is held until the reply is complete, so a stream takes it along.
    fn handle(
        run: &Arc<Run>,
        request: Self::Request,
        permit: CallPermit,
    ) -> impl Future<Output = Result<Self::Reply, ApiError>> + Send;
}
