//! The door of one run: whether it is open, how often it is used, and who was turned away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::ApiMethod;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::{ApiRefusal, Batch, EntryDraft, RunStatus, StoreError, TapeEvent};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ApiLimits;
use crate::runs::run::Run;

/// How many refusals a run writes. The others are counted.
const MAX_RECORDED_REFUSALS: u32 = 100;
/// How long a detail may be: it may repeat what the caller wrote.
const MAX_REFUSAL_DETAIL_LEN: usize = 500;
/// Whoever ends a run at its deadline comes first, so that it has ended for that reason.
const RUN_DEADLINE_GRACE: Duration = Duration::from_secs(1);
/// A burst may use up what is allowed in this time.
const CALL_BURST_WINDOW: Duration = Duration::from_secs(1);

/// The door of one run.
pub(crate) struct CallLimiter {
    limits: ApiLimits,
    deadline: Instant,
    state: Mutex<CallLimiterState>,
    /// Fires when the run has ended: a call that goes on elsewhere ends too.
    pub(super) revoked: CancellationToken,
    /// Whoever holds it has the open step.
    pub(super) step_lock: Semaphore,
    /// Whoever holds it changes what is kept: how much that is was looked up before.
    pub(super) change_lock: Semaphore,
}

struct CallLimiterState {
    /// How the run ended, if it has.
    end_status: Option<RunStatus>,
    in_flight: u32,
    /// When everything that was let in would have been, at the rate that is allowed.
    theoretical_arrival: Instant,
    recorded_refusals: u32,
    unrecorded_refusals: u64,
}

/// A call that was let in, until it is dropped.
pub(super) struct CallPermit(Arc<Run>);

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.call_limiter.lock_state().in_flight -= 1;
    }
}

