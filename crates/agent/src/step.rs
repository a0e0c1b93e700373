//! One step of the loop.

use std::time::Instant;

use capstan_hooks::contracts::{ModelCall, ModelErrorKind, ModelResults};
use capstan_protocol::{ApiError, Map, ToolCall, ToolName};
use serde_json::json;

use crate::done::{self, Done};
use crate::given::Given;
use crate::prompt;

/// What the model is told after a handoff it asked for.
const HANDED_OFF: &str = "Continue: the handoff you asked for is done, and the context begins at its anchor. \
    Go on with what is left of the request, or say that it is done.";

/// A model call, what came of it so far, and the tool calls it asks for.
pub(crate) struct Step {
    pub(crate) number: u32,
    pub(crate) answer: ModelResults,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) provider_meta: Map,
    /// The answer reached its limit of tokens.
    pub(crate) truncated: bool,
    begun: Instant,
}

/// How a step begins.
pub(crate) enum Begun {
    /// The model answers.
    Step(Box<Step>),
    /// The context was too long: an anchor was written, and the same is to be asked again.
    HandedOff,
}

/// What a run has been through.
#[derive(Debug, Default)]
pub(crate) struct SoFar {
    /// The context was too long. It is cut short once.
    overflowed: bool,
    done: Done,
}

impl Step {
    /// Asks the model with what the tape says now. When that is longer than the model takes, context is made to begin
    /// anew, once.
    pub(crate) async fn begin(given: &Given, number: u32, so_far: &mut SoFar) -> Result<Begun, ApiError> {
        let begun = Instant::now();
        let api = &given.api;
        given.note("loop.step.start", json!({ "step": number })).await?;
        let tools = api.tools.list().await?;
        let model = api.session.model().await?;
        // The one looks at files, the other at the tape.
        let (system, messages) = tokio::try_join!(api.prompt.system(), api.tape.view())?;
        let call = ModelCall { model, system: prompt::with_tools(system, &tools), messages, tools };
        let answer = match api.models.stream(call).await {
            Ok(answer) => answer,
            Err(error) => {
                hand_off(given, number, begun, error, so_far).await?;
                return Ok(Begun::HandedOff);
            }
        };
        let (text, calls, provider_meta) = (String::new(), Vec::new(), Map::new());
        Ok(Begun::Step(Box::new(Self { number, answer, text, calls, provider_meta, truncated: false, begun })))
    }

    /// Takes the calls out that the limit of tokens cut off, and gives the names of their tools.
    pub(crate) fn cut_off(&mut self) -> Vec<String> {
        let is_cut = |call: &mut ToolCall| serde_json::from_str::<Map>(&call.function.arguments).is_err();
        let truncated = self.truncated;
        self.calls.extract_if(.., |call| truncated && is_cut(call)).map(|call| call.function.name).collect()
    }

    /// The answer broke off with an error. Some providers say only then that the context was too long: where nothing was
    /// said yet, it is made to begin anew. Fails with the error that ends the run.
    pub(crate) async fn broke_off(self, given: &Given, error: ApiError, so_far: &mut SoFar) -> Result<(), ApiError> {
        if !self.text.is_empty() || !self.calls.is_empty() {
            self.end(given, "error").await;
            return Err(error);
        }
        hand_off(given, self.number, self.begun, error, so_far).await
    }

    /// Notes how the step ended.
    pub(crate) fn end<'a>(&self, given: &'a Given, status: &'a str) -> impl Future<Output = ()> + Send + use<'a> {
        note_end(given, self.number, self.begun, status)
    }
}

/// Makes context begin anew after a request that was longer than the model takes. Anything else, a second time, and a
/// tape that may not be written to is the error that ends the run.
async fn hand_off(
    given: &Given,
    number: u32,
    begun: Instant,
    error: ApiError,
    so_far: &mut SoFar,
) -> Result<(), ApiError> {
    if !is_overflow(&error) || so_far.overflowed || !given.writes() {
        note_end(given, number, begun, "error").await;
        return Err(error);
    }
    so_far.overflowed = true;
    note_end(given, number, begun, "auto_handoff").await;
    let state = json!({ "reason": "context_length_exceeded", "error": error.message });
    let state = state.as_object().cloned().unwrap_or_default();
    given.api.tape.handoff("auto_handoff/context_overflow", state).await?;
    match so_far.done.told() {
        Some(told) => given.say(told.into()).await,
        None => Ok(()),
    }
}

/// Whether the request was longer than the model takes.
fn is_overflow(error: &ApiError) -> bool {
    error.cause.as_deref() == Some(ModelErrorKind::ContextOverflow.code())
}

/// A note that cannot be written does not change what happened: the error that matters shows at the next commit.
async fn note_end(given: &Given, number: u32, begun: Instant, status: &str) {
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let data = json!({ "step": number, "elapsed_ms": elapsed_ms, "status": status });
    let _unwritten = given.note("loop.step", data).await;
}

/// Whether a call is of the tool that models know by this name. The host takes the name people write, too.
fn is_named(call: &ToolCall, name: &str) -> bool {
    ToolName::new(call.function.name.as_str()).model_name() == name
}

/// What the model is told about calls that its limit of tokens cut off.
fn not_made(tools: &[String]) -> String {
    format!(
        "Your answer reached its limit of tokens in the middle of a call of {}, so that call was not made. \
         Make it again with less in it, in several calls if it takes that.",
        tools.join(", ")
    )
}

/// Makes the step's calls and puts what the next step is told on the tape: of those that were cut off, that they were not
/// made.
pub(crate) async fn next_step(
    given: &Given,
    mut step: Step,
    cut_off: &[String],
    so_far: &mut SoFar,
) -> Result<(), ApiError> {
    let calls = std::mem::take(&mut step.calls);
    let handoff = ToolName::new("tape.handoff").model_name();
    let is_handoff: Vec<bool> = calls.iter().map(|call| is_named(call, &handoff)).collect();
    let lines: Vec<String> = calls.iter().map(done::in_a_line).collect();
    let called = if calls.is_empty() { Ok(Vec::new()) } else { given.api.tools.call(calls).await };
    step.end(given, if called.is_ok() { "continue" } else { "error" }).await;
    let outputs = called?;
    lines.into_iter().zip(&outputs).for_each(|(line, output)| so_far.done.add(line, output));
    let handed_off = outputs.iter().zip(is_handoff).any(|(output, is_handoff)| is_handoff && !output.is_error);
    if handed_off {
        // The call and its result stand before the anchor, where the model no longer sees them.
        given.say(HANDED_OFF.into()).await?;
    }
    if !cut_off.is_empty() {
        given.say(not_made(cut_off).into()).await?;
    }
    if given.writes()
        && let Some(content) = given.api.prompt.continuation(step.number + 1).await?
    {
        given.say(content).await?;
    }
    Ok(())
}
