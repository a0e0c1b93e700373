//! One step of the agent loop: a model call and the tool calls of its reply.

use std::time::Instant;

use capstan_hooks::contracts::{ModelCall, ModelResultStream};
use capstan_protocol::{ApiError, ErrorCode, JsonObject, ToolCall, ToolName};
use capstan_tape::{LoopStepEnd, LoopStepStart, LoopStepStatus, TapeEvent};
use serde_json::json;

use crate::call_summary::{self, RunCallSummary};
use crate::run_handle::RunHandle;
use crate::{handoff_summary, prompt};

/// Message for the model after a handoff it requested.
const HANDOFF_CONTINUE_PROMPT: &str = "Continue: the handoff you requested is done, and the context starts at its anchor. \
    Go on with the rest of the request, or say that it is finished.";

/// Model call with the reply received up to now and the tool calls in it.
pub(crate) struct ModelStep {
    pub(crate) number: u32,
    pub(crate) reply: ModelResultStream,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) provider_meta: JsonObject,
    /// The reply reached the token limit.
    pub(crate) truncated: bool,
    started_at: Instant,
}

/// Outcome of starting a step.
pub(crate) enum StepStart {
    /// The model is replying.
    Started(Box<ModelStep>),
    /// The context was too long: an anchor was written and the request must be repeated.
    ContextReset,
}

/// State a run carries from step to step.
#[derive(Debug, Default)]
pub(crate) struct RunProgress {
    /// Beginning of the request that the run answers.
    request: String,
    max_steps: u32,
    /// The context overflowed before. It is reset only once per run.
    has_overflowed: bool,
    calls: RunCallSummary,
}

impl RunProgress {
    pub(crate) fn new(request: String, max_steps: u32) -> Self {
        Self { request, max_steps, ..Self::default() }
    }
}

impl ModelStep {
    /// Calls the model with the current view. If the request exceeds the token limit of the model, the context is reset,
    /// once.
    pub(crate) async fn start(
        handle: &RunHandle,
        number: u32,
        progress: &mut RunProgress,
    ) -> Result<StepStart, ApiError> {
        let started_at = Instant::now();
        let api = &handle.api;
        handle.note(TapeEvent::LoopStepStart(LoopStepStart { step: number })).await?;
        let config = &handle.config;
        let tools = config.offered_tools(api.tools.list().await?);
        let model = api.session.model().await?.or_else(|| config.model.clone());
        // The first reads files, the second the tape.
        let (system, messages) = tokio::try_join!(handle.system_prompt(), api.tape.view())?;
        let call = ModelCall {
            model,
            system: prompt::append_tools(system, &tools),
            messages,
            tools,
            options: config.options.clone(),
            fallbacks: config.fallbacks.clone(),
        };
        let reply = match api.models.stream(call).await {
            Ok(reply) => reply,
            Err(error) => {
                reset_context(handle, number, started_at, error, progress).await?;
                return Ok(StepStart::ContextReset);
            }
        };
        let (text, calls, provider_meta) = (String::new(), Vec::new(), JsonObject::new());
        Ok(StepStart::Started(Box::new(Self {
            number,
            reply,
            text,
            calls,
            provider_meta,
            truncated: false,
            started_at,
        })))
    }

    /// Removes the calls that were cut off by the token limit and returns the names of their tools.
    pub(crate) fn take_truncated_calls(&mut self) -> Vec<String> {
        let is_cut = |call: &mut ToolCall| serde_json::from_str::<JsonObject>(&call.function.arguments).is_err();
        let truncated = self.truncated;
        self.calls.extract_if(.., |call| truncated && is_cut(call)).map(|call| call.function.name).collect()
    }

    /// Handles an error in the middle of the reply. Some providers report an overflowing context only here; if the
    /// reply is empty, the context is reset. Otherwise returns the error that ends the run.
    pub(crate) async fn handle_stream_error(
        self,
        handle: &RunHandle,
        error: ApiError,
        progress: &mut RunProgress,
    ) -> Result<(), ApiError> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            self.record_end(handle, LoopStepStatus::Error).await;
            return Err(error);
        }
        reset_context(handle, self.number, self.started_at, error, progress).await
    }

    /// Records how the step ended.
    pub(crate) fn record_end<'a>(
        &self,
        handle: &'a RunHandle,
        status: LoopStepStatus,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        record_step_end(handle, self.number, self.started_at, status)
    }
}