impl CallLimiter {
    /// The door of a run that may take so long.
    pub(crate) fn new(limits: ApiLimits, run_may_take: Duration) -> Self {
        let now = Instant::now();
        // A time that no clock reaches is none.
        let deadline = now
            .checked_add(run_may_take.saturating_add(RUN_DEADLINE_GRACE))
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
        }
    }

    /// Why nobody is let in any more, if so.
    pub(super) fn revocation_error(&self, run: &Run) -> Option<ApiError> {
        self.revocation_error_for(&run.cancelled)
    }

    fn revocation_error_for(&self, cancelled: &CancellationToken) -> Option<ApiError> {
        let message = match self.lock_state().end_status {
            Some(RunStatus::Timeout) => "the time of this run is up",
            Some(RunStatus::Cancelled) => "this run was cancelled",
            Some(_) => return Some(ApiError::new(ApiErrorCode::Unauthorized, "this run has ended")),
            None if cancelled.is_cancelled() => "this run was cancelled",
            None if Instant::now() >= self.deadline => "the time of this run is up",
            None => return None,
        };
        Some(ApiError::new(ApiErrorCode::DeadlineExceeded, message))
    }

    /// Refuses what is larger than a method takes.
    pub(super) fn check_size(&self, method: ApiMethod, bytes: u64) -> Result<(), ApiError> {
        let most = if accepts_content(method) { self.limits.content_bytes } else { self.limits.payload_bytes };
        if bytes <= most {
            return Ok(());
        }
        let message = format!("{method} was given {bytes} bytes, more than the {most} allowed");
        Err(ApiError::new(ApiErrorCode::PayloadTooLarge, message))
    }

    /// Counts a call in, if it does not come too often.
    fn count_call(&self) -> Result<(), ApiError> {
        let too_often =
            |message: String| ApiError { retryable: true, ..ApiError::new(ApiErrorCode::RateLimited, message) };
        let ApiLimits { calls_per_second, in_flight, .. } = self.limits;
        let now = Instant::now();
        let mut state = self.lock_state();
        if state.in_flight >= in_flight {
            return Err(too_often(format!("{in_flight} calls of this run are being served already")));
        }
        let paid_until = state.theoretical_arrival.max(now);
        if paid_until.duration_since(now) >= CALL_BURST_WINDOW {
            return Err(too_often(format!("a run makes at most {calls_per_second} calls a second")));
        }
        state.theoretical_arrival = paid_until + Duration::from_secs(1) / calls_per_second.max(1);
        state.in_flight += 1;
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, CallLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether contents are handed over by a method, which may be large.
fn accepts_content(method: ApiMethod) -> bool {
    matches!(
        method,
        ApiMethod::ModelsStream
            | ApiMethod::ModelsInvoke
            | ApiMethod::ModelsCountTokens
            | ApiMethod::ModelsRerank
            | ApiMethod::ToolsCall
            | ApiMethod::TapeSay
            | ApiMethod::ArtifactsCreate
            | ApiMethod::StoragePut
            | ApiMethod::RunsChild
    )
}

impl Run {
    /// Lets a call in, if it does not come too often.
    pub(super) fn acquire_call_permit(self: &Arc<Self>) -> Result<CallPermit, ApiError> {
        self.call_limiter.count_call()?;
        Ok(CallPermit(Arc::clone(self)))
    }

    /// The run has ended: nobody is let in from now on, and whoever still is inside is sent away.
    pub(crate) fn revoke_api(&self, how: RunStatus) {
        let mut state = self.call_limiter.lock_state();
        state.end_status = Some(how);
        if state.unrecorded_refusals > 0 {
            let refusals = ApiRefusal::Unrecorded { more: state.unrecorded_refusals };
            self.append(TapeEvent::ApiRefused(refusals).into());
        }
        drop(state);
        self.call_limiter.revoked.cancel();
    }

    /// A refusal, which stands on the tape before it is told.
    pub(super) async fn record_refusal(&self, method: ApiMethod, error: ApiError) -> ApiError {
        let told = self.journal_refusal(method, &error);
        // The run's own journal is closed, and its lease may be another's by now: it is written beside them.
        if let Some(entry) = told
            && let Err(failed) = self.commit_late_refusal(entry).await
        {
            tracing::warn!(run_id = %self.id(), %method, %failed, "a refusal could not be written");
        }
        error
    }

    /// The fork of a child is closed when the child has ended: the tape of its session tells of it then.
    async fn commit_late_refusal(&self, entry: EntryDraft) -> Result<(), StoreError> {
        let tapes = &self.services.tapes;
        let mut tape = self.journal.tape().clone();
        while let Some(fork) = tapes.record(&tape).await?.and_then(|record| record.fork) {
            tape = fork.parent;
        }
        let date = Some(self.services.options.clock.now().into());
        let mut batch = Batch::new();
        batch.append(&tape, EntryDraft { date, ..entry.with_run_id(self.id()) });
        tapes.commit(batch).await.map(drop)
    }

    /// Writes a refusal into the journal; gives it back when the run has ended and so has its journal.
    fn journal_refusal(&self, method: ApiMethod, error: &ApiError) -> Option<EntryDraft> {
        let mut state = self.call_limiter.lock_state();
        if state.recorded_refusals >= MAX_RECORDED_REFUSALS {
            state.unrecorded_refusals += 1;
            return None;
        }
        state.recorded_refusals += 1;
        tracing::warn!(run_id = %self.id(), %method, %error, "a call of a runner was refused");
        let detail: String = error.message.chars().take(MAX_REFUSAL_DETAIL_LEN).collect();
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
    /// The run whose runner is being asked.
    static CALLER: Arc<Run>;
}

/// Does something on behalf of a run's runner.
pub(super) fn with_caller<T>(run: &Arc<Run>, work: impl FnOnce() -> T) -> T {
    CALLER.sync_scope(Arc::clone(run), work)
}

/// Whether another run is known to be calling. Where a runner has given its handle to a task of its own, the handle is
/// all that says who calls.
pub(super) fn is_foreign_caller(run: &Arc<Run>) -> bool {
    CALLER.try_with(|caller| !Arc::ptr_eq(caller, run)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use capstan_hooks::contracts::ApiMethod;
    use capstan_protocol::ApiErrorCode;
    use tokio_util::sync::CancellationToken;

    use super::CallLimiter;
    use crate::ApiLimits;

    #[tokio::test(start_paused = true)]
    async fn k04_calls_are_bounded_by_the_second_and_come_in_again_later() {
        let limits = ApiLimits { calls_per_second: 10, in_flight: 1_000, ..ApiLimits::default() };
        let door = CallLimiter::new(limits, Duration::from_mins(1));
        let let_in = (0..100).filter(|_| door.count_call().is_ok()).count();
        assert_eq!(let_in, 10, "a burst uses up a second");
        let refusal = door.count_call().unwrap_err();
        assert!(refusal.code == ApiErrorCode::RateLimited && refusal.retryable);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!((0..100).filter(|_| door.count_call().is_ok()).count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn k04_a_door_shuts_by_itself_a_little_after_its_run_should_have_ended() {
        let (door, goes_on) =
            (CallLimiter::new(ApiLimits::default(), Duration::from_mins(1)), CancellationToken::new());
        tokio::time::advance(Duration::from_millis(60_900)).await;
        assert_eq!(door.revocation_error_for(&goes_on), None, "whoever ends the run comes first");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(door.revocation_error_for(&goes_on).unwrap().code, ApiErrorCode::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn k04_calls_in_flight_are_bounded() {
        let door = CallLimiter::new(ApiLimits { in_flight: 3, ..ApiLimits::default() }, Duration::from_mins(1));
        assert_eq!((0..10).filter(|_| door.count_call().is_ok()).count(), 3);
    }

    #[tokio::test]
    async fn k04_a_call_is_weighed_by_what_its_method_takes() {
        let limits = ApiLimits { payload_bytes: 10, content_bytes: 100, ..ApiLimits::default() };
        let door = CallLimiter::new(limits, Duration::from_mins(1));
        assert!(
            door.check_size(ApiMethod::TapeNote, 10).is_ok() && door.check_size(ApiMethod::StoragePut, 100).is_ok()
        );
        for (method, bytes) in [(ApiMethod::TapeNote, 11), (ApiMethod::StoragePut, 101)] {
            assert_eq!(door.check_size(method, bytes).unwrap_err().code, ApiErrorCode::PayloadTooLarge);
        }
    }
}
