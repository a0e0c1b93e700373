//! The loop.

use capstan_hooks::contracts::{ModelEvent, ResultStream, RunApi, Runner};
use capstan_protocol::{
    AllowList, ApiError, Content, Descriptor, ErrorCode, JsonObject, ModelOperation, PermissionSet, ResourceAccess,
    ResultBody, RunContext, RunResult, RunnerCapabilities, RunnerId, RunnerSource, TapeAccess, ToolOutput,
};
use capstan_tape::{LoopStart, LoopStepStatus, TapeEvent};
use futures::StreamExt as _;
use serde_json::Value;

use crate::command;
use crate::next_step::{NextStep, ReplyCalls, ReplySummary, ReplyTracker};
use crate::run_handle::RunHandle;
use crate::step::{ModelStep, RunProgress, StepStart, execute_calls};

/// How much of a prompt is noted when the loop begins.
const MAX_RECORDED_PROMPT_BYTES: usize = 4096;

/// How the agent is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopOptions {
    /// How many steps a run may take.
    pub max_steps: u32,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { max_steps: 50 }
    }
}

/// The built-in agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    options: LoopOptions,
}

impl Agent {
    /// The id it is registered under.
    pub const RUNNER_ID: &str = "builtin:agent";

    /// An agent with these options.
    pub fn new(options: LoopOptions) -> Self {
        Self { options }
    }
}

impl Runner for Agent {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            id: RunnerId::new(Self::RUNNER_ID),
            source: RunnerSource::HostAdapter,
            label: "Capstan's own agent".into(),
            description: Some("Answers with a model and calls tools until the work is done.".into()),
            capabilities: RunnerCapabilities {
                streaming: true,
                tool_calling: true,
                knowledge_retrieval: true,
                multimodal_input: true,
                event_context: true,
                interrupt: true,
                steering: true,
                effects_through_host: true,
                ..RunnerCapabilities::default()
            },
            permissions: PermissionSet::all(),
            requires: PermissionSet {
                models: ResourceAccess { names: AllowList::All, operations: [ModelOperation::Stream].into() },
                tape: TapeAccess::Read,
                ..PermissionSet::none()
            },
            config_schema: None,
            plugin: None,
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let prompt = context.adapter.prompt.clone().unwrap_or_else(|| context.input.content());
        // What the event itself says: the prompt may begin with where it came from.
        let shell_commands = context.resources.grant.shell_commands;
        let given = RunHandle { api, authority: context.resources.grant.may };
        match context.event.command_line() {
            Some(line) => run_command(line.to_owned(), shell_commands, given),
            None => run_loop(max_steps(self.options, &context.config), prompt, given),
        }
    }
}

/// How many steps a run may take: what is set, or less where the run is configured so, as a child run is.
fn max_steps(options: LoopOptions, config: &JsonObject) -> u32 {
    let configured = config.get("max_steps").and_then(Value::as_u64).and_then(|steps| u32::try_from(steps).ok());
    configured.map_or(options.max_steps, |steps| steps.min(options.max_steps))
}

fn run_command(line: String, shell_commands: bool, given: RunHandle) -> ResultStream {
    let results = async_stream::stream! {
        match command::run(&line, shell_commands, &given).await {
            Ok(output) => {
                yield message_result(output.text());
                yield completed_result();
            }
            Err(error) => yield failed_result(&error),
        }
    };
    results.boxed()
}

/// A prompt as it is noted, which may be as long as a message can be: the message itself stands on the tape.
fn excerpt_prompt(prompt: &Content) -> String {
    let mut text = prompt.text();
    if text.len() > MAX_RECORDED_PROMPT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_RECORDED_PROMPT_BYTES));
        text.push('…');
    }
    text
}

