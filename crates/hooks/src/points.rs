//! The hook points: every stage of a turn, and what a plugin contributes at start-up.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::{
    AdmissionMode, Content, JsonObject, ModelOutput, ModelRequest, OutboundMessage, SessionId, ToolOutput,
};
use capstan_tape::{TapeStore, View};
use serde_json::Value;

use crate::args;
use crate::contracts::{Channel, CliCommand, KnowledgeSource, ModelProvider, Runner, Tool};
use crate::{AsyncMode, EventStream, HookAggregation, HookPhase, HookPoint, HookPointInfo, SyncMode};

/// What to do with a message, once its session is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// A turn of its own, after those before it.
    #[default]
    Process,
    /// If a turn is going on, what this mode says; otherwise a turn.
    WithMode(AdmissionMode),
    /// A turn of its own at once, beside one that is going on: for commands that only look. Of anything but a command it
    /// means [`Self::Process`].
    Concurrent,
}

impl fmt::Display for AdmissionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::WithMode(mode) => mode.as_str(),
            Self::Concurrent => "beside",
        })
    }
}

/// What a `render_outbound` implementation gives.
#[derive(Debug, Clone, PartialEq)]
pub enum RenderedOutbound {
    /// These messages.
    Messages(Vec<OutboundMessage>),
    /// Nothing is to be said, in so many words.
    Silent,
}

/// What a `before_llm_call` implementation makes of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmCallVerdict {
    /// Send this request instead.
    Change(ModelRequest),
    /// Send nothing: this is the answer.
    Finish(ModelOutput),
}

/// What a `before_tool_call` implementation makes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallVerdict {
    /// Call it with these arguments.
    Proceed(JsonObject),
    /// Do not call it: this is its output.
    Replace(ToolOutput),
    /// Do not call it, and tell the model why.
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

fn join_names<T: ?Sized>(items: &[Arc<T>], name: impl Fn(&T) -> String) -> String {
    items.iter().map(|item| name(item)).collect::<Vec<_>>().join(", ")
}

