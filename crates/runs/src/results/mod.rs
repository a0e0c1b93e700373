//! Applies the results of a runner: to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` lists
//! the effect of each result. Tool and model calls through the run API are journalled there, before and after the call.

mod runner_results;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_hooks::EventStream;
use capstan_hooks::contracts::RunApi;
use capstan_protocol::{
    ApiError, ApiErrorCode, Content, ContentPart, ErrorCode, ResultBody, RunResult, RunnerSource, StreamEvent,
};
use capstan_tape::{DroppedResult, EntryDraft, ResultAnomalies, StoreError, TapeEvent};
use capstan_turn::{RunError, TurnError};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;

use self::runner_results::RunnerResults;
use crate::api_error::store_api_error;
use crate::run::{ResultVerdict, Run, TerminalResult, dropped_result_entry};
use crate::{actions, artifacts, state};

/// Maximum number of results counted after the end of a run.
const MAX_TRAILING_RESULTS: usize = 64;

/// Calls the binding's runner and returns its progress as stream events.
pub(crate) fn runner_stream(run: Arc<Run>, mut from_api: mpsc::Receiver<StreamEvent>, api: RunApi) -> EventStream {
    run.progress().runner_started = true;
    run.journal.start_run(run.id());
    let stream = async_stream::stream! {
        let mut results = RunnerResults::start(&run, api);
        loop {
            tokio::select! {
                biased;
                Some(event) = from_api.recv() => yield event,
                result = results.next() => {
                    let Some(result) = result else { break };
                    // The poll that returned the result may also have finished calls: their events precede it.
                    while let Ok(event) = from_api.try_recv() {
                        yield event;
                    }
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
    let verdict = {
        let mut progress = run.progress();
        let partial = progress.partial_text.len();
        progress.result_validator.validate(result, run.id(), &run.environment.options.limits.results, partial)
    };
    match verdict {
        ResultVerdict::Accept(result) => {
            let stream_events = apply_result(run, result).await;
            if run.progress().result_validator.should_commit() {
                fail_on_store_error(run, run.journal.flush().await);
            }
            stream_events
        }
        ResultVerdict::Drop(dropped) => dropped.map(|dropped| drop_result(run, &dropped)).unwrap_or_default(),
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
        ResultBody::MessageDelta { delta } => {
            let shown = run.add_delta(&delta);
            if run.streams_deltas() { vec![StreamEvent::text(shown)] } else { Vec::new() }
        }
        ResultBody::ReasoningDelta { delta } => vec![StreamEvent::Reasoning { delta }],
        ResultBody::MessageCompleted { content, provider_meta } => {
            let content = remove_private_addresses(run, content);
            run.complete_message(content, provider_meta)
        }
        ResultBody::ToolCallStarted { call } => {
            let mut events = run.complete_partial();
            run.progress().runner_tool_calls.start(call.clone());
            events.push(StreamEvent::ToolCall { call });
            events
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
            if !run.is_step_open() {
                run.write_deferred_merges();
            }
            fail_on_store_error(run, run.journal.flush().await);
            vec![StreamEvent::ToolResult { call_id, name, output }]
        }
        ResultBody::StateUpdated { state, .. } if state.len() as u64 > run.grant().state_limits.keys => {
            let (keys, max_keys) = (state.len(), run.grant().state_limits.keys);
            refuse_result(run, "state.updated", &format!("it has {keys} keys, more than the {max_keys} allowed"));
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
                Err(error) => refuse_result(run, "state.updated", &error.to_string()),
            }
            Vec::new()
        }
        ResultBody::ArtifactCreated { name, media_type, content } => {
            if let Err(error) = artifacts::store_artifact(run, name, media_type, &content) {
                refuse_result(run, "artifact.created", &error.to_string());
            }
            Vec::new()
        }
        ResultBody::ActionRequested(_) if run.progress().is_in_grace => {
            refuse_result(run, "action.requested", "the run was cancelled");
            Vec::new()
        }
        ResultBody::ActionRequested(request) => {
            // The outcome is recorded; a runner that needs it calls the run API instead.
            if let Err(error) = actions::perform_action(run, request).await {
                tracing::debug!(run_id = %run.id(), %error, "an action was not performed");
                if error.cause.as_ref().is_some_and(|cause| *cause != ErrorCode::ActionUnknown) {
                    run.set_terminal(TerminalResult::Failed(RunError { message: error.message, code: error.cause }));
                } else if error.code != ApiErrorCode::RuntimeError {
                    run.progress().result_validator.anomalies.refused += 1;
                }
            }
            Vec::new()
        }
        // The validator has parsed every result that can be parsed.
        ResultBody::Unparsed(_) => Vec::new(),
        ResultBody::RunCompleted { silent } => {
            run.set_terminal(TerminalResult::Completed { silent });
            Vec::new()
        }
        ResultBody::RunFailed { message, code } => {
            // Error codes of the host are reserved for its own runners: users follow the advice of their pages.
            let is_host_runner = run.runner.descriptor.source == RunnerSource::HostAdapter;
            let code = code.filter(|code| is_host_runner || !code.is_reserved());
            run.set_terminal(TerminalResult::Failed(RunError { message, code }));
            Vec::new()
        }
    }
}

/// Drops a result that the validator rejected. Of a rejected message, the part that was streamed is kept.
fn drop_result(run: &Run, dropped: &DroppedResult) -> Vec<StreamEvent> {
    let events = if dropped.kind == "message.completed" { run.complete_partial() } else { Vec::new() };
    record_dropped_result(run, &dropped.kind, &dropped.reason);
    events
}

/// Replaces the parts of a message whose address is not one of the public internet, and records them: the channel, or the
/// model that reads the message later, could fetch them from its own network and file system.
fn remove_private_addresses(run: &Run, content: Content) -> Content {
    let Content::Parts(parts) = content else { return content };
    let check = |part: ContentPart| match capstan_policy::check_attachments(std::slice::from_ref(&part)) {
        // A name of an artifact is no address, and its content is stored by the host.
        _ if part.names_artifact() => part,
        Ok(()) => part,
        Err(error) => {
            refuse_result(run, "message.completed", &error.to_string());
            ContentPart::from_text("[attachment is not available]")
        }
    };
    Content::Parts(parts.into_iter().map(check).collect())
}

/// Drops a result whose request is refused.
fn refuse_result(run: &Run, kind: &str, reason: &str) {
    run.progress().result_validator.anomalies.refused += 1;
    record_dropped_result(run, kind, reason);
}

/// Records a dropped result on the tape, with the reason. If a runner sends many, only the first ones get entries
/// of their own.
fn record_dropped_result(run: &Run, kind: &str, reason: &str) {
    if run.progress().result_validator.should_record_drop() {
        tracing::warn!(run_id = %run.id(), kind, reason, "dropped a result");
        run.append(dropped_result_entry(kind, reason));
    }
}

/// Drops the runner's stream. Results that are ready after the terminal one are counted; further ones are not
/// awaited, and a panic has no effect on the run.
fn count_trailing_results(run: &Run, mut results: RunnerResults) {
    if !run.progress().result_validator.has_ended() {
        return;
    }
    let has_another = || matches!(results.next().now_or_never(), Some(Some(_)));
    let count =
        || std::iter::repeat_with(has_another).take(MAX_TRAILING_RESULTS).take_while(|is_result| *is_result).count();
    if let Ok(trailing) = catch_unwind(AssertUnwindSafe(count)) {
        run.progress().result_validator.anomalies.after_end += trailing as u64;
    } else {
        tracing::warn!(run_id = %run.id(), "the runner panicked after the end of its run");
    }
}

/// Records the anomalies of the run's results, if there were any.
pub(crate) fn record_anomalies(run: &Run) {
    let anomalies = std::mem::take(&mut run.progress().result_validator.anomalies);
    if anomalies != ResultAnomalies::default() {
        tracing::info!(run_id = %run.id(), ?anomalies, "the results of the run had anomalies");
        run.append(TapeEvent::ResultsNoted(anomalies).into());
    }
}

/// Fails the run if the journal failed: its next steps could not be recorded.
fn fail_on_store_error(run: &Run, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        let error = store_api_error(&error);
        run.set_terminal(TerminalResult::Failed(RunError { message: error.message, code: error.cause }));
    }
}

/// Handles the end of the runner's stream: completes a message that was only streamed, and fails a run without a
/// terminal result.
fn finish_results(run: &Run) -> Vec<StreamEvent> {
    let (is_in_grace, has_ended) = {
        let progress = run.progress();
        (progress.is_in_grace, progress.terminal.is_some())
    };
    if is_in_grace && !has_ended {
        // A cancelled run needs no terminal result.
        return Vec::new();
    }
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
            let RunError { message, code } = failure;
            vec![StreamEvent::Error { message, code }, StreamEvent::Final { text, ok: false }]
        }
        Some(TerminalResult::Completed { .. }) | None => {
            // A run without output has read its message all the same.
            run.ingest_message();
            run.flush_runner_tool_calls();
            let mut events = run.complete_partial();
            events.push(StreamEvent::Final { text: run.output(), ok: true });
            events
        }
    }
}

/// Next event of a runner's or a plugin's stream. A panic of the stream fails this run only, with `source_label` in the
/// message. A stream that always has an event ready does not starve other tasks.
pub(crate) async fn next_event(
    stream: &mut EventStream,
    source_label: impl Fn() -> String,
) -> Result<Option<StreamEvent>, TurnError> {
    tokio::task::consume_budget().await;
    AssertUnwindSafe(stream.next()).catch_unwind().await.map_err(|_| {
        let message = format!("{} crashed", source_label());
        TurnError::Run(RunError { message, code: Some(ErrorCode::RunFailed.into()) })
    })
}
