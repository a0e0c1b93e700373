//! Limits and lifetime of one run's API, and the record of its refusals.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode, truncate_chars};
use capstan_tape::{ApiRefusal, Batch, EntryDraft, RunStatus, StoreError, TapeEvent};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_limits::ApiLimits;
use crate::payload_size::PayloadSize;
use crate::run::Run;

/// Maximum number of refusals that a run records. The others are counted.
const MAX_RECORDED_REFUSALS: u32 = 100;
/// Maximum length of a refusal's detail, which may repeat the caller's text.
const MAX_REFUSAL_DETAIL_LEN: usize = 500;
/// Grace after the deadline of a run: the orchestrator ends it first, with the reason.
const RUN_DEADLINE_GRACE: Duration = Duration::from_secs(1);
/// Time whose calls a burst may use up at once.
const CALL_BURST_WINDOW: Duration = Duration::from_secs(1);

/// Limits and lifetime of one run's API.
pub(crate) struct CallLimiter {
    limits: ApiLimits,
    deadline: Instant,
    state: Mutex<CallLimiterState>,
    /// Fires when the run has ended: calls in tasks of the runner end too.
    pub(crate) revoked: CancellationToken,
    /// Held by the open step.
    pub(crate) step_lock: Semaphore,
    /// Held by a change of stored state, from the check of its quota to the commit.
    pub(crate) change_lock: Semaphore,
    /// Held by a search.
    pub(crate) search_permit: Semaphore,
}

struct CallLimiterState {
    /// Status of the run, if it has ended.
    end_status: Option<RunStatus>,
    in_flight: u32,
    /// Time at which all admitted calls would have arrived at the allowed rate.
    theoretical_arrival: Instant,
    recorded_refusals: u32,
    unrecorded_refusals: u64,
}

/// An admitted call, until it is dropped.
pub(crate) struct CallPermit {
    run: Arc<Run>,
    /// Owner of the plugin storage that the call may use, if it is not that of the runner.
    pub(crate) storage_owner: Option<Value>,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.run.call_limiter.lock_state().in_flight -= 1;
    }
}

impl CallLimiter {
    /// Limiter of a run with this timeout.
    pub(crate) fn new(limits: ApiLimits, run_timeout: Duration) -> Self {
        let now = Instant::now();
        // A timeout that overflows the clock means no deadline, so it is replaced by a year.
        let deadline = now
            .checked_add(run_timeout.saturating_add(RUN_DEADLINE_GRACE))
            .unwrap_or_else(|| now + Duration::from_hours(24 * 365));
        let state = CallLimiterState {
            end_status: None,
            in_flight: 0,
            theoretical_arrival: now,
            recorded_refusals: 0,
            unrecorded_refusals: 0,
        };
        Self {
            limits,
            deadline,
            state: Mutex::new(state),
            revoked: CancellationToken::new(),
            step_lock: Semaphore::new(1),
            change_lock: Semaphore::new(1),
            search_permit: Semaphore::new(1),
        }
    }

    /// Reason why no call is admitted any more, if there is one.
    fn revocation_error(&self, is_cancelled: bool) -> Option<ApiError> {
        let message = match self.lock_state().end_status {
            Some(RunStatus::Timeout) => "the deadline of this run has passed",
            Some(RunStatus::Cancelled) => "this run was cancelled",
            Some(_) => return Some(ApiError::new(ApiErrorCode::Unauthorized, "this run has ended")),
            None if is_cancelled => "this run was cancelled",
            None if Instant::now() >= self.deadline => "the deadline of this run has passed",
            None => return None,
        };
        Some(ApiError::new(ApiErrorCode::DeadlineExceeded, message))
    }

