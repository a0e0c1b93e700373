//! Errors of the run API.

use capstan_hooks::HookError;
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode};
use capstan_tape::StoreError;
use capstan_turn::TurnError;

/// Refusal of a call that the grant does not cover.
pub(crate) fn unauthorized_error(what: &str) -> ApiError {
    ApiError::new(ApiErrorCode::Unauthorized, format!("the grant of this run does not cover {what}"))
}

/// Failure of the store, without its own message, which may contain paths.
pub(crate) fn store_api_error(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed during a run");
    let (message, cause) = match error {
        StoreError::DiskFull { .. } | StoreError::NoInodes { .. } => ("the disk is full", error.code()),
        StoreError::ReadOnly { .. } | StoreError::Busy { .. } => ("the store cannot be written", error.code()),
        _ => ("the store failed", ErrorCode::StoreFailed),
    };
    ApiError::new(ApiErrorCode::RuntimeError, message).with_cause(cause)
}

/// Failure of the store to record tool calls that have run: the user has to check their effects.
pub(crate) fn unrecorded_effects_error(error: &StoreError, tools: &[String]) -> ApiError {
    let store_error = store_api_error(error);
    if tools.is_empty() {
        return store_error;
    }
    let message = format!(
        "{} after {} had run. Please check what was done before you ask again.",
        TurnError::Store(error.clone()).public_message(),
        tools.join(", ")
    );
    ApiError { message, ..store_error }
}

/// Failure of a hook, without its own message.
pub(crate) fn hook_api_error(failure: &HookError) -> ApiError {
    tracing::error!(%failure, "a hook failed during a run");
    let message = format!("{} of plugin {} failed", failure.hook, failure.plugin);
    ApiError::new(ApiErrorCode::RuntimeError, message).with_cause(ErrorCode::HookFailed)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ErrorCode;
    use capstan_tape::StoreError;

    use super::store_api_error;

    #[test]
    fn x01_a_runner_learns_that_the_disk_is_full_but_no_path() {
        let full = StoreError::DiskFull { what: "/home/ada/.capstan/capstan.db".to_owned() };
        let error = store_api_error(&full);
        assert_eq!((error.cause, error.message.as_str()), (Some(ErrorCode::DiskFull.into()), "the disk is full"));
        let busy = store_api_error(&StoreError::Busy { what: "/home/ada/.capstan/capstan.db".to_owned() });
        assert_eq!(busy.cause, Some(ErrorCode::StoreBusy.into()));
        assert_eq!(store_api_error(&StoreError::io("/x", "gone")).cause, Some(ErrorCode::StoreFailed.into()));
    }
}
