//! Reply of a model, as it is forwarded to a runner.

use std::sync::Arc;

use capstan_hooks::args::{AfterLlmCallArgs, LlmOutcome, LlmRequest};
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelEvent, ModelResultStream, ModelStream};
use capstan_protocol::{ApiError, ApiErrorCode, ModelOutput, ModelRequest, StreamEvent};
use capstan_tape::{ModelCallEnd, ModelCallStatus, TapeEvent};
use futures::{StreamExt as _, stream};

use super::hook_api_error;
use super::token_meter::TokenMeter;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::run::open_calls::OpenModelCall;

/// Maximum length of a reply, in bytes: many times the longest reply of any model, and small enough for memory.
const MAX_MODEL_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// Maximum length of a forwarded event, in bytes.
const MAX_REPLY_CHUNK_BYTES: usize = 256 * 1024;

/// Reply of a plugin in place of the provider, as a stream.
pub(super) fn output_stream(output: ModelOutput) -> ModelStream {
    let ModelOutput { text, tool_calls, usage, provider_meta } = output;
    let text = (!text.is_empty()).then_some(ModelEvent::Text(text));
    let calls = tool_calls.into_iter().map(ModelEvent::ToolCall);
    let meta = (!provider_meta.is_empty()).then_some(ModelEvent::ProviderMeta(provider_meta));
    let end = meta.into_iter().chain(usage.map(ModelEvent::Usage)).chain([ModelEvent::Stop]);
    stream::iter(text.into_iter().chain(calls).chain(end).map(Ok)).boxed()
}

/// A call that was sent, or that a plugin answered in place of the model.
pub(super) struct PendingModelCall {
    run: Arc<Run>,
    pub(super) request: Arc<ModelRequest>,
    /// Reply so far.
    output: ModelOutput,
    /// The reply was truncated at the token limit.
    truncated: bool,
    /// Length of the reply so far, in bytes.
    bytes: usize,
    /// Number of the key that was used, for a provider with several.
    key: Option<u32>,
}

/// Progress of a reply.
enum ReplyStep {
    /// Events for the runner.
    Chunks(Vec<ModelEvent>),
    /// The end of the reply. It is recorded.
    End(Result<(), ApiError>),
}

impl PendingModelCall {
    pub(super) fn new(run: &Arc<Run>, request: ModelRequest) -> Self {
        let (run, request) = (Arc::clone(run), Arc::new(request));
        Self { run, request, output: ModelOutput::default(), truncated: false, bytes: 0, key: None }
    }

    /// Call that used this key of several.
    pub(super) fn with_key(self, key: Option<u32>) -> Self {
        Self { key, ..self }
    }

    /// Forwards the provider's events. The call ends exactly once: on the tape, for the hooks, and as an open call. The
    /// meter counts the forwarded events, until the stream is dropped. The stream ends with its run, even if its caller
    /// outlives the run.
    pub(super) fn into_results(
        mut self,
        mut events: ModelStream,
        mut meter: Option<TokenMeter>,
        open_call: Option<OpenModelCall>,
        permit: CallPermit,
    ) -> ModelResultStream {
        let results = async_stream::stream! {
            let _in_flight = permit;
            let revoked = self.run.call_limiter.revoked.clone();
            let cancelled = self.run.cancel_token.clone();
            loop {
                let step = tokio::select! {
                    biased;
                    () = revoked.cancelled() => return,
                    // A runner that ends its work after a cancellation gets no further output.
                    () = cancelled.cancelled() => return,
                    step = self.next_step(&mut events) => step,
                };
                match step {
                    ReplyStep::Chunks(chunks) => {
                        for chunk in chunks {
                            if revoked.is_cancelled() {
                                return;
                            }
                            if let Some(meter) = &mut meter {
                                meter.record_event(&chunk);
                            }
                            yield Ok(chunk);
                        }
                    }
                    ReplyStep::End(end) => {
                        if let Some(open_call) = &open_call {
                            open_call.end();
                        }
                        yield end.map(|()| ModelEvent::Stop);
                        return;
                    }
                }
            }
        };
        results.boxed()
    }

    /// Collects the provider's next event. At the end of the reply, ends the call.
    async fn next_step(&mut self, events: &mut ModelStream) -> ReplyStep {
        let error = match events.next().await {
            Some(Ok(ModelEvent::Stop)) => return ReplyStep::End(self.finish(Ok(())).await),
            Some(Ok(event)) => {
                self.bytes += event_len(&event);
                if self.bytes <= MAX_MODEL_REPLY_BYTES {
                    self.collect_event(&event).await;
                    return ReplyStep::Chunks(split_event(event));
                }
                let message = format!("the answer has more than the {MAX_MODEL_REPLY_BYTES} bytes allowed");
                ModelError::new(ModelErrorKind::Broken, message)
            }
            Some(Err(error)) => error,
            None => ModelError::new(ModelErrorKind::Broken, "the model's stream ended before it was complete"),
        };
        ReplyStep::End(Err(self.fail(&error).await))
    }

