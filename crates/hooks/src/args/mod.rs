//! Arguments of the hook points, as the types that an implementation declares.

mod remote_call;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use capstan_protocol::{
    Content, JsonObject, ModelOutput, ModelRequest, OutboundKind, OutboundMessage, ResourceAccess, RunId, SessionId,
    StreamEvent, ToolName, ToolOperation, ToolOutput,
};
use capstan_tape::TapeReader;
use futures::stream::BoxStream;

use self::remote_call::add_argument;
pub use self::remote_call::{RemoteArguments, RemoteHookCall};
use crate::context_model::{ContextModel, ContextModelAccess};
use crate::{HookArgument, HookHandle, HookTurn, InboundEvent, PluginGrant, TurnState};

/// Stream events of a model stage.
pub type EventStream = BoxStream<'static, StreamEvent>;

/// Prompt of the turn, as `build_prompt` returned it.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptContent(pub Arc<Content>);

impl PromptContent {
    /// Text of the prompt.
    pub fn text(&self) -> String {
        self.0.text()
    }
}

impl From<Content> for PromptContent {
    fn from(content: Content) -> Self {
        Self(Arc::new(content))
    }
}

/// Tools that the grant of the run covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedTools(pub Arc<ResourceAccess<ToolOperation>>);

impl GrantedTools {
    /// Returns true if the run may call the tool of this name.
    pub fn allows(&self, name: &str) -> bool {
        self.0.allows(ToolOperation::Call, name)
    }
}

impl From<ResourceAccess<ToolOperation>> for GrantedTools {
    fn from(tools: ResourceAccess<ToolOperation>) -> Self {
        Self(Arc::new(tools))
    }
}

/// Output text of the model stage; incomplete if the stage failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelText(pub Arc<str>);

impl Deref for ModelText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Output of the model stage with its images, files and artifacts; incomplete if the stage failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelContent(pub Arc<Content>);

/// Outbound message that is being dispatched; reads as the [`OutboundMessage`].
#[derive(Debug, Clone)]
pub struct DispatchMessage {
    message: Arc<OutboundMessage>,
    is_staged: Arc<AtomicBool>,
}

impl DispatchMessage {
    /// Wraps a message that no implementation has staged yet.
    pub fn new(message: OutboundMessage) -> Self {
        Self { message: Arc::new(message), is_staged: Arc::default() }
    }

    /// Stages the message: it is committed to the outbox with the outcome of the turn, and delivered from there. An
    /// implementation that sends the message itself does not stage it.
    pub fn stage(&self) {
        self.is_staged.store(true, Ordering::Relaxed);
    }

    /// Returns true once an implementation has staged the message.
    pub fn is_staged(&self) -> bool {
        self.is_staged.load(Ordering::Relaxed)
    }
}

impl Deref for DispatchMessage {
    type Target = OutboundMessage;

    fn deref(&self) -> &OutboundMessage {
        &self.message
    }
}

/// Request for the one notice of a turn: a message to the user about events that end without a reply.
#[derive(Debug, Clone, Default)]
pub struct NoticeRequest(Arc<OnceLock<String>>);

impl NoticeRequest {
    /// Requests a notice. The first request of a turn counts, however many stages fail.
    pub fn request(&self, text: impl Into<String>) {
        // Later requests are dropped: the user gets one notice.
        let _is_first = self.0.set(text.into());
    }

    /// Requested text.
    pub fn text(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Runner of the binding that the turn runs under.
#[derive(Clone)]
pub struct BoundRunner(Arc<dyn Fn() -> Option<EventStream> + Send + Sync>);

impl BoundRunner {
    /// Wraps the function that starts the runner.
    pub fn new(start: impl Fn() -> Option<EventStream> + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }

    /// Stands for a turn without a runner.
    pub fn none() -> Self {
        Self::new(|| None)
    }

    /// Starts the runner, once for each run: a second call returns `None`. An implementation that starts the runner
    /// returns its stream; the results of the runner are recorded as the stream is read.
    pub fn start(&self) -> Option<EventStream> {
        (self.0)()
    }
}

impl fmt::Debug for BoundRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundRunner")
    }
}

/// Error that the turn has met, if any; for logs, not for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnFailure(pub Option<Arc<str>>);

/// True while a turn of the session is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBusy(pub bool);

/// Number of the step that is about to begin, from 2 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepNumber(pub u32);

/// Configuration merged from the plugins that were called before.
#[derive(Debug, Clone, PartialEq)]
pub struct CurrentConfig(pub Arc<JsonObject>);

/// Stage in which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorStage {
    /// Any stage of a turn.
    Turn,
    /// The model stage.
    RunModel,
}

impl ErrorStage {
    /// Name of the stage.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::RunModel => "run_model",
        }
    }
}

/// Error in two forms: for logs and for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// Full message for logs. May name paths and plugins.
    pub detail: Arc<str>,
    /// Message for users, without secrets and paths.
    pub public: Arc<str>,
}

/// Event that an error belongs to, if any.
#[derive(Debug, Clone)]
pub struct MaybeInboundEvent(pub Option<InboundEvent>);

/// Request that is about to be sent to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmRequest(pub Arc<ModelRequest>);

/// Outcome of a model call: its output or an error message.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmOutcome(pub Arc<Result<ModelOutput, String>>);

/// Tool call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingToolCall {
    /// The tool.
    pub name: ToolName,
    /// Its arguments.
    pub arguments: Arc<JsonObject>,
}

