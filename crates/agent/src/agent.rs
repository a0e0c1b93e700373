//! The agent loop as a [`Runner`].
//!
//! Each step reads the view, calls the model and executes the tool calls of its reply. The run ends when a reply has no
//! calls and no steering message arrived meanwhile, or when the step limit is reached.

use capstan_hooks::contracts::{ModelEvent, ResultStream, RunApi, Runner};
use capstan_protocol::{
    AllowList, ApiError, Content, Descriptor, ErrorCode, HostStateRequirement, ModelId, ModelOperation, PermissionSet,
    ResourceAccess, ResultBody, RunContext, RunResult, RunnerCapabilities, RunnerId, RunnerSource, TapeAccess,
    ToolOutput, truncate_bytes,
};
use capstan_tape::{LoopStart, LoopStepStatus, TapeEvent};
use futures::StreamExt as _;

use crate::agent_config::AgentConfig;
use crate::command;
use crate::next_step::{NextStep, ReplyCalls, ReplySummary, ReplyTracker};
use crate::run_handle::RunHandle;
use crate::step::{ModelStep, RunProgress, StepStart, execute_calls};

/// Maximum length of the prompt excerpt in the `loop.start` note.
const MAX_RECORDED_PROMPT_BYTES: usize = 4096;

/// Options of the agent loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopOptions {
    /// Maximum number of steps of a run.
    pub max_steps: u32,
    /// Model of the host, which the agent uses unless a binding or a conversation names another. Known to the schema of
    /// the configuration, so that a binding that does not grant it can be refused.
    pub default_model: Option<ModelId>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { max_steps: 50, default_model: None }
    }
}

/// Built-in agent runner.
#[derive(Debug, Clone)]
pub struct Agent {
    options: LoopOptions,
}

impl Agent {
    /// Runner id under which the agent is registered.
    pub const RUNNER_ID: &str = "builtin:agent";

    /// Creates an agent with `options`.
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
                // Platform actions and stored state are for its tools.
                platform_api: true,
                host_state: HostStateRequirement::Optional,
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
            config_schema: Some(AgentConfig::schema(self.options.default_model.as_ref())),
            timeout_seconds: None,
            plugin: None,
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let prompt = context.adapter.prompt.clone().unwrap_or_else(|| context.input.content());
        // The command is read from the input: the prompt may start with a context header.
        let command_line = context.command_line().map(str::to_owned);
        let shell_commands = context.resources.grant.shell_commands;
        let config = match AgentConfig::parse(&context.config) {
            Ok(config) => config,
            Err(message) => {
                let failure = ResultBody::RunFailed { message, code: Some(ErrorCode::BindingInvalid.into()) };
                return futures::stream::iter([failure.into()]).boxed();
            }
        };
        // The agent has nothing left to do for a cancelled run: the host keeps the part of the reply that was streamed.
        let cancelled = api.cancel_token.clone().cancelled_owned();
        // The limit of the host includes that of the binding, and for a child run the steps of the runs above it.
        let max_steps = context.runtime.max_steps.map_or(self.options.max_steps, |steps| {
            self.options.max_steps.min(u32::try_from(steps).unwrap_or(u32::MAX))
        });
        let max_steps = config.max_steps.map_or(max_steps, |steps| steps.min(max_steps));
        let handle = RunHandle { api, authority: context.resources.grant.may, config };
        let results = match command_line {
            Some(line) => run_command(line, shell_commands, handle),
            None => run_loop(max_steps, prompt, handle),
        };
        results.take_until(cancelled).boxed()
    }
}

fn run_command(line: String, shell_commands: bool, handle: RunHandle) -> ResultStream {
    let results = async_stream::stream! {
        match command::run(&line, shell_commands, &handle).await {
            Ok(output) => {
                yield message_result(output.text());
                yield completed_result();
            }
            Err(error) => yield failed_result(&error),
        }
    };
    results.boxed()
}

