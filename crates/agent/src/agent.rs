//! The loop.

use capstan_hooks::contracts::{ModelErrorKind, ModelEvent, ResultStream, RunApi, Runner};
use capstan_protocol::{
    Access, ApiError, Authority, Capabilities, Content, Descriptor, Map, ModelUse, ResultBody, RunContext, RunResult,
    RunnerId, RunnerSource, TapeAccess, ToolOutput, Uses,
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::answers::{Answers, Calls, Came, Next};
use crate::command;
use crate::given::Given;
use crate::step::{Begun, SoFar, Step, next_step};

/// How much of a prompt is noted when the loop begins.
const NOTED_BYTES: usize = 4096;

/// How the agent is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many steps a run may take.
    pub max_steps: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_steps: 50 }
    }
}

/// The built-in agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    options: Options,
}

impl Agent {
    /// The id it is registered under.
    pub const ID: &str = "builtin:agent";

    /// An agent with these options.
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Runner for Agent {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            id: RunnerId::new(Self::ID),
            source: RunnerSource::HostAdapter,
            label: "Capstan's own agent".into(),
            description: Some("Answers with a model and calls tools until the work is done.".into()),
            capabilities: Capabilities {
                streaming: true,
                tool_calling: true,
                knowledge_retrieval: true,
                multimodal_input: true,
                event_context: true,
                interrupt: true,
                steering: true,
                effects_through_host: true,
                ..Capabilities::default()
            },
            permissions: Authority::all(),
            requires: Authority {
                models: Uses { names: Access::All, operations: [ModelUse::Stream].into() },
                tape: TapeAccess::Read,
                ..Authority::none()
            },
            config_schema: None,
            plugin: None,
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let prompt = context.adapter.prompt.clone().unwrap_or_else(|| context.input.content());
        // What the event itself says: the prompt may begin with where it came from.
        let shell_commands = context.resources.grant.shell_commands;
        let given = Given { api, may: context.resources.grant.may };
        match context.event.command_line() {
            Some(line) => run_command(line.to_owned(), shell_commands, given),
            None => run_loop(max_steps(self.options, &context.config), prompt, given),
        }
    }
}

/// How many steps a run may take: what is set, or less where the run is configured so, as a child run is.
fn max_steps(options: Options, config: &Map) -> u32 {
    let configured = config.get("max_steps").and_then(Value::as_u64).and_then(|steps| u32::try_from(steps).ok());
    configured.map_or(options.max_steps, |steps| steps.min(options.max_steps))
}

fn run_command(line: String, shell_commands: bool, given: Given) -> ResultStream {
    let results = async_stream::stream! {
        match command::run(&line, shell_commands, &given).await {
            Ok(output) => {
                yield say(output.text());
                yield completed();
            }
            Err(error) => yield failed(&error),
        }
    };
    results.boxed()
}

/// A prompt as it is noted, which may be as long as a message can be: the message itself stands on the tape.
fn noted(prompt: &Content) -> String {
    let mut text = prompt.text();
    if text.len() > NOTED_BYTES {
        text.truncate(text.floor_char_boundary(NOTED_BYTES));
        text.push('…');
    }
    text
}

/// View, model, tool calls, again, until no call is left.
fn run_loop(max_steps: u32, prompt: Content, given: Given) -> ResultStream {
    let results = async_stream::stream! {
        let begin = json!({ "model": given.api.models.default_model(), "prompt": noted(&prompt) });
        if let Err(error) = given.note("loop.start", begin).await {
            yield failed(&error);
            return;
        }
        let mut so_far = SoFar::default();
        let mut answers = Answers::default();
        'steps: for number in 1..=max_steps {
            // Between two steps is when what came meanwhile is taken in.
            if let Err(error) = given.take_steered().await {
                yield failed(&error);
                return;
            }
            let mut step = match Step::begin(&given, number, &mut so_far).await {
                Ok(Begun::Step(step)) => *step,
                Ok(Begun::HandedOff) => continue,
                Err(error) => {
                    yield failed(&error);
                    return;
                }
            };
            while let Some(event) = step.answer.next().await {
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
                    Err(error) => match step.broke_off(&given, error, &mut so_far).await {
                        Ok(()) => continue 'steps,
                        Err(error) => {
                            yield failed(&error);
                            return;
                        }
                    },
                }
            }
            let spoke = !step.text.trim().is_empty();
            if spoke {
                let content = Content::Text(std::mem::take(&mut step.text));
                let provider_meta = std::mem::take(&mut step.provider_meta);
                yield ResultBody::MessageCompleted { content, provider_meta }.into();
            }
            let cut_off = step.cut_off();
            let calls = match (step.calls.is_empty(), cut_off.is_empty()) {
                (false, _) => Calls::Whole,
                (true, false) => Calls::CutOff,
                (true, true) => Calls::None,
            };
            match answers.next(Came { spoke, calls, truncated: step.truncated }) {
                Next::Call if !given.calls() => {
                    // The model is told, as of any call that cannot be made.
                    for call in std::mem::take(&mut step.calls) {
                        let (call_id, name) = (call.id.clone(), call.function.name.clone());
                        let output = ToolOutput::error(format!("the tool {name} is not allowed here"));
                        yield ResultBody::ToolCallStarted { call }.into();
                        yield ResultBody::ToolCallCompleted { call_id, name, output }.into();
                    }
                    step.end(&given, "continue").await;
                }
                Next::Call => {
                    if let Err(error) = next_step(&given, step, &cut_off, &mut so_far).await {
                        yield failed(&error);
                        return;
                    }
                }
                Next::AskAgain => step.end(&given, "empty").await,
                Next::Fail(why) => {
                    step.end(&given, "error").await;
                    yield broken(why);
                    return;
                }
                Next::End => {
                    if !spoke {
                        tracing::warn!("the model ended without a last word, also when it was asked once more");
                    }
                    step.end(&given, "ok").await;
                    match given.take_steered().await {
                        Ok(taken) if taken.is_empty() => {
                            yield completed();
                            return;
                        }
                        // Somebody said something while the answer was given: it is answered too.
                        Ok(_) => answers = Answers::default(),
                        Err(error) => {
                            yield failed(&error);
                            return;
                        }
                    }
                }
            }
        }
        let message = format!("the agent did not finish within {max_steps} steps");
        yield ResultBody::RunFailed { message, code: Some("max-steps".to_owned()) }.into();
    };
    results.boxed()
}

fn say(text: String) -> RunResult {
    ResultBody::MessageCompleted { content: Content::Text(text), provider_meta: Default::default() }.into()
}

fn completed() -> RunResult {
    ResultBody::RunCompleted { silent: false }.into()
}

/// The end of a run whose model gives no answer that can be used.
fn broken(message: &str) -> RunResult {
    ResultBody::RunFailed { message: message.to_owned(), code: Some(ModelErrorKind::Broken.code().to_owned()) }.into()
}

fn failed(error: &ApiError) -> RunResult {
    ResultBody::RunFailed { message: error.message.clone(), code: error.cause.clone() }.into()
}
