//! Open calls: hooks that saw a call begin are notified of its end, also when the run interrupts it.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookError;
use capstan_hooks::args::{AfterLlmCallArgs, AfterToolCallArgs, LlmOutcome, LlmRequest, PendingToolCall, ToolOutcome};
use capstan_hooks::contracts::ModelCall;
use capstan_hooks::points::AfterLlmCall;
use capstan_protocol::{ModelRequest, ToolOutput};

use crate::run::Run;

/// Timeout of the hooks at the end of a run.
const HOOK_NOTICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Outcome of an interrupted call.
const INTERRUPTED_CALL_MESSAGE: &str = "the run was broken off during the call";

/// Notifies the hooks of the calls that the end of the run interrupts. Their answers change nothing.
pub(crate) async fn notify_interrupted_calls(run: &Run) {
    let calls = run.progress().open_calls.take_all();
    let notices = tokio::time::timeout(HOOK_NOTICE_TIMEOUT, async {
        for call in calls {
            if let Err(error) = notify_interrupted_call(run, call).await {
                tracing::warn!(run_id = %run.id(), %error, "a hook failed at the end of a run");
            }
        }
    });
    if notices.await.is_err() {
        tracing::warn!(run_id = %run.id(), "the hooks timed out at the end of a run");
    }
}

async fn notify_interrupted_call(run: &Run, call: OpenCall) -> Result<(), HookError> {
    let (session_id, state) = (run.context.conversation.session_id.clone(), run.state.clone());
    match call {
        OpenCall::Tool(call) => {
            let outcome = ToolOutcome(Arc::new(ToolOutput::error(INTERRUPTED_CALL_MESSAGE)));
            let args = AfterToolCallArgs { call, outcome, session_id, state };
            run.environment.hooks.interceptors().after_tool_call(args).await.map(drop)
        }
        OpenCall::Model(request) => {
            let outcome = LlmOutcome(Arc::new(Err(INTERRUPTED_CALL_MESSAGE.to_owned())));
            let args = AfterLlmCallArgs { request: LlmRequest(Arc::new(*request)), outcome, session_id, state };
            run.environment.hooks.interceptors().after_llm_call(&args).await
        }
    }
}

/// A call that has begun.
enum OpenCall {
    Tool(PendingToolCall),
    Model(Box<ModelRequest>),
}

/// Calls that have begun and not ended.
#[derive(Default)]
pub(crate) struct OpenCalls {
    calls: Vec<(u64, OpenCall)>,
    last_number: u64,
}

impl OpenCalls {
    /// Registers a tool call, under a number.
    pub(crate) fn begin_tool(&mut self, call: PendingToolCall) -> u64 {
        self.begin(OpenCall::Tool(call))
    }

    fn begin(&mut self, call: OpenCall) -> u64 {
        self.last_number += 1;
        self.calls.push((self.last_number, call));
        self.last_number
    }

    /// Ends a call.
    pub(crate) fn end(&mut self, number: u64) {
        self.calls.retain(|(open, _)| *open != number);
    }

    fn take_all(&mut self) -> Vec<OpenCall> {
        std::mem::take(&mut self.calls).into_iter().map(|(_, call)| call).collect()
    }
}

/// A model call that hooks saw begin. A call that its runner drops, as on cancellation, stays open, and the hooks are
/// [notified](notify_interrupted_calls) of it at the end of the run.
pub(crate) struct OpenModelCall {
    run: Arc<Run>,
    number: u64,
}

impl OpenModelCall {
    /// Registers a call, in the form in which the runner made it. Requests are held only if a hook implements
    /// `after_llm_call`.
    pub(crate) fn begin(run: &Arc<Run>, call: &ModelCall) -> Option<Self> {
        if !run.environment.hooks.is_implemented::<AfterLlmCall>() {
            return None;
        }
        let options = &run.environment.options;
        let request = ModelRequest {
            model: call.model.clone().unwrap_or_else(|| options.model.clone()),
            system: call.system.clone(),
            messages: call.messages.clone(),
            tools: call.tools.clone(),
            options: options.model_options.for_call(&call.options),
        };
        let number = run.progress().open_calls.begin(OpenCall::Model(Box::new(request)));
        Some(Self { run: Arc::clone(run), number })
    }

    /// Replaces the request by the one that is sent: hooks may have changed it, and another model may answer.
    pub(crate) fn update(&self, request: &ModelRequest) {
        let mut progress = self.run.progress();
        if let Some((_, call)) = progress.open_calls.calls.iter_mut().find(|(open, _)| *open == self.number) {
            *call = OpenCall::Model(Box::new(request.clone()));
        }
    }

    /// Ends the registration: the hooks have seen the end of the call.
    pub(crate) fn end(&self) {
        self.run.progress().open_calls.end(self.number);
    }
}
