//! Hook points: the stages of a turn, and the contributions of a plugin at start-up.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::{
    AdmissionMode, ChatMessage, Content, JsonObject, ModelOutput, ModelRequest, OutboundMessage, SessionId, ToolOutput,
};
use capstan_tape::TapeStore;
use serde_json::Value;

use crate::args;
use crate::contracts::{Channel, CliCommand, KnowledgeSource, ModelProvider, Runner, Tool};
use crate::{AsyncMode, EventStream, HookAggregation, HookPhase, HookPoint, HookPointInfo, SyncMode};

/// Decision about a message whose session is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// Queue the message for a turn of its own.
    #[default]
    Process,
    /// Apply this mode if a turn is running; otherwise begin a turn.
    WithMode(AdmissionMode),
    /// Begin a turn of its own at once, concurrently with a running one: for read-only commands. For anything but a
    /// command the same as [`Self::Process`].
    Concurrent,
}

impl fmt::Display for AdmissionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::WithMode(mode) => mode.as_str(),
            Self::Concurrent => "concurrent",
        })
    }
}

/// Value of a `render_outbound` implementation.
#[derive(Debug, Clone, PartialEq)]
pub enum RenderedOutbound {
    /// Messages to send.
    Messages(Vec<OutboundMessage>),
    /// Explicitly send nothing.
    Silent,
}

/// Value of a `before_llm_call` implementation.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmCallVerdict {
    /// Send this request instead.
    Change(ModelRequest),
    /// Send no request and use this output.
    Finish(ModelOutput),
}

/// Value of a `before_tool_call` implementation.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallVerdict {
    /// Call the tool with these arguments.
    Proceed(JsonObject),
    /// Do not call the tool and use this output.
    Replace(ToolOutput),
    /// Do not call the tool and return this reason to the model.
    Deny(String),
}

