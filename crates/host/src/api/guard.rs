//! The one guard in front of every method of every group.

use std::sync::Arc;

use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode};
use futures::{Stream, StreamExt as _, stream};

use super::call_limiter::{CallPermit, is_foreign_caller};
use super::required_permission::RequiredPermission;
use crate::runs::run::Run;

/// A group of methods behind the guard. What stands for each method is what it is called, what it needs and how large
/// what it was given is; everything else is the same for all of them.
pub(super) struct GuardedApi<G> {
    pub(super) run: Arc<Run>,
    pub(super) inner: G,
    pub(super) caller: CallerKind,
}

/// Who was given a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallerKind {
    /// The run's runner.
    Runner,
    /// A tool that is being called.
    Tool,
}

/// A call that somebody wants to make.
pub(super) struct CallRequest {
    pub(super) method: ApiMethod,
    pub(super) permission: RequiredPermission,
    pub(super) payload_bytes: u64,
}

impl CallRequest {
    /// A call that brings next to nothing.
    pub(super) fn new(method: ApiMethod, needs: RequiredPermission) -> Self {
        Self { method, permission: needs, payload_bytes: 0 }
    }

    /// The same call with so much to carry.
    pub(super) fn with_payload(self, bytes: u64) -> Self {
        Self { payload_bytes: bytes, ..self }
    }
}

impl<G> GuardedApi<G> {
    /// Makes a call, if it may be made. It ends when the run does, also where nobody dropped it.
    pub(super) async fn call_guarded<T>(
        &self,
        ask: CallRequest,
        call: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<T, ApiError> {
        let method = ask.method;
        let _entered = self.admit(ask).await?;
        self.call_until_revoked(method, call).await
    }

    /// Makes a call that answers bit by bit. It counts as being served until its stream is dropped.
    pub(super) async fn stream_guarded<S, T>(
        &self,
        ask: CallRequest,
        call: impl Future<Output = Result<S, ApiError>> + Send,
    ) -> Result<stream::BoxStream<'static, Result<T, ApiError>>, ApiError>
    where
        S: Stream<Item = Result<T, ApiError>> + Send + 'static,
        T: Send + 'static,
    {
        let method = ask.method;
        let entered = self.admit(ask).await?;
        let results = self.call_until_revoked(method, call).await?;
        let closed = self.run.call_limiter.revoked.clone().cancelled_owned();
        let results = results.take_until(closed).inspect(move |_| _ = &entered);
        Ok(results.boxed())
    }

    async fn call_until_revoked<T>(
        &self,
        method: ApiMethod,
        call: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<T, ApiError> {
        let door = &self.run.call_limiter;
        let answer = tokio::select! {
            biased;
            () = door.revoked.cancelled() => Err(door.revocation_error(&self.run).unwrap_or_else(run_ended_error)),
            answer = call => answer,
        };
        match answer {
            Err(error) if is_refusal(&error) => Err(self.run.record_refusal(method, error).await),
            answer => answer,
        }
    }

    async fn admit(&self, ask: CallRequest) -> Result<CallPermit, ApiError> {
        match self.try_admit(&ask) {
            Ok(entered) => Ok(entered),
            Err(error) => Err(self.run.record_refusal(ask.method, error).await),
        }
    }

    /// What every call is asked, in this order: whether its run goes on, who calls, how much is brought, how often, and
    /// whether the grant covers it.
    fn try_admit(&self, ask: &CallRequest) -> Result<CallPermit, ApiError> {
        let run = &self.run;
        if let Some(shut) = run.call_limiter.revocation_error(run) {
            return Err(shut);
        }
        if is_foreign_caller(run) {
            return Err(ApiError::new(ApiErrorCode::Unauthorized, "this is the handle of another run"));
        }
        run.call_limiter.check_size(ask.method, ask.payload_bytes)?;
        let entered = run.acquire_call_permit()?;
        ask.permission.check(&run.grant().may)?;
        let is_step =
            matches!(ask.method, ApiMethod::ToolsCall | ApiMethod::ToolsCommand | ApiMethod::ToolsRefuseCommand);
        if self.caller == CallerKind::Tool && is_step {
            // It would come between its own call and its result.
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "a tool cannot call tools"));
        }
        Ok(entered)
    }
}

/// The door shuts only when it is known why.
fn run_ended_error() -> ApiError {
    ApiError::new(ApiErrorCode::DeadlineExceeded, "this run has ended")
}

/// Whether somebody was refused, and not failed: what a provider or the store did not do has a cause.
fn is_refusal(error: &ApiError) -> bool {
    let is_refusal = match error.code {
        ApiErrorCode::Unauthorized
        | ApiErrorCode::DeadlineExceeded
        | ApiErrorCode::PayloadTooLarge
        | ApiErrorCode::RateLimited
        | ApiErrorCode::InvalidArgument => true,
        ApiErrorCode::NotFound | ApiErrorCode::RuntimeError => false,
    };
    is_refusal && error.cause.is_none()
}
