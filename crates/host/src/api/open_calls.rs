//! Calls that a run had begun and that it broke off: whoever saw them begin is told how they ended.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookError;
use capstan_hooks::args::{AfterLlmCallArgs, AfterToolCallArgs, LlmOutcome, LlmRequest, PendingToolCall, ToolOutcome};
use capstan_protocol::{ModelRequest, ToolOutput};

use crate::runs::run::Run;

/// How long the hooks may take to hear of it: somebody waits for the end of the run.
const HOOK_NOTICE_TIMEOUT: Duration = Duration::from_secs(5);
/// How such a call ended.
const INTERRUPTED_CALL_MESSAGE: &str = "the run was broken off during the call";

/// Shows the hooks the calls that will not end by themselves any more. What they make of it changes nothing.
pub(crate) async fn notify_interrupted_calls(run: &Run) {
    let calls = run.progress().open_calls.take_all();
    let told = tokio::time::timeout(HOOK_NOTICE_TIMEOUT, async {
        for call in calls {
            if let Err(failure) = notify_interrupted_call(run, call).await {
                tracing::warn!(%failure, "a hook failed at the end of a run");
            }
        }
    });
    if told.await.is_err() {
        tracing::warn!(run_id = %run.id(), "hooks took too long at the end of a run");
    }
}

async fn notify_interrupted_call(run: &Run, call: OpenCall) -> Result<(), HookError> {
    let (session_id, state) = (run.context.conversation.session_id.clone(), run.state.clone());
    match call {
        OpenCall::Tool(call) => {
            let outcome = ToolOutcome(Arc::new(ToolOutput::error(INTERRUPTED_CALL_MESSAGE)));
            let args = AfterToolCallArgs { call, outcome, session_id, state };
            run.services.hooks.after_tool_call(args).await.map(drop)
        }
        OpenCall::Model(request) => {
            let outcome = LlmOutcome(Arc::new(Err(INTERRUPTED_CALL_MESSAGE.to_owned())));
            let args = AfterLlmCallArgs { request: LlmRequest(Arc::new(*request)), outcome, session_id, state };
            run.services.hooks.after_llm_call(&args).await
        }
    }
}

/// A call that has begun.
enum OpenCall {
    Tool(PendingToolCall),
    Model(Box<ModelRequest>),
}

/// The calls that have begun and not ended.
#[derive(Default)]
pub(crate) struct OpenCalls {
    calls: Vec<(u64, OpenCall)>,
    last_number: u64,
}

impl OpenCalls {
    /// A tool call begins; it is named by the number.
    pub(super) fn begin_tool(&mut self, call: PendingToolCall) -> u64 {
        self.begin(OpenCall::Tool(call))
    }

    /// A model call begins; it is named by the number.
    pub(super) fn begin_model(&mut self, request: ModelRequest) -> u64 {
        self.begin(OpenCall::Model(Box::new(request)))
    }

    /// A model call is sent, as this: hooks may have changed what the runner asked for, and another model may answer.
    pub(super) fn update_model_request(&mut self, number: u64, request: ModelRequest) {
        if let Some((_, call)) = self.calls.iter_mut().find(|(open, _)| *open == number) {
            *call = OpenCall::Model(Box::new(request));
        }
    }

    fn begin(&mut self, call: OpenCall) -> u64 {
        self.last_number += 1;
        self.calls.push((self.last_number, call));
        self.last_number
    }

    /// A call has ended.
    pub(super) fn end(&mut self, number: u64) {
        self.calls.retain(|(open, _)| *open != number);
    }

    fn take_all(&mut self) -> Vec<OpenCall> {
        std::mem::take(&mut self.calls).into_iter().map(|(_, call)| call).collect()
    }
}
