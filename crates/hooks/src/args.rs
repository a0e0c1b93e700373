//! The arguments of the hook points, as the types an implementation declares.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use capstan_protocol::{
    Content, JsonObject, ModelOutput, ModelRequest, OutboundMessage, SessionId, ToolName, ToolOutput,
};

use crate::points::{
    AdmitMessage, AfterLlmCall, AfterToolCall, BeforeLlmCall, BeforeToolCall, BuildPrompt, ContinuePrompt,
    DispatchOutbound, LoadState, OnError, OnboardConfig, RenderOutbound, ResolveSession, RunModel, RunModelStream,
    SaveState, SystemPrompt,
};
use crate::{EventStream, HookArgument, HookPoint, InboundEvent, TurnState};

/// The built prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptContent(pub Arc<Content>);

impl PromptContent {
    /// The text of the prompt.
    pub fn text(&self) -> String {
        self.0.text()
    }
}

impl From<Content> for PromptContent {
    fn from(content: Content) -> Self {
        Self(Arc::new(content))
    }
}

/// What the model stage came to, as far as it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelText(pub Arc<str>);

impl Deref for ModelText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Outbound message that is being dispatched; reads as the [`OutboundMessage`].
#[derive(Debug, Clone)]
pub struct DispatchMessage {
    message: Arc<OutboundMessage>,
    is_staged: Arc<AtomicBool>,
}

impl DispatchMessage {
    /// A message that no implementation has staged yet.
    pub fn new(message: OutboundMessage) -> Self {
        Self { message: Arc::new(message), is_staged: Arc::default() }
    }

    /// Stages the message: it is committed to the outbox with the outcome of the turn, and delivered from there. An
    /// implementation that sends the message itself does not stage it.
    pub fn stage(&self) {
        self.is_staged.store(true, Ordering::Relaxed);
    }

    /// Whether an implementation has staged the message.
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
        // A later request is dropped: the user hears once.
        let _later = self.0.set(text.into());
    }

    /// The requested text.
    pub fn text(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The runner of the binding that the turn runs under.
#[derive(Clone)]
pub struct BoundRunner(Arc<dyn Fn() -> Option<EventStream> + Send + Sync>);

impl BoundRunner {
    /// A runner that `start` starts.
    pub fn new(start: impl Fn() -> Option<EventStream> + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }

    /// No runner.
    pub fn none() -> Self {
        Self::new(|| None)
    }

    /// Starts the runner, once for each run: a second call gives nothing. An implementation that starts it answers with
    /// its stream; the results of the runner are recorded as the stream is read.
    pub fn start(&self) -> Option<EventStream> {
        (self.0)()
    }
}

impl fmt::Debug for BoundRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundRunner")
    }
}

/// What went wrong in the turn so far, if something did; fit for a log, not for a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnFailure(pub Option<Arc<str>>);

/// Whether a turn of the session is running at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBusy(pub bool);

/// The number of the step that is about to begin, from 2 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepNumber(pub u32);

/// The configuration as far as it is merged.
#[derive(Debug, Clone, PartialEq)]
pub struct CurrentConfig(pub Arc<JsonObject>);

/// Where something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorStage {
    /// Anywhere in a turn.
    Turn,
    /// In the model stage.
    RunModel,
}

impl ErrorStage {
    /// The stage as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::RunModel => "run_model",
        }
    }
}

/// What went wrong: the whole story for a log, and what may be shown to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// The whole story. It may name paths and plugins.
    pub detail: Arc<str>,
    /// What a user may see: no secret, no path.
    pub public: Arc<str>,
}

/// The inbound an error belongs to, if it belongs to one.
#[derive(Debug, Clone)]
pub struct MaybeInboundEvent(pub Option<InboundEvent>);

/// A request to a model, as it is about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmRequest(pub Arc<ModelRequest>);

/// How a call of a model ended: its output, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmOutcome(pub Arc<Result<ModelOutput, String>>);