    /// Refuses a request that is too large.
    fn check_size(&self, method: ApiMethod, size: PayloadSize) -> Result<(), ApiError> {
        let (bytes, max_bytes) = match size {
            PayloadSize::Arguments(bytes) => (bytes, self.limits.payload_bytes),
            PayloadSize::Content(bytes) => (bytes, self.limits.content_bytes),
        };
        if bytes <= max_bytes {
            return Ok(());
        }
        let message = format!("the request of {method} has {bytes} bytes, more than the {max_bytes} allowed");
        Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message))
    }

    /// Counts a call against the limits of rate and concurrency.
    fn count_call(&self) -> Result<(), ApiError> {
        let rate_limited =
            |message: String| ApiError { retryable: true, ..ApiError::new(ApiErrorCode::RateLimited, message) };
        let ApiLimits { calls_per_second, in_flight, .. } = self.limits;
        let now = Instant::now();
        let mut state = self.lock_state();
        if state.in_flight >= in_flight {
            return Err(rate_limited(format!("{in_flight} calls of this run are in flight already")));
        }
        let arrival = state.theoretical_arrival.max(now);
        if arrival.duration_since(now) >= CALL_BURST_WINDOW {
            return Err(rate_limited(format!("a run may make at most {calls_per_second} calls per second")));
        }
        state.theoretical_arrival = arrival + Duration::from_secs(1) / calls_per_second.max(1);
        state.in_flight += 1;
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, CallLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// Admits a call if, in this order, the run is active, it is the caller, the request is within the size limit, and
    /// the call is within the limits of rate and concurrency.
    pub(crate) fn admit_call(self: &Arc<Self>, method: ApiMethod, size: PayloadSize) -> Result<CallPermit, ApiError> {
        let limiter = &self.call_limiter;
        if let Some(revoked) = self.revocation_error(method) {
            return Err(revoked);
        }
        if is_foreign_caller(self) {
            return Err(ApiError::new(ApiErrorCode::Unauthorized, "this is the handle of another run"));
        }
        limiter.check_size(method, size)?;
        limiter.count_call()?;
        Ok(CallPermit { run: Arc::clone(self), storage_owner: None })
    }

    /// Returns true if calls of a method are served in the grace period of a cancelled run: they concern stored data.
    pub(crate) fn serves_after_cancel(&self, method: ApiMethod) -> bool {
        let is_about_stored_data = matches!(
            method,
            ApiMethod::StateGet
                | ApiMethod::StateSet
                | ApiMethod::StateList
                | ApiMethod::StateDelete
                | ApiMethod::StorageGet
                | ApiMethod::StoragePut
                | ApiMethod::StorageList
                | ApiMethod::StorageDelete
        );
        is_about_stored_data && self.runner.descriptor.capabilities.interrupt
    }

    /// Reason why no call of this method is admitted any more, if there is one.
    pub(crate) fn revocation_error(&self, method: ApiMethod) -> Option<ApiError> {
        let is_cancelled = self.cancel_token.is_cancelled() && !self.serves_after_cancel(method);
        self.call_limiter.revocation_error(is_cancelled)
    }

    /// Ends the API with its run: no further call is admitted, and calls in flight end.
    pub(crate) fn revoke_api(&self, end_status: RunStatus) {
        let mut state = self.call_limiter.lock_state();
        state.end_status = Some(end_status);
        if state.unrecorded_refusals > 0 {
            let refusals = ApiRefusal::Unrecorded { more: state.unrecorded_refusals };
            self.append(TapeEvent::ApiRefused(refusals).into());
        }
        drop(state);
        self.call_limiter.revoked.cancel();
    }

    /// Records a refusal on the tape, before the caller sees it.
    pub(crate) async fn record_refusal(&self, method: ApiMethod, error: ApiError) -> ApiError {
        let late_entry = self.journal_refusal(method, &error);
        // The journal of an ended run is closed, and another process may hold its lease: commit without both.
        if let Some(entry) = late_entry
            && let Err(error) = self.commit_late_refusal(entry).await
        {
            tracing::warn!(run_id = %self.id(), %method, %error, "cannot record a refusal");
        }
        error
    }

    /// Commits a refusal after the end of the run. The fork of an ended child is closed, so its refusals are recorded
    /// on the tape of the session.
    async fn commit_late_refusal(&self, entry: EntryDraft) -> Result<(), StoreError> {
        let tapes = &self.environment.tapes;
        let mut tape = self.journal.tape().clone();
        while let Some(fork) = tapes.record(&tape).await?.and_then(|record| record.fork) {
            tape = fork.parent;
        }
        let date = Some(self.environment.options.clock.now().into());
        let mut batch = Batch::new();
        batch.append(&tape, EntryDraft { date, ..entry.with_run_id(self.id()) });
        tapes.commit(batch).await.map(drop)
    }

    /// Writes a refusal to the journal. Returns the entry if the run has ended, and its journal with it.
    fn journal_refusal(&self, method: ApiMethod, error: &ApiError) -> Option<EntryDraft> {
        let mut state = self.call_limiter.lock_state();
        if state.recorded_refusals >= MAX_RECORDED_REFUSALS {
            state.unrecorded_refusals += 1;
            return None;
        }
        state.recorded_refusals += 1;
        tracing::warn!(run_id = %self.id(), %method, %error, "refused a call of a runner");
        let detail = truncate_chars(&error.message, MAX_REFUSAL_DETAIL_LEN, "");
        let refusal = ApiRefusal::Call { method: method.as_str().to_owned(), code: error.code, detail };
        let entry = TapeEvent::ApiRefused(refusal).into();
        if state.end_status.is_some() {
            return Some(entry);
        }
        self.append(entry);
        None
    }
}