    async fn collect_event(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(delta) => self.output.text.push_str(delta),
            ModelEvent::ToolCall(call) => self.output.tool_calls.push(call.clone()),
            ModelEvent::ProviderMeta(meta) => self.output.provider_meta.extend(meta.clone()),
            ModelEvent::Usage(usage) => {
                self.output.usage = Some(usage.clone());
                self.run.emit(StreamEvent::Usage { usage: usage.clone() }).await;
            }
            ModelEvent::Truncated => {
                self.truncated = true;
                tracing::warn!("the reply of {} reached its limit of tokens and is incomplete", self.request.model);
            }
            ModelEvent::Reasoning(_) | ModelEvent::Stop => {}
        }
    }

    /// Records the end of the call on the tape, with its usage as far as the provider reported it.
    fn record_end(&self, end: Result<(), &ModelError>) {
        let usage = self.output.usage.clone();
        if let Some(usage) = &usage {
            self.run.add_usage(usage);
        }
        let status = if end.is_ok() { ModelCallStatus::Ok } else { ModelCallStatus::Error };
        let (model, truncated) = (self.request.model.clone(), self.truncated);
        let end = ModelCallEnd { status, usage, model, truncated, key: self.key };
        self.run.append(TapeEvent::ModelCallEnded(end).into());
    }

    /// Ends a call whose reply failed. Returns the error for the runner: that of a hook, if a hook failed too.
    async fn fail(&self, error: &ModelError) -> ApiError {
        self.finish(Err(error)).await.err().unwrap_or_else(|| model_api_error(error))
    }

    /// Ends the call: on the tape and for the hooks.
    pub(super) async fn finish(&self, end: Result<(), &ModelError>) -> Result<(), ApiError> {
        self.record_end(end);
        let outcome = end.map(|()| self.output.clone()).map_err(|error| error.message.clone());
        let args = AfterLlmCallArgs {
            request: LlmRequest(Arc::clone(&self.request)),
            outcome: LlmOutcome(Arc::new(outcome)),
            session_id: self.run.context.conversation.session_id.clone(),
            state: self.run.state.clone(),
        };
        self.run
            .environment
            .hooks
            .interceptors()
            .after_llm_call(&args)
            .await
            .map_err(|failure| hook_api_error(&failure))
    }
}

/// Splits an event into chunks that a runner may forward: a server that does not stream sends its whole reply at once.
fn split_event(event: ModelEvent) -> Vec<ModelEvent> {
    match event {
        ModelEvent::Text(text) => split_text(text).into_iter().map(ModelEvent::Text).collect(),
        ModelEvent::Reasoning(text) => split_text(text).into_iter().map(ModelEvent::Reasoning).collect(),
        event => vec![event],
    }
}

fn split_text(mut text: String) -> Vec<String> {
    let mut chunks = Vec::new();
    while text.len() > MAX_REPLY_CHUNK_BYTES {
        let rest = text.split_off(text.floor_char_boundary(MAX_REPLY_CHUNK_BYTES));
        chunks.push(std::mem::replace(&mut text, rest));
    }
    chunks.push(text);
    chunks
}

/// Length of an event in the reply, in bytes.
fn event_len(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(delta) | ModelEvent::Reasoning(delta) => delta.len(),
        ModelEvent::ToolCall(call) => call.function.name.len() + call.function.arguments.len(),
        ModelEvent::ProviderMeta(_) | ModelEvent::Usage(_) | ModelEvent::Truncated | ModelEvent::Stop => 0,
    }
}

pub(super) fn model_api_error(error: &ModelError) -> ApiError {
    let (code, retryable) = match error.kind {
        ModelErrorKind::UnknownModel => (ApiErrorCode::NotFound, false),
        ModelErrorKind::RateLimited | ModelErrorKind::Exhausted => (ApiErrorCode::RateLimited, true),
        ModelErrorKind::ContextOverflow => (ApiErrorCode::PayloadTooLarge, false),
        ModelErrorKind::Unreachable | ModelErrorKind::Broken => (ApiErrorCode::RuntimeError, true),
        ModelErrorKind::Unauthorized | ModelErrorKind::Rejected => (ApiErrorCode::RuntimeError, false),
    };
    ApiError { code, message: error.message.clone(), retryable, cause: Some(error.kind.code().into()) }
}