/// Resets the context after a request that exceeded the token limit of the model. Returns the error that ends the run if
/// the error is a different one, the context was reset before, or the tape is read-only.
async fn reset_context(
    handle: &RunHandle,
    number: u32,
    started_at: Instant,
    error: ApiError,
    progress: &mut RunProgress,
) -> Result<(), ApiError> {
    if !is_context_overflow(&error) || progress.has_overflowed || !handle.can_write_tape() {
        record_step_end(handle, number, started_at, LoopStepStatus::Error).await;
        return Err(error);
    }
    progress.has_overflowed = true;
    // A summary is a model call too, and the last one is for the request itself.
    let remaining_calls = progress.max_steps.saturating_sub(number + 1);
    let mut state = handoff_summary::summarize_for_handoff(handle, &progress.request, remaining_calls).await?;
    record_step_end(handle, number, started_at, LoopStepStatus::AutoHandoff).await;
    // The model reads the anchor, so it carries a code and not the text of the provider.
    state.insert("reason".to_owned(), json!("context_length_exceeded"));
    state.insert("error".to_owned(), json!(ErrorCode::ModelContextOverflow));
    handle.api.tape.handoff("auto_handoff/context_overflow", state).await?;
    match progress.calls.render() {
        Some(summary) => handle.tell_model(summary.into()).await,
        None => Ok(()),
    }
}

/// Returns true if the request exceeded the token limit of the model.
fn is_context_overflow(error: &ApiError) -> bool {
    error.cause.as_ref().is_some_and(|cause| *cause == ErrorCode::ModelContextOverflow)
}

/// Records the end of a step. A note that cannot be written does not change what happened; a failing store shows at the
/// next commit.
async fn record_step_end(handle: &RunHandle, number: u32, started_at: Instant, status: LoopStepStatus) {
    let elapsed_ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let end = LoopStepEnd { step: number, elapsed_ms, status };
    let _unrecorded = handle.note(TapeEvent::LoopStep(end)).await;
}

/// Returns true if the call is of the tool with this model name. The host accepts the dotted name as well.
fn is_call_to(call: &ToolCall, name: &str) -> bool {
    ToolName::new(call.function.name.as_str()).model_name() == name
}

/// Message for the model about calls that were cut off by the token limit.
fn truncated_calls_message(tools: &[String]) -> String {
    format!(
        "Your reply reached the token limit in the middle of a call to {}, so that call was not made. \
         Repeat it with less content, split into several calls if necessary.",
        tools.join(", ")
    )
}

/// Executes the step's calls and writes the messages for the next step to the tape, including the notice about
/// truncated calls.
pub(crate) async fn execute_calls(
    handle: &RunHandle,
    mut step: ModelStep,
    truncated_calls: &[String],
    progress: &mut RunProgress,
) -> Result<(), ApiError> {
    let calls = std::mem::take(&mut step.calls);
    let handoff = ToolName::new("tape.handoff").model_name();
    let is_handoff: Vec<bool> = calls.iter().map(|call| is_call_to(call, &handoff)).collect();
    let lines: Vec<String> = calls.iter().map(call_summary::format_call).collect();
    let called = if calls.is_empty() { Ok(Vec::new()) } else { handle.api.tools.call(calls).await };
    step.record_end(handle, if called.is_ok() { LoopStepStatus::Continue } else { LoopStepStatus::Error }).await;
    let outputs = called?;
    lines.into_iter().zip(&outputs).for_each(|(line, output)| progress.calls.record(line, output));
    let handed_off = outputs.iter().zip(is_handoff).any(|(output, is_handoff)| is_handoff && !output.is_error);
    if handed_off {
        // The call and its result precede the anchor, so the model no longer sees them.
        handle.tell_model(HANDOFF_CONTINUE_PROMPT.into()).await?;
    }
    if !truncated_calls.is_empty() {
        handle.tell_model(truncated_calls_message(truncated_calls).into()).await?;
    }
    if handle.can_write_tape()
        && let Some(content) = handle.continuation_prompt(step.number + 1).await?
    {
        handle.tell_model(content).await?;
    }
    Ok(())
}