/// A tool call as it is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingToolCall {
    /// The tool.
    pub name: ToolName,
    /// Its arguments.
    pub arguments: Arc<JsonObject>,
}

/// What a tool answered, or was made to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome(pub Arc<ToolOutput>);

/// Declares the arguments of a point, and for each which types an implementation takes it as.
macro_rules! arguments {
    ($(
        $(#[$doc:meta])*
        $args:ident for $($point:ident),+ { $( $field:ident: $kind:ty = $name:literal ),* $(,)? }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $args {
            $(#[doc = concat!("The argument `", $name, "`.")] pub $field: $kind,)*
        }

        arguments!(@each [$($point),+] $args { $( $field: $kind = $name ),* });
    )*};
    (@each [$($point:ident),+] $args:ident $fields:tt) => {
        $(arguments!(@point $point $fields);)+
    };
    (@point $point:ident { $( $field:ident: $kind:ty = $name:literal ),* }) => {$(
        impl HookArgument<$point> for $kind {
            const ARGUMENT_NAME: &'static str = $name;

            fn extract(args: &<$point as HookPoint>::Args) -> Self {
                args.$field.clone()
            }
        }
    )*};
}

arguments! {
    /// What `resolve_session` may ask for.
    ResolveSessionArgs for ResolveSession { message: InboundEvent = "message" }

    /// What `admit_message` may ask for.
    AdmitMessageArgs for AdmitMessage { message: InboundEvent = "message", session_id: SessionId = "session_id", busy: SessionBusy = "busy" }

    /// What `load_state` may ask for.
    LoadStateArgs for LoadState { message: InboundEvent = "message", session_id: SessionId = "session_id" }

    /// What `build_prompt` may ask for.
    BuildPromptArgs for BuildPrompt { message: InboundEvent = "message", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// What `run_model` and `run_model_stream` may ask for.
    RunModelArgs for RunModel, RunModelStream {
        prompt: PromptContent = "prompt",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        runner: BoundRunner = "runner",
    }

    /// What `continue_prompt` may ask for.
    ContinuePromptArgs for ContinuePrompt { step: StepNumber = "step", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// What `save_state` may ask for.
    SaveStateArgs for SaveState {
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        message: InboundEvent = "message",
        model_output: ModelText = "model_output",
        failure: TurnFailure = "failure",
    }

    /// What `render_outbound` may ask for.
    RenderOutboundArgs for RenderOutbound {
        message: InboundEvent = "message",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
        model_output: ModelText = "model_output",
    }

    /// What `dispatch_outbound` may ask for.
    DispatchOutboundArgs for DispatchOutbound { message: DispatchMessage = "message", inbound: InboundEvent = "inbound" }

    /// What `system_prompt` may ask for.
    SystemPromptArgs for SystemPrompt { prompt: PromptContent = "prompt", state: TurnState = "state" }

    /// What `before_llm_call` may ask for.
    BeforeLlmCallArgs for BeforeLlmCall { request: LlmRequest = "request", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// What `after_llm_call` may ask for.
    AfterLlmCallArgs for AfterLlmCall {
        request: LlmRequest = "request",
        outcome: LlmOutcome = "outcome",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
    }

    /// What `before_tool_call` may ask for.
    BeforeToolCallArgs for BeforeToolCall { call: PendingToolCall = "call", session_id: SessionId = "session_id", state: TurnState = "state" }

    /// What `after_tool_call` may ask for.
    AfterToolCallArgs for AfterToolCall {
        call: PendingToolCall = "call",
        outcome: ToolOutcome = "outcome",
        session_id: SessionId = "session_id",
        state: TurnState = "state",
    }

    /// What `on_error` may ask for.
    OnErrorArgs for OnError {
        stage: ErrorStage = "stage",
        error: ErrorReport = "error",
        message: MaybeInboundEvent = "message",
        notice: NoticeRequest = "notice",
    }

    /// What `onboard_config` may ask for.
    OnboardConfigArgs for OnboardConfig { current_config: CurrentConfig = "current_config" }
}