tokio::task_local! {
    /// The run whose runner is being polled.
    static CALLER: Arc<Run>;
}

/// Runs a function on behalf of a run's runner.
pub(crate) fn with_caller<T>(run: &Arc<Run>, work: impl FnOnce() -> T) -> T {
    CALLER.sync_scope(Arc::clone(run), work)
}

/// Returns true if another run is known to be the caller. The caller is unknown in a task that a runner has spawned:
/// there the handle alone identifies the run.
fn is_foreign_caller(run: &Arc<Run>) -> bool {
    CALLER.try_with(|caller| !Arc::ptr_eq(caller, run)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use capstan_hooks::contracts::ApiMethod;
    use capstan_protocol::ApiErrorCode;

    use super::{CallLimiter, PayloadSize};
    use crate::api_limits::ApiLimits;

    #[tokio::test(start_paused = true)]
    async fn k04_the_call_rate_is_bounded_and_recovers_over_time() {
        let limits = ApiLimits { calls_per_second: 10, in_flight: 1_000, ..ApiLimits::default() };
        let limiter = CallLimiter::new(limits, Duration::from_mins(1));
        let admitted = (0..100).filter(|_| limiter.count_call().is_ok()).count();
        assert_eq!(admitted, 10, "a burst uses up the calls of one second");
        let refusal = limiter.count_call().unwrap_err();
        assert!(refusal.code == ApiErrorCode::RateLimited && refusal.retryable);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!((0..100).filter(|_| limiter.count_call().is_ok()).count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn k04_calls_are_refused_shortly_after_the_deadline_of_their_run() {
        let limiter = CallLimiter::new(ApiLimits::default(), Duration::from_mins(1));
        tokio::time::advance(Duration::from_millis(60_900)).await;
        assert_eq!(limiter.revocation_error(false), None, "the orchestrator ends the run first");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(limiter.revocation_error(false).unwrap().code, ApiErrorCode::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn k04_calls_in_flight_are_bounded() {
        let limiter = CallLimiter::new(ApiLimits { in_flight: 3, ..ApiLimits::default() }, Duration::from_mins(1));
        assert_eq!((0..10).filter(|_| limiter.count_call().is_ok()).count(), 3);
    }

    #[tokio::test]
    async fn k04_arguments_and_contents_have_size_limits_of_their_own() {
        let limits = ApiLimits { payload_bytes: 10, content_bytes: 100, ..ApiLimits::default() };
        let limiter = CallLimiter::new(limits, Duration::from_mins(1));
        assert!(limiter.check_size(ApiMethod::TapeNote, PayloadSize::Arguments(10)).is_ok());
        assert!(limiter.check_size(ApiMethod::StoragePut, PayloadSize::Content(100)).is_ok());
        let too_large =
            [(ApiMethod::TapeNote, PayloadSize::Arguments(11)), (ApiMethod::StoragePut, PayloadSize::Content(101))];
        for (method, size) in too_large {
            assert_eq!(limiter.check_size(method, size).unwrap_err().code, ApiErrorCode::PayloadTooLarge);
        }
    }
}
