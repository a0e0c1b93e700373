//! From a runner's results to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` says what each
//! becomes. Tool and model calls that go through the run API are journalled there, before and after they are made.

mod panic_safe_stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_hooks::EventStream;
use capstan_hooks::contracts::ResultStream;
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, ResultBody, RunResult, RunnerSource, StreamEvent};
use capstan_tape::{DroppedResult, EntryDraft, ResultAnomalies, StoreError, TapeEvent};
use capstan_turn::{RunError, TurnError};
use futures::{FutureExt as _, StreamExt as _};
use panic_safe_stream::PanicSafeStream;
use tokio::sync::mpsc;

use crate::actions;
use crate::api_error::store_api_error;
use crate::artifacts;
use crate::run::{ResultVerdict, Run, TerminalResult, dropped_result_entry};
use crate::state;

/// Maximum number of results counted after the end of a run.
const MAX_TRAILING_RESULTS: usize = 64;

/// Starts the runner of a run with its run API. An argument, since the run API itself starts child runs.
pub(crate) type RunnerCall = fn(&Arc<Run>) -> ResultStream;

/// Asks the binding's runner, and gives what happens as stream events.
pub(crate) fn runner_stream(
    run: Arc<Run>,
    mut from_api: mpsc::Receiver<StreamEvent>,
    call_runner: RunnerCall,
) -> EventStream {
    run.progress().runner_started = true;
    run.journal.start_run(run.id());
    let stream = async_stream::stream! {
        let mut results = PanicSafeStream::new(call_runner(&run));
        loop {
            tokio::select! {
                biased;
                Some(event) = from_api.recv() => yield event,
                result = results.stream().next() => {
                    let Some(result) = result else { break };
                    for event in handle_result(&run, result).await {
                        yield event;
                    }
                    if run.progress().terminal.is_some() {
                        break;
                    }
                }
            }
            // A runner that always has a result ready must not starve the deadline or other tasks.
            tokio::task::consume_budget().await;
        }
        count_trailing_results(&run, results);
        while let Ok(event) = from_api.try_recv() {
            yield event;
        }
        for event in finish_results(&run) {
            yield event;
        }
    };
    stream.boxed()
}

/// Validates a result and applies it if it is accepted. Returns the events for the channel.
pub(crate) async fn handle_result(run: &Run, result: RunResult) -> Vec<StreamEvent> {
    let sifted = {
        let mut progress = run.progress();
        let partial = progress.partial_text.len();
        progress.result_validator.validate(result, &run.environment.options.limits.results, partial)
    };
    match sifted {
        ResultVerdict::Accept(result) => {
            let shown = apply_result(run, result).await;
            if run.progress().result_validator.should_commit() {
                fail_on_store_error(run, run.flush().await);
            }
            shown
        }
        ResultVerdict::Drop(left) => {
            if let Some(left) = left {
                drop_result(run, &left);
            }
            Vec::new()
        }
        ResultVerdict::EndRun(failure) => {
            run.set_terminal(TerminalResult::Failed(failure));
            Vec::new()
        }
    }
}

/// Applies a result to the tape and the output. Returns the events for the channel.
async fn apply_result(run: &Run, result: RunResult) -> Vec<StreamEvent> {
    if let Some(usage) = &result.usage {
        run.add_usage(usage);
    }
    if !matches!(result.body, ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. }) {
        let steps = run.progress().runner_tool_calls.advance();
        run.append_entries(steps);
    }
    match result.body {
        ResultBody::MessageDelta { delta } => vec![StreamEvent::text(run.add_delta(&delta))],
        ResultBody::ReasoningDelta { delta } => vec![StreamEvent::Reasoning { delta }],
        ResultBody::MessageCompleted { content, provider_meta } => run.complete_message(content, provider_meta),
        ResultBody::ToolCallStarted { call } => {
            run.complete_partial();
            run.progress().runner_tool_calls.start(call.clone());
            vec![StreamEvent::ToolCall { call }]
        }
        ResultBody::ToolCallCompleted { call_id, name, output } => {
            if !run.progress().runner_tool_calls.is_awaiting(&call_id) {
                run.progress().result_validator.anomalies.malformed += 1;
                record_dropped_result(run, "tool.call.completed", "it answers no call that is open");
                return Vec::new();
            }
            let output = run.environment.options.secret_masker.mask_output(output);
            let steps = run.progress().runner_tool_calls.complete(&call_id, output.clone());
            run.append_entries(steps);
            fail_on_store_error(run, run.flush().await);
            vec![StreamEvent::ToolResult { call_id, name, output }]
        }
        ResultBody::StateUpdated { state, .. } if state.len() as u64 > run.grant().state_limits.keys => {
            let (keys, most) = (state.len(), run.grant().state_limits.keys);
            refuse_result(run, "state.updated", &format!("it has {keys} keys, more than the {most} allowed"));
            Vec::new()
        }
        ResultBody::StateUpdated { scope, state } => {
            match state::set_state_deferred(run, scope, &state).await {
                Ok(()) => {}
                // The store failed: the runner relies on state that was not stored, and its next changes would be
                // lost as well.
                Err(ApiError { message, cause: code @ Some(_), .. }) => {
                    run.set_terminal(TerminalResult::Failed(RunError { message, code }));
                }
                Err(refusal) => refuse_result(run, "state.updated", &refusal.to_string()),
            }
            Vec::new()
        }
        ResultBody::ArtifactCreated { name, media_type, content } => {
            if let Err(refusal) = artifacts::store_artifact(run, name, media_type, &content) {
                refuse_result(run, "artifact.created", &refusal.to_string());
            }
            Vec::new()
        }
        ResultBody::ActionRequested(request) => {
            // What becomes of it is on record; a runner that wants to know asks through the run API.
            if let Err(error) = actions::perform_action(run, request).await {
                tracing::debug!(run_id = %run.id(), %error, "an action was not done");
                if error.cause.as_ref().is_some_and(|cause| *cause != ErrorCode::ActionUnknown) {
                    run.set_terminal(TerminalResult::Failed(RunError { message: error.message, code: error.cause }));
                } else if error.code != ApiErrorCode::RuntimeError {
                    run.progress().result_validator.anomalies.refused += 1;
                }
            }
            Vec::new()
        }
        // The validator has parsed every result that can be parsed.
        ResultBody::Unread(_) => Vec::new(),
        ResultBody::RunCompleted { silent } => {
            run.set_terminal(TerminalResult::Completed { silent });
            Vec::new()
        }
        ResultBody::RunFailed { message, code } => {
            // What the host says of itself only the host says: people follow its advice.
            let is_of_host = run.runner.descriptor().source == RunnerSource::HostAdapter;
            let code = code.filter(|code| is_of_host || !code.is_reserved());
            run.set_terminal(TerminalResult::Failed(RunError { message, code }));
            Vec::new()
        }
    }
}

