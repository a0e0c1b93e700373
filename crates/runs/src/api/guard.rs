//! Guard of the run API: checks every call, and dispatches it to the handler of its method.

use std::sync::Arc;

use capstan_hooks::contracts::{ApiReply, ApiRequest, RunApiBackend, methods};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId};
use futures::future::BoxFuture;

use super::method_handler::MethodHandler;
use super::tool_authority::ToolAuthority;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// API of one run. Every call passes the same checks; permission, size and implementation are defined by its
/// [`MethodHandler`].
pub(super) struct GuardedApi {
    pub(super) run: Arc<Run>,
    pub(super) caller: CallerKind,
}

/// Holder of a handle.
#[derive(Debug, Clone)]
pub(super) enum CallerKind {
    /// The run's runner.
    Runner,
    /// A tool that is being called, with its own authority.
    Tool(Box<ToolAuthority>),
}

macro_rules! define_dispatch {
    ($(
        $(#[doc = $group_doc:literal])+
        $group:ident: $Group:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:literal needs $needs:literal,
                $kind:ident $Method:ident($Request:ty) -> $Response:ty,
                fn $call:ident($($argument:ident: $Argument:ty),*) = $build:expr;
            )+
        }
    )+) => {
        impl RunApiBackend for GuardedApi {
            /// Each future is boxed by itself: the size of one handler's state is not paid for by the calls of another.
            fn call(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiReply, ApiError>> {
                match request {
                    $($(ApiRequest::$Method(request) => Box::pin(self.serve::<methods::$Method>(request)),)+)+
                }
            }

            fn default_model(&self) -> ModelId {
                self.run.environment.options.model.clone()
            }
        }
    };
}

capstan_protocol::run_api_methods!(define_dispatch);

impl GuardedApi {
    /// Serves a call, if it is admitted. It ends with the run, even if its caller outlives the run.
    async fn serve<M: MethodHandler>(&self, request: M::Request) -> Result<ApiReply, ApiError> {
        let (run, limiter) = (&self.run, &self.run.call_limiter);
        let revocation_error = || run.revocation_error(M::METHOD).unwrap_or_else(run_ended_error);
        let ends_with_cancel = !run.serves_after_cancel(M::METHOD);
        let reply = match self.admit::<M>(&request) {
            Err(refusal) => return Err(run.record_refusal(M::METHOD, refusal).await),
            Ok(permit) => tokio::select! {
                biased;
                () = limiter.revoked.cancelled() => Err(revocation_error()),
                () = run.cancel_token.cancelled(), if ends_with_cancel => Err(revocation_error()),
                reply = M::handle(run, request, permit) => reply,
            },
        };
        match reply {
            Err(error) if is_refusal(&error) => Err(run.record_refusal(M::METHOD, error).await),
            reply => reply.map(M::into_reply),
        }
    }

    /// Checks a call: first the limits of the run, then the grant, or the authority of the tool that calls.
    fn admit<M: MethodHandler>(&self, request: &M::Request) -> Result<CallPermit, ApiError> {
        let run = &self.run;
        let mut permit = run.admit_call(M::METHOD, M::payload(run, request))?;
        match &self.caller {
            CallerKind::Runner => M::permission(run, request).check(&run.grant().may)?,
            // The step would separate the tool's own call from its result.
            CallerKind::Tool(_) if M::is_tool_step() => {
                return Err(ApiError::new(ApiErrorCode::InvalidArgument, "a tool cannot call tools"));
            }
            CallerKind::Tool(authority) => {
                authority.check(run, &M::permission(run, request))?;
                permit.storage_owner = Some(authority.storage_owner.clone());
            }
        }
        Ok(permit)
    }
}

/// Fallback for a revocation without a reason, which does not occur.
fn run_ended_error() -> ApiError {
    ApiError::new(ApiErrorCode::DeadlineExceeded, "this run has ended")
}

/// Returns true for a refusal. A failure of a provider or of the store has a cause.
fn is_refusal(error: &ApiError) -> bool {
    let is_refusal_code = match error.code {
        ApiErrorCode::Unauthorized
        | ApiErrorCode::DeadlineExceeded
        | ApiErrorCode::PayloadTooLarge
        | ApiErrorCode::RateLimited
        | ApiErrorCode::InvalidArgument => true,
        ApiErrorCode::NotFound | ApiErrorCode::RuntimeError => false,
    };
    is_refusal_code && error.cause.is_none()
}
