//! Deadline of one model call, from its option `timeout_seconds`.

use std::time::Duration;

use capstan_hooks::contracts::{ModelCall, ModelResultStream};
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::run::Run;

/// Deadline of a model call; without one, the call ends with its run.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelCallDeadline {
    deadline: Option<(Instant, u32)>,
}

impl ModelCallDeadline {
    /// Deadline of a call that begins now.
    pub(super) fn of_call(run: &Run, call: &ModelCall) -> Self {
        let seconds = run.environment.options.model_options.for_call(&call.options).timeout_seconds;
        let at = |seconds: u32| Instant::now().checked_add(Duration::from_secs(u64::from(seconds)));
        Self { deadline: seconds.and_then(|seconds| Some((at(seconds)?, seconds))) }
    }

    /// Ends a part of the call at the deadline.
    pub(super) async fn limit<T>(self, part: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        match self.deadline {
            None => part.await,
            Some((at, seconds)) => timeout_at(at, part).await.unwrap_or_else(|_| Err(timeout_error(seconds))),
        }
    }

    /// Ends a reply at the deadline, with an error. The call stays open for the hooks, like one that its runner drops.
    pub(super) fn limit_stream(self, mut results: ModelResultStream) -> ModelResultStream {
        let Some((at, seconds)) = self.deadline else { return results };
        let limited = async_stream::stream! {
            loop {
                match timeout_at(at, results.next()).await {
                    Ok(Some(result)) => yield result,
                    Ok(None) => return,
                    Err(_) => {
                        drop(results);
                        yield Err(timeout_error(seconds));
                        return;
                    }
                }
            }
        };
        limited.boxed()
    }
}

fn timeout_error(seconds: u32) -> ApiError {
    let message = format!("the model did not answer within the {seconds} seconds of the call");
    let error = ApiError { retryable: true, ..ApiError::new(ApiErrorCode::RuntimeError, message) };
    error.with_cause(ErrorCode::ModelUnreachable)
}
