//! The one guard in front of every method of every group.

use std::sync::Arc;

use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode};
use futures::{Stream, StreamExt as _, stream};

use super::door::{Entered, another_calls};
use super::needs::Needs;
use crate::runs::run::Run;

/// A group of methods behind the guard. What stands for each method is what it is called, what it needs and how large
/// what it was given is; everything else is the same for all of them.
pub(super) struct Guarded<G> {
    pub(super) run: Arc<Run>,
    pub(super) group: G,
    pub(super) holder: Holder,
}

/// Who was given a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The run's runner.
    Runner,
    /// A tool that is being called.
    Tool,
}

/// A call that somebody wants to make.
pub(super) struct Ask {
    pub(super) method: ApiMethod,
    pub(super) needs: Needs,
    pub(super) bytes: u64,
}

impl Ask {
    /// A call that brings next to nothing.
    pub(super) fn new(method: ApiMethod, needs: Needs) -> Self {
        Self { method, needs, bytes: 0 }
    }

    /// The same call with so much to carry.
    pub(super) fn carrying(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

impl<G> Guarded<G> {
    /// Makes a call, if it may be made. It ends when the run does, also where nobody dropped it.
    pub(super) async fn pass<T>(
        &self,
        ask: Ask,
        call: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<T, ApiError> {
        let method = ask.method;
        let _entered = self.enter(ask).await?;
        self.until_shut(method, call).await
    }

    /// Makes a call that answers bit by bit. It counts as being served until its stream is dropped.
    pub(super) async fn pass_stream<S, T>(
        &self,
        ask: Ask,
        call: impl Future<Output = Result<S, ApiError>> + Send,
    ) -> Result<stream::BoxStream<'static, Result<T, ApiError>>, ApiError>
    where
        S: Stream<Item = Result<T, ApiError>> + Send + 'static,
        T: Send + 'static,
    {
        let method = ask.method;
        let entered = self.enter(ask).await?;
        let results = self.until_shut(method, call).await?;
        let closed = self.run.door.closed.clone().cancelled_owned();
        let results = results.take_until(closed).inspect(move |_| _ = &entered);
        Ok(results.boxed())
    }

    async fn until_shut<T>(
        &self,
        method: ApiMethod,
        call: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<T, ApiError> {
        let door = &self.run.door;
        let answer = tokio::select! {
            biased;
            () = door.closed.cancelled() => Err(door.is_shut(&self.run).unwrap_or_else(over)),
            answer = call => answer,
        };
        match answer {
            Err(error) if is_refusal(&error) => Err(self.run.refused(method, error).await),
            answer => answer,
        }
    }

    async fn enter(&self, ask: Ask) -> Result<Entered, ApiError> {
        match self.check(&ask) {
            Ok(entered) => Ok(entered),
            Err(error) => Err(self.run.refused(ask.method, error).await),
        }
    }

    /// What every call is asked, in this order: whether its run goes on, who calls, how much is brought, how often, and
    /// whether the grant covers it.
    fn check(&self, ask: &Ask) -> Result<Entered, ApiError> {
        let run = &self.run;
        if let Some(shut) = run.door.is_shut(run) {
            return Err(shut);
        }
        if another_calls(run) {
            return Err(ApiError::new(ApiErrorCode::Unauthorized, "this is the handle of another run"));
        }
        run.door.weigh(ask.method, ask.bytes)?;
        let entered = run.let_in()?;
        ask.needs.check(&run.grant().may)?;
        let is_step =
            matches!(ask.method, ApiMethod::ToolsCall | ApiMethod::ToolsCommand | ApiMethod::ToolsRefuseCommand);
        if self.holder == Holder::Tool && is_step {
            // It would come between its own call and its result.
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "a tool cannot call tools"));
        }
        Ok(entered)
    }
}

/// The door shuts only when it is known why.
fn over() -> ApiError {
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
