//! One step of the loop.

use std::time::Instant;

use capstan_hooks::contracts::{ModelCall, ModelResultStream};
use capstan_protocol::{ApiError, ErrorCode, JsonObject, ToolCall, ToolName};
use capstan_tape::{LoopStepEnd, LoopStepStart, LoopStepStatus, TapeEvent};
use serde_json::json;

use crate::call_summary::{self, RunCallSummary};
use crate::prompt;
use crate::run_handle::RunHandle;

/// What the model is told after a handoff it asked for.
const HANDOFF_CONTINUE_PROMPT: &str = "Continue: the handoff you asked for is done, and the context begins at its anchor. \
    Go on with what is left of the request, or say that it is done.";

/// A model call, what came of it so far, and the tool calls it asks for.
pub(crate) struct ModelStep {
    pub(crate) number: u32,
    pub(crate) reply: ModelResultStream,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) provider_meta: JsonObject,
    /// The answer reached its limit of tokens.
    pub(crate) truncated: bool,
    started_at: Instant,
}

/// How a step begins.
pub(crate) enum StepStart {
    /// The model answers.
    Started(Box<ModelStep>),
    /// The context was too long: an anchor was written, and the same is to be asked again.
    ContextReset,
}

/// What a run has been through.
#[derive(Debug, Default)]
pub(crate) struct RunProgress {
    /// The context was too long. It is cut short once.
    has_overflowed: bool,
    calls: RunCallSummary,
}

impl ModelStep {
    /// Asks the model with what the tape says now. When that is longer than the model takes, context is made to begin
    /// anew, once.
    pub(crate) async fn start(given: &RunHandle, number: u32, so_far: &mut RunProgress) -> Result<StepStart, ApiError> {
        let begun = Instant::now();
        let api = &given.api;
        given.note(TapeEvent::LoopStepStart(LoopStepStart { step: number })).await?;
        let tools = api.tools.list().await?;
        let model = api.session.model().await?;
        // The one looks at files, the other at the tape.
        let (system, messages) = tokio::try_join!(api.prompt.system(), api.tape.view())?;
        let call = ModelCall { model, system: prompt::append_tools(system, &tools), messages, tools };
        let answer = match api.models.stream(call).await {
            Ok(answer) => answer,
            Err(error) => {
                reset_context(given, number, begun, error, so_far).await?;
                return Ok(StepStart::ContextReset);
            }
        };
        let (text, calls, provider_meta) = (String::new(), Vec::new(), JsonObject::new());
        Ok(StepStart::Started(Box::new(Self {
            number,
            reply: answer,
            text,
            calls,
            provider_meta,
            truncated: false,
            started_at: begun,
        })))
    }

    /// Takes the calls out that the limit of tokens cut off, and gives the names of their tools.
    pub(crate) fn take_truncated_calls(&mut self) -> Vec<String> {
        let is_cut = |call: &mut ToolCall| serde_json::from_str::<JsonObject>(&call.function.arguments).is_err();
        let truncated = self.truncated;
        self.calls.extract_if(.., |call| truncated && is_cut(call)).map(|call| call.function.name).collect()
    }

    /// The answer broke off with an error. Some providers say only then that the context was too long: where nothing was
    /// said yet, it is made to begin anew. Fails with the error that ends the run.
    pub(crate) async fn handle_stream_error(
        self,
        given: &RunHandle,
        error: ApiError,
        so_far: &mut RunProgress,
    ) -> Result<(), ApiError> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            self.record_end(given, LoopStepStatus::Error).await;
            return Err(error);
        }
        reset_context(given, self.number, self.started_at, error, so_far).await
    }

    /// Notes how the step ended.
    pub(crate) fn record_end<'a>(
        &self,
        given: &'a RunHandle,
        status: LoopStepStatus,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        record_step_end(given, self.number, self.started_at, status)
    }
}

/// Makes context begin anew after a request that was longer than the model takes. Anything else, a second time, and a
/// tape that may not be written to is the error that ends the run.
async fn reset_context(
    given: &RunHandle,
    number: u32,
    begun: Instant,
    error: ApiError,
    so_far: &mut RunProgress,
) -> Result<(), ApiError> {
    if !is_context_overflow(&error) || so_far.has_overflowed || !given.can_write_tape() {
        record_step_end(given, number, begun, LoopStepStatus::Error).await;
        return Err(error);
    }
    so_far.has_overflowed = true;
    record_step_end(given, number, begun, LoopStepStatus::AutoHandoff).await;
    let state = json!({ "reason": "context_length_exceeded", "error": error.message });
    let state = state.as_object().cloned().unwrap_or_default();
    given.api.tape.handoff("auto_handoff/context_overflow", state).await?;
    match so_far.calls.render() {
        Some(told) => given.tell_model(told.into()).await,
        None => Ok(()),
    }
}

/// Whether the request was longer than the model takes.
fn is_context_overflow(error: &ApiError) -> bool {
    error.cause.as_ref().is_some_and(|cause| *cause == ErrorCode::ModelContextOverflow)
}

/// A note that cannot be written does not change what happened: the error that matters shows at the next commit.
async fn record_step_end(given: &RunHandle, number: u32, begun: Instant, status: LoopStepStatus) {
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let end = LoopStepEnd { step: number, elapsed_ms, status };
    let _unwritten = given.note(TapeEvent::LoopStep(end)).await;
}

/// Whether a call is of the tool that models know by this name. The host takes the name people write, too.
fn is_call_to(call: &ToolCall, name: &str) -> bool {
    ToolName::new(call.function.name.as_str()).model_name() == name
}

/// What the model is told about calls that its limit of tokens cut off.
fn truncated_calls_message(tools: &[String]) -> String {
    format!(
        "Your answer reached its limit of tokens in the middle of a call of {}, so that call was not made. \
         Make it again with less in it, in several calls if it takes that.",
        tools.join(", ")
    )
}

/// Makes the step's calls and puts what the next step is told on the tape: of those that were cut off, that they were not
/// made.
pub(crate) async fn execute_calls(
    given: &RunHandle,
    mut step: ModelStep,
    cut_off: &[String],
    so_far: &mut RunProgress,
) -> Result<(), ApiError> {
    let calls = std::mem::take(&mut step.calls);
    let handoff = ToolName::new("tape.handoff").model_name();
    let is_handoff: Vec<bool> = calls.iter().map(|call| is_call_to(call, &handoff)).collect();
    let lines: Vec<String> = calls.iter().map(call_summary::format_call).collect();
    let called = if calls.is_empty() { Ok(Vec::new()) } else { given.api.tools.call(calls).await };
    step.record_end(given, if called.is_ok() { LoopStepStatus::Continue } else { LoopStepStatus::Error }).await;
    let outputs = called?;
    lines.into_iter().zip(&outputs).for_each(|(line, output)| so_far.calls.record(line, output));
    let handed_off = outputs.iter().zip(is_handoff).any(|(output, is_handoff)| is_handoff && !output.is_error);
    if handed_off {
        // The call and its result stand before the anchor, where the model no longer sees them.
        given.tell_model(HANDOFF_CONTINUE_PROMPT.into()).await?;
    }
    if !cut_off.is_empty() {
        given.tell_model(truncated_calls_message(cut_off).into()).await?;
    }
    if given.can_write_tape()
        && let Some(content) = given.api.prompt.continuation(step.number + 1).await?
    {
        given.tell_model(content).await?;
    }
    Ok(())
}