macro_rules! points {
    ($(
        $(#[$doc:meta])*
        $point:ident = $name:literal: $args:ty => $output:ty, $aggregation:ident, $phase:ident, $mode:ident, $describe:expr;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $point;

            impl HookPoint for $point {
                const INFO: HookPointInfo = HookPointInfo {
                    name: $name,
                    aggregation: HookAggregation::$aggregation,
                    phase: HookPhase::$phase,
                    is_synchronous: points!(@sync $mode),
                };
                type Args = $args;
                type Output = $output;
                type Mode = $mode;

                fn describe(output: &Self::Output) -> String {
                    let describe: fn(&$output) -> String = $describe;
                    describe(output)
                }
            }
        )*

        /// Every hook point, in the order of a turn and then of start-up.
        pub const HOOK_POINTS: &[HookPointInfo] = &[$($point::INFO),*];
    };
    (@sync SyncMode) => { true };
    (@sync AsyncMode) => { false };
}

fn join_names<T: ?Sized>(objects: &[Arc<T>], name: impl Fn(&T) -> String) -> String {
    objects.iter().map(|object| name(object)).collect::<Vec<_>>().join(", ")
}

points! {
    /// Resolves the session that an event belongs to.
    ResolveSession = "resolve_session": args::ResolveSessionArgs => SessionId, First, Event, AsyncMode, ToString::to_string;

    /// Decides about a message whose session is known.
    AdmitMessage = "admit_message": args::AdmitMessageArgs => AdmissionDecision, First, Event, AsyncMode, ToString::to_string;

    /// Provides values for the state of the turn.
    LoadState = "load_state": args::LoadStateArgs => JsonObject, Merged, Turn, AsyncMode, |map| Value::Object(map.clone()).to_string();

    /// Builds the prompt: text or content parts.
    BuildPrompt = "build_prompt": args::BuildPromptArgs => Content, First, Turn, AsyncMode, |content| format!("{:?}", content.text());

    /// Produces the reply as one text.
    RunModel = "run_model": args::RunModelArgs => String, First, ModelStage, AsyncMode, |text| format!("{text:?}");

    /// Produces the reply as a stream of events.
    RunModelStream = "run_model_stream": args::RunModelArgs => EventStream, First, ModelStage, AsyncMode, |_| "a stream".to_owned();

    /// Provides a message to the model before a further step of the loop.
    ContinuePrompt = "continue_prompt": args::ContinuePromptArgs => Content, First, Step, AsyncMode, |content| format!("{:?}", content.text());

    /// Saves state at the end of a turn. Runs whenever a prompt was built, after success and after failure.
    SaveState = "save_state": args::SaveStateArgs => (), All, Turn, AsyncMode, |()| "done".to_owned();

    /// Renders the messages to send.
    RenderOutbound = "render_outbound": args::RenderOutboundArgs => RenderedOutbound, Flattened, Turn, AsyncMode, |rendered| match rendered {
        RenderedOutbound::Silent => "silent".to_owned(),
        RenderedOutbound::Messages(messages) => {
            let texts: Vec<String> = messages.iter().map(|m| format!("{:?}", m.content.text())).collect();
            format!("[{}]", texts.join(", "))
        }
    };

    /// Sends or stages one message; returns true if it did.
    DispatchOutbound = "dispatch_outbound": args::DispatchOutboundArgs => bool, All, Outbound, AsyncMode, ToString::to_string;

    /// Provides a part of the system prompt.
    SystemPrompt = "system_prompt": args::SystemPromptArgs => String, Joined, Run, SyncMode, |text| format!("{text:?}");

    /// Selects the messages of a tape that a model reads, in place of the default view.
    BuildTapeContext = "build_tape_context": args::TapeContextArgs => Vec<ChatMessage>, First, ModelCall, AsyncMode, |messages| format!("{} messages", messages.len());

    /// Changes a request to a model, or answers it without the model.
    BeforeLlmCall = "before_llm_call": args::BeforeLlmCallArgs => LlmCallVerdict, Chain, ModelCall, AsyncMode, |answer| match answer {
        LlmCallVerdict::Change(_) => "another request".to_owned(),
        LlmCallVerdict::Finish(output) => format!("finish with {:?}", output.text),
    };

    /// Observes the outcome of a model call.
    AfterLlmCall = "after_llm_call": args::AfterLlmCallArgs => (), Chain, ModelCall, AsyncMode, |()| "seen".to_owned();

    /// Changes the arguments of a tool call, replaces its output, or denies it.
    BeforeToolCall = "before_tool_call": args::BeforeToolCallArgs => ToolCallVerdict, Chain, ToolCall, AsyncMode, |answer| match answer {
        ToolCallVerdict::Proceed(arguments) => format!("proceed with {}", Value::Object(arguments.clone())),
        ToolCallVerdict::Replace(output) => format!("replace by {:?}", output.text()),
        ToolCallVerdict::Deny(message) => format!("deny: {message}"),
    };

    /// Observes the output of a tool call, and may replace it before it is recorded or shown.
    AfterToolCall = "after_tool_call": args::AfterToolCallArgs => ToolOutput, Chain, ToolCall, AsyncMode, |output| format!("replace by {:?}", output.text());

    /// Observes errors.
    OnError = "on_error": args::OnErrorArgs => (), Observers, AnyTime, AsyncMode, |()| "done".to_owned();

    /// Adds commands to the command line.
    RegisterCliCommands = "register_cli_commands": () => Vec<CliCommand>, FirstOfName, StartUp, SyncMode, |commands| {
        commands.iter().map(CliCommand::name).collect::<Vec<_>>().join(", ")
    };

    /// Proposes settings to be written by `capstan onboard`.
    OnboardConfig = "onboard_config": args::OnboardConfigArgs => Value, Folded, Onboarding, SyncMode, ToString::to_string;

    /// Provides channels.
    ProvideChannels = "provide_channels": () => Vec<Arc<dyn Channel>>, FirstOfName, StartUp, SyncMode, |c| join_names(c, |c| c.name().to_string());

    /// Provides an external store for tape entries.
    ProvideTapeStore = "provide_tape_store": () => Arc<dyn TapeStore>, First, StartUp, SyncMode, |_| "a tape store".to_owned();

    /// Provides tools.
    ProvideTools = "provide_tools": () => Vec<Arc<dyn Tool>>, FirstOfName, StartUp, SyncMode, |t| join_names(t, |t| t.spec().name.to_string());

    /// Provides runners.
    ProvideRunners = "provide_runners": () => Vec<Arc<dyn Runner>>, FirstOfName, StartUp, SyncMode, |r| join_names(r, |r| r.descriptor().id.to_string());

    /// Provides model providers.
    ProvideModelOptions = "provide_model_options": () => Vec<Arc<dyn ModelProvider>>, FirstOfName, StartUp, SyncMode, |p| join_names(p, |p| p.name().to_owned());

    /// Provides knowledge bases.
    ProvideKnowledge = "provide_knowledge": () => Vec<Arc<dyn KnowledgeSource>>, FirstOfName, StartUp, SyncMode, |s| join_names(s, |s| s.knowledge_base().id);
}