points! {
    /// Which session an event belongs to.
    ResolveSession = "resolve_session": args::ResolveSessionArgs => SessionId, First, Event, AsyncMode, ToString::to_string;

    /// What to do with a message, once its session is known.
    AdmitMessage = "admit_message": args::AdmitMessageArgs => AdmissionDecision, First, Event, AsyncMode, ToString::to_string;

    /// Values for the state of the turn.
    LoadState = "load_state": args::LoadStateArgs => JsonObject, Merged, Turn, AsyncMode, |map| Value::Object(map.clone()).to_string();

    /// The prompt: text or content parts.
    BuildPrompt = "build_prompt": args::BuildPromptArgs => Content, First, Turn, AsyncMode, |content| format!("{:?}", content.text());

    /// The reply, as one text.
    RunModel = "run_model": args::RunModelArgs => String, First, ModelStage, AsyncMode, |text| format!("{text:?}");

    /// The reply, as a stream of events.
    RunModelStream = "run_model_stream": args::RunModelArgs => EventStream, First, ModelStage, AsyncMode, |_| "a stream".to_owned();

    /// What to tell the model before a further step of the loop.
    ContinuePrompt = "continue_prompt": args::ContinuePromptArgs => Content, First, Step, AsyncMode, |content| format!("{:?}", content.text());

    /// Keeps what the turn must not lose. Runs whenever there was a prompt, after success and after failure.
    SaveState = "save_state": args::SaveStateArgs => (), All, Turn, AsyncMode, |()| "done".to_owned();

    /// The messages to send.
    RenderOutbound = "render_outbound": args::RenderOutboundArgs => RenderedOutbound, Flattened, Turn, AsyncMode, |rendered| match rendered {
        RenderedOutbound::Silent => "silent".to_owned(),
        RenderedOutbound::Messages(messages) => {
            let texts: Vec<String> = messages.iter().map(|m| format!("{:?}", m.content.text())).collect();
            format!("[{}]", texts.join(", "))
        }
    };

    /// Sends one message, or stages it; says whether it did.
    DispatchOutbound = "dispatch_outbound": args::DispatchOutboundArgs => bool, All, Outbound, AsyncMode, ToString::to_string;

    /// A part of the system prompt.
    SystemPrompt = "system_prompt": args::SystemPromptArgs => String, Joined, ModelCall, SyncMode, |text| format!("{text:?}");

    /// Changes a request to a model, or answers it.
    BeforeLlmCall = "before_llm_call": args::BeforeLlmCallArgs => LlmCallVerdict, Chain, ModelCall, AsyncMode, |answer| match answer {
        LlmCallVerdict::Change(_) => "another request".to_owned(),
        LlmCallVerdict::Finish(output) => format!("finish with {:?}", output.text),
    };

    /// Sees how a call of a model ended.
    AfterLlmCall = "after_llm_call": args::AfterLlmCallArgs => (), Chain, ModelCall, AsyncMode, |()| "seen".to_owned();

    /// Changes the arguments of a tool call, replaces its output, or denies it.
    BeforeToolCall = "before_tool_call": args::BeforeToolCallArgs => ToolCallVerdict, Chain, ToolCall, AsyncMode, |answer| match answer {
        ToolCallVerdict::Proceed(arguments) => format!("proceed with {}", Value::Object(arguments.clone())),
        ToolCallVerdict::Replace(output) => format!("replace by {:?}", output.text()),
        ToolCallVerdict::Deny(message) => format!("deny: {message}"),
    };

    /// Sees how a tool call ended, and may give it another output before anybody else sees it.
    AfterToolCall = "after_tool_call": args::AfterToolCallArgs => ToolOutput, Chain, ToolCall, AsyncMode, |output| format!("replace by {:?}", output.text());

    /// Is told what went wrong.
    OnError = "on_error": args::OnErrorArgs => (), Observers, AnyTime, AsyncMode, |()| "done".to_owned();

    /// Commands of the command line.
    RegisterCliCommands = "register_cli_commands": () => Vec<CliCommand>, All, StartUp, SyncMode, |commands| {
        commands.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(", ")
    };

    /// Settings to be written when a user sets the host up.
    OnboardConfig = "onboard_config": args::OnboardConfigArgs => Value, Folded, Onboarding, SyncMode, ToString::to_string;

    /// Channels.
    ProvideChannels = "provide_channels": () => Vec<Arc<dyn Channel>>, FirstOfName, StartUp, SyncMode, |c| join_names(c, |c| c.name().to_string());

    /// Another place to keep the entries of tapes.
    ProvideTapeStore = "provide_tape_store": () => Arc<dyn TapeStore>, First, StartUp, SyncMode, |_| "a tape store".to_owned();

    /// Another view of the tape.
    BuildTapeContext = "build_tape_context": () => Arc<dyn View>, First, StartUp, SyncMode, |_| "a view".to_owned();

    /// Tools.
    ProvideTools = "provide_tools": () => Vec<Arc<dyn Tool>>, FirstOfName, StartUp, SyncMode, |t| join_names(t, |t| t.spec().name.to_string());

    /// Runners.
    ProvideRunners = "provide_runners": () => Vec<Arc<dyn Runner>>, FirstOfName, StartUp, SyncMode, |r| join_names(r, |r| r.descriptor().id.to_string());

    /// Providers of models.
    ProvideModelOptions = "provide_model_options": () => Vec<Arc<dyn ModelProvider>>, FirstOfName, StartUp, SyncMode, |p| join_names(p, |p| p.name().to_owned());

    /// Knowledge bases.
    ProvideKnowledge = "provide_knowledge": () => Vec<Arc<dyn KnowledgeSource>>, FirstOfName, StartUp, SyncMode, |s| join_names(s, |s| s.knowledge_base().id);
}