/// Output of a tool call, from the tool or from a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome(pub Arc<ToolOutput>);

/// Declares one argument of a hook point, and the function that extracts it for a plugin.
macro_rules! hook_argument {
    ($args:ty, $kind:ty, $name:literal, $extract:expr) => {
        impl HookArgument<$args> for $kind {
            const ARGUMENT_NAME: &'static str = $name;

            fn extract(args: &$args, grant: &PluginGrant) -> Self {
                let extract: fn(&$args, &PluginGrant) -> Self = $extract;
                extract(args, grant)
            }
        }
    };
}

/// Declares the arguments of a hook point, each with the type that an implementation declares to receive it. A
/// semicolon precedes an argument that depends on the plugin: the field it is made from, its type, and the function
/// that makes it.
macro_rules! arguments {
    ($(
        $(#[$doc:meta])*
        $args:ident {
            $( $field:ident: $kind:ty = $name:literal ),* $(,)?
            $( ; $source:ident: $source_kind:ty => $own:ty = $own_name:literal, $extract:expr )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $args {
            $(#[doc = concat!("Argument `", $name, "`.")] pub $field: $kind,)*
            $(#[doc = concat!("Source of the argument `", $own_name, "`.")] pub $source: $source_kind,)*
        }

        impl RemoteArguments for $args {
            const NAMES: &'static [&'static str] = &[$($name,)* $($own_name,)*];

            fn remote_call(&self, _declared: &[&'static str], _grant: &PluginGrant) -> RemoteHookCall {
                let mut call = RemoteHookCall::default();
                $(add_argument(&mut call, _declared, $name, &self.$field);)*
                $(
                    let argument = <$own as HookArgument<$args>>::extract(self, _grant);
                    add_argument(&mut call, _declared, $own_name, &argument);
                )*
                call
            }
        }

        $(hook_argument!($args, $own, $own_name, |args, grant| {
            let extract: fn(&$source_kind, &PluginGrant) -> $own = $extract;
            extract(&args.$source, grant)
        });)*
        $(hook_argument!($args, $kind, $name, |args, _| args.$field.clone());)*
    )*};
}

fn turn_handle(turn: &HookTurn, grant: &PluginGrant) -> HookHandle {
    turn.handle(grant, OutboundKind::Reply)
}

fn observer_handle(turn: &HookTurn, grant: &PluginGrant) -> HookHandle {
    turn.handle(grant, OutboundKind::Notice)
}

arguments! {
    /// Arguments of `resolve_session`.
    ResolveSessionArgs { message: InboundEvent = "message" }

    /// Arguments of `admit_message`.
    AdmitMessageArgs { message: InboundEvent = "message", session_id: SessionId = "session_id", busy: SessionBusy = "busy" }

    /// Arguments of `load_state`.
    LoadStateArgs {
        message: InboundEvent = "message",
        session_id: SessionId = "session_id",
        ; turn: HookTurn => HookHandle = "handle", turn_handle
    }

    /// Arguments of `build_prompt`.
    BuildPromptArgs {
        message: InboundEvent = "message",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        tools: GrantedTools = "tools",
        ; turn: HookTurn => HookHandle = "handle", turn_handle
    }

    /// Arguments of `run_model` and `run_model_stream`.
    RunModelArgs {
        prompt: PromptContent = "prompt",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        runner: BoundRunner = "runner",
    }

    /// Arguments of `continue_prompt`.
    ContinuePromptArgs { step: StepNumber = "step", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// Arguments of `save_state`.
    SaveStateArgs {
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        message: InboundEvent = "message",
        model_output: ModelText = "model_output",
        failure: TurnFailure = "failure",
        ; turn: HookTurn => HookHandle = "handle", turn_handle
    }

    /// Arguments of `render_outbound`.
    RenderOutboundArgs {
        message: InboundEvent = "message",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        model_output: ModelText = "model_output",
        model_content: ModelContent = "model_content",
        ; turn: HookTurn => HookHandle = "handle", turn_handle
    }

    /// Arguments of `dispatch_outbound`.
    DispatchOutboundArgs { message: DispatchMessage = "message", inbound: InboundEvent = "inbound" }

    /// Arguments of `system_prompt`.
    SystemPromptArgs { prompt: PromptContent = "prompt", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// Arguments of `build_tape_context`.
    TapeContextArgs {
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        prompt: PromptContent = "prompt",
        run_id: RunId = "run_id",
        tape: TapeReader = "tape",
        ; model: ContextModelAccess => ContextModel = "model", ContextModelAccess::model
    }

    /// Arguments of `before_llm_call`.
    BeforeLlmCallArgs { request: LlmRequest = "request", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// Arguments of `after_llm_call`.
    AfterLlmCallArgs {
        request: LlmRequest = "request",
        outcome: LlmOutcome = "outcome",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
    }

    /// Arguments of `before_tool_call`.
    BeforeToolCallArgs { call: PendingToolCall = "call", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// Arguments of `after_tool_call`.
    AfterToolCallArgs {
        call: PendingToolCall = "call",
        outcome: ToolOutcome = "outcome",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
    }

    /// Arguments of `on_error`.
    OnErrorArgs {
        stage: ErrorStage = "stage",
        error: ErrorReport = "error",
        message: MaybeInboundEvent = "message",
        notice: NoticeRequest = "notice",
        ; turn: HookTurn => HookHandle = "handle", observer_handle
    }

    /// Arguments of `onboard_config`.
    OnboardConfigArgs { current_config: CurrentConfig = "current_config" }
}