/// Returns the beginning of a prompt for a note; the full message is on the tape already.
fn excerpt_prompt(prompt: &Content) -> String {
    let mut text = prompt.text();
    truncate_bytes(&mut text, MAX_RECORDED_PROMPT_BYTES, "…");
    text
}

/// Runs steps until a reply has no tool calls.
fn run_loop(max_steps: u32, prompt: Content, handle: RunHandle) -> ResultStream {
    let results = async_stream::stream! {
        let request = excerpt_prompt(&prompt);
        let model = handle.config.model.clone().unwrap_or_else(|| handle.api.models.default_model());
        let start = LoopStart { model, prompt: request.clone() };
        if let Err(error) = handle.note(TapeEvent::LoopStart(start)).await {
            yield failed_result(&error);
            return;
        }
        let mut progress = RunProgress::new(request, max_steps);
        let mut replies = ReplyTracker::default();
        'steps: for number in 1..=max_steps {
            // Steering messages are ingested between two steps.
            if let Err(error) = handle.take_steering().await {
                yield failed_result(&error);
                return;
            }
            let mut step = match ModelStep::start(&handle, number, &mut progress).await {
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
                    Err(error) => match step.handle_stream_error(&handle, error, &mut progress).await {
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
            let truncated_calls = step.take_truncated_calls();
            let calls = match (step.calls.is_empty(), truncated_calls.is_empty()) {
                (false, _) => ReplyCalls::Complete,
                (true, false) => ReplyCalls::Truncated,
                (true, true) => ReplyCalls::None,
            };
            match replies.next_step(ReplySummary { has_text, calls, truncated: step.truncated }) {
                NextStep::CallTools if !step.calls.iter().all(|call| handle.can_call_tool(&call.function.name)) => {
                    // Report the refusal to the model, like that of any call that cannot be made.
                    for call in std::mem::take(&mut step.calls) {
                        let (call_id, name) = (call.id.clone(), call.function.name.clone());
                        let output = refused_output(&handle, &name);
                        yield ResultBody::ToolCallStarted { call }.into();
                        yield ResultBody::ToolCallCompleted { call_id, name, output }.into();
                    }
                    step.record_end(&handle, LoopStepStatus::Continue).await;
                }
                NextStep::CallTools => {
                    if let Err(error) = execute_calls(&handle, step, &truncated_calls, &mut progress).await {
                        yield failed_result(&error);
                        return;
                    }
                }
                NextStep::RetryModel => step.record_end(&handle, LoopStepStatus::Empty).await,
                NextStep::Fail(reason) => {
                    step.record_end(&handle, LoopStepStatus::Error).await;
                    yield broken_model_result(reason);
                    return;
                }
                NextStep::Finish => {
                    if !has_text {
                        tracing::warn!("the model ended without a final message, even after a retry");
                    }
                    step.record_end(&handle, LoopStepStatus::Ok).await;
                    match handle.take_steering().await {
                        Ok(steering) if steering.is_empty() => {
                            yield completed_result();
                            return;
                        }
                        // A steering message arrived while the model was replying: answer it in the same run.
                        Ok(_) => replies = ReplyTracker::default(),
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

/// Result of a call in a reply with a call that is not allowed: no call of it is made.
fn refused_output(handle: &RunHandle, name: &str) -> ToolOutput {
    ToolOutput::error(if handle.can_call_tool(name) {
        format!("{name} was not called, because another call of this reply is not allowed here")
    } else {
        format!("the tool {name} is not allowed here")
    })
}

fn message_result(text: String) -> RunResult {
    ResultBody::MessageCompleted { content: Content::Text(text), provider_meta: Default::default() }.into()
}

fn completed_result() -> RunResult {
    ResultBody::RunCompleted { silent: false }.into()
}

/// Result of a run whose model gives no usable reply.
fn broken_model_result(message: &str) -> RunResult {
    ResultBody::RunFailed { message: message.to_owned(), code: Some(ErrorCode::ModelBroken.into()) }.into()
}

fn failed_result(error: &ApiError) -> RunResult {
    ResultBody::RunFailed { message: error.message.clone(), code: error.cause.clone() }.into()
}