/// View, model, tool calls, again, until no call is left.
fn run_loop(max_steps: u32, prompt: Content, given: RunHandle) -> ResultStream {
    let results = async_stream::stream! {
        let start = LoopStart { model: given.api.models.default_model(), prompt: excerpt_prompt(&prompt) };
        if let Err(error) = given.note(TapeEvent::LoopStart(start)).await {
            yield failed_result(&error);
            return;
        }
        let mut so_far = RunProgress::default();
        let mut answers = ReplyTracker::default();
        'steps: for number in 1..=max_steps {
            // Between two steps is when what came meanwhile is taken in.
            if let Err(error) = given.take_steering().await {
                yield failed_result(&error);
                return;
            }
            let mut step = match ModelStep::start(&given, number, &mut so_far).await {
                Ok(StepStart::Started(step)) => *step,
                Ok(StepStart::ContextReset) => continue,
                Err(error) => {
                    yield failed_result(&error);
                    return;
                }
            };
            while let Some(event) = step.reply.next().await {
                match event {
                    Ok(ModelEvent::Text(delta)) => {
                        step.text.push_str(&delta);
                        yield ResultBody::MessageDelta { delta }.into();
                    }
                    Ok(ModelEvent::Reasoning(delta)) => yield ResultBody::ReasoningDelta { delta }.into(),
                    Ok(ModelEvent::ToolCall(call)) => step.calls.push(call),
                    Ok(ModelEvent::ProviderMeta(meta)) => step.provider_meta.extend(meta),
                    Ok(ModelEvent::Truncated) => step.truncated = true,
                    Ok(ModelEvent::Usage(_) | ModelEvent::Stop) => {}
                    Err(error) => match step.handle_stream_error(&given, error, &mut so_far).await {
                        Ok(()) => continue 'steps,
                        Err(error) => {
                            yield failed_result(&error);
                            return;
                        }
                    },
                }
            }
            let has_text = !step.text.trim().is_empty();
            if has_text {
                let content = Content::Text(std::mem::take(&mut step.text));
                let provider_meta = std::mem::take(&mut step.provider_meta);
                yield ResultBody::MessageCompleted { content, provider_meta }.into();
            }
            let cut_off = step.take_truncated_calls();
            let calls = match (step.calls.is_empty(), cut_off.is_empty()) {
                (false, _) => ReplyCalls::Complete,
                (true, false) => ReplyCalls::Truncated,
                (true, true) => ReplyCalls::None,
            };
            match answers.next_step(ReplySummary { has_text, calls, truncated: step.truncated }) {
                NextStep::CallTools if !given.can_call_tools() => {
                    // The model is told, as of any call that cannot be made.
                    for call in std::mem::take(&mut step.calls) {
                        let (call_id, name) = (call.id.clone(), call.function.name.clone());
                        let output = ToolOutput::error(format!("the tool {name} is not allowed here"));
                        yield ResultBody::ToolCallStarted { call }.into();
                        yield ResultBody::ToolCallCompleted { call_id, name, output }.into();
                    }
                    step.record_end(&given, LoopStepStatus::Continue).await;
                }
                NextStep::CallTools => {
                    if let Err(error) = execute_calls(&given, step, &cut_off, &mut so_far).await {
                        yield failed_result(&error);
                        return;
                    }
                }
                NextStep::RetryModel => step.record_end(&given, LoopStepStatus::Empty).await,
                NextStep::Fail(why) => {
                    step.record_end(&given, LoopStepStatus::Error).await;
                    yield broken_model_result(why);
                    return;
                }
                NextStep::Finish => {
                    if !has_text {
                        tracing::warn!("the model ended without a last word, also when it was asked once more");
                    }
                    step.record_end(&given, LoopStepStatus::Ok).await;
                    match given.take_steering().await {
                        Ok(taken) if taken.is_empty() => {
                            yield completed_result();
                            return;
                        }
                        // Somebody said something while the answer was given: it is answered too.
                        Ok(_) => answers = ReplyTracker::default(),
                        Err(error) => {
                            yield failed_result(&error);
                            return;
                        }
                    }
                }
            }
        }
        let message = format!("the agent did not finish within {max_steps} steps");
        yield ResultBody::RunFailed { message, code: Some(ErrorCode::MaxSteps.into()) }.into();
    };
    results.boxed()
}

fn message_result(text: String) -> RunResult {
    ResultBody::MessageCompleted { content: Content::Text(text), provider_meta: Default::default() }.into()
}

fn completed_result() -> RunResult {
    ResultBody::RunCompleted { silent: false }.into()
}

/// The end of a run whose model gives no answer that can be used.
fn broken_model_result(message: &str) -> RunResult {
    ResultBody::RunFailed { message: message.to_owned(), code: Some(ErrorCode::ModelBroken.into()) }.into()
}

fn failed_result(error: &ApiError) -> RunResult {
    ResultBody::RunFailed { message: error.message.clone(), code: error.cause.clone() }.into()
}