/// Drops a result that the validator rejected. Of a rejected message, the part that was streamed is kept.
fn drop_result(run: &Run, left: &DroppedResult) {
    if left.kind == "message.completed" {
        run.complete_partial();
    }
    record_dropped_result(run, &left.kind, &left.reason);
}

/// Drops a result whose request is refused.
fn refuse_result(run: &Run, kind: &str, why: &str) {
    run.progress().result_validator.anomalies.refused += 1;
    record_dropped_result(run, kind, why);
}

/// Records a dropped result on the tape, with the reason. If a runner sends many, only the first ones get entries
/// of their own.
fn record_dropped_result(run: &Run, kind: &str, why: &str) {
    if run.progress().result_validator.should_record_drop() {
        tracing::warn!(run_id = %run.id(), kind, why, "a result was dropped");
        run.append(dropped_result_entry(kind, why));
    }
}

/// Drops the runner's stream. Results that are ready after the terminal one are counted; further ones are not
/// awaited, and a panic has no effect on the run.
fn count_trailing_results(run: &Run, mut results: PanicSafeStream) {
    if !run.progress().result_validator.has_ended() {
        return;
    }
    let one_more = || matches!(results.stream().next().now_or_never(), Some(Some(_)));
    let count = || std::iter::repeat_with(one_more).take(MAX_TRAILING_RESULTS).take_while(|there| *there).count();
    if let Ok(behind) = catch_unwind(AssertUnwindSafe(count)) {
        run.progress().result_validator.anomalies.after_end += behind as u64;
    } else {
        tracing::warn!(run_id = %run.id(), "the runner crashed after the end of its run");
    }
}

/// Records the anomalies of the run's results, if there were any.
pub(crate) fn record_anomalies(run: &Run) {
    let noted = std::mem::take(&mut run.progress().result_validator.anomalies);
    if noted != ResultAnomalies::default() {
        tracing::info!(run_id = %run.id(), ?noted, "some results were odd");
        run.append(TapeEvent::ResultsNoted(noted).into());
    }
}

/// Fails the run if the journal failed: its next steps could not be recorded.
fn fail_on_store_error(run: &Run, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        let failed = store_api_error(&error);
        run.set_terminal(TerminalResult::Failed(RunError { message: failed.message, code: failed.cause }));
    }
}

/// Handles the end of the runner's stream: completes a message that was only streamed, and fails a run without a
/// terminal result.
fn finish_results(run: &Run) -> Vec<StreamEvent> {
    run.set_terminal(TerminalResult::Failed(RunError {
        message: "the runner ended without saying how".to_owned(),
        code: Some(ErrorCode::RunFailed.into()),
    }));
    let terminal = run.progress().terminal.clone();
    match terminal {
        Some(TerminalResult::Failed(failure)) => {
            run.save_partial();
            let text = run.output();
            run.append(EntryDraft::error("run_model", &failure.message));
            vec![StreamEvent::error(failure.message), StreamEvent::Final { text, ok: false }]
        }
        Some(TerminalResult::Completed { .. }) | None => {
            // A run without output has read its message all the same.
            run.ingest_message();
            run.flush_runner_tool_calls();
            run.complete_partial();
            vec![StreamEvent::Final { text: run.output(), ok: true }]
        }
    }
}

/// The next event of the stage. A panic in it, a plugin's or a runner's, is this run's failure and nobody else's; nor
/// does a stream that always has an event ready keep anybody else waiting.
pub(crate) async fn next_event(
    stream: &mut EventStream,
    who: impl Fn() -> String,
) -> Result<Option<StreamEvent>, TurnError> {
    tokio::task::consume_budget().await;
    AssertUnwindSafe(stream.next()).catch_unwind().await.map_err(|_| {
        let message = format!("{} crashed", who());
        TurnError::Run(RunError { message, code: Some(ErrorCode::RunFailed.into()) })
    })
}
