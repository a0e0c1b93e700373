//! Models, as a run may use them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::LlmDecision;
use capstan_hooks::args::{AfterLlmCallArgs, BeforeLlmCallArgs, LlmOutcome, LlmRequest};
use capstan_hooks::contracts::{
    ModelCall, ModelError, ModelErrorKind, ModelEvent, ModelResultStream, ModelStream, RequestBody,
};
use capstan_models::wire;
use capstan_protocol::{
    ApiError, ApiErrorCode, JsonObject, ModelId, ModelOperation, ModelOutput, ModelRequest, StreamEvent,
};
use capstan_tape::{ModelCallEnd, ModelCallStatus, TapeEvent, conversation};
use futures::{StreamExt as _, stream};

use super::{hook_api_error, image_limit, store_api_error, unauthorized_error};
use crate::runs::model_call_log;
use crate::runs::run::Run;

/// How long an answer may be, in bytes: many times what any model says, and little enough to be kept in memory.
const MAX_MODEL_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// How long a piece of it is at most when it is handed on, in bytes.
const MAX_REPLY_CHUNK_BYTES: usize = 256 * 1024;

/// Models, and what is asked of them.
pub(super) struct ModelsHandler(pub(super) Arc<Run>, pub(super) ModelOperation);

impl ModelsHandler {
    /// Calls a model. `sending` is told of each request right before it is sent, as it is sent.
    pub(super) async fn stream(
        &self,
        call: ModelCall,
        sending: impl Fn(&ModelRequest) + Send + Sync,
    ) -> Result<ModelResultStream, ApiError> {
        let run = &self.0;
        let request = Arc::new(ModelRequest {
            model: call.model.unwrap_or_else(|| self.default_model()),
            system: call.system,
            messages: call.messages,
            tools: call.tools,
            options: run.services.options.model_options.clone(),
        });
        self.check_allowed(&request.model)?;
        run.ingest_message();
        let mut asked = request;
        let mut fallbacks: Option<std::vec::IntoIter<ModelId>> = None;
        let mut cause: Option<ModelError> = None;
        loop {
            // Each model has an interception of its own: what may go to one may not go to another.
            let request = match self.run_before_hooks(Arc::clone(&asked)).await? {
                LlmDecision::Send(request) => ModelRequest::clone(&request),
                LlmDecision::Finish(output) => {
                    return Ok(
                        PendingModelCall::new(run, ModelRequest::clone(&asked)).into_results(output_stream(*output))
                    );
                }
            };
            // An interception may have changed anything, so what is sent is checked and made valid after it.
            self.check_allowed(&request.model)?;
            let messages = image_limit::keep_newest_images(conversation::normalize_request(request.messages));
            let request = ModelRequest { messages, ..request };
            let fallbacks = fallbacks.get_or_insert_with(|| self.allowed_fallbacks(&request.model).into_iter());
            sending(&request);
            let attempt = self.send_request(&request).await?;
            let call = PendingModelCall::new(run, request);
            let error = match attempt {
                Ok(stream) => return Ok(call.into_results(stream)),
                Err(error) => error,
            };
            call.finish(Err(&error)).await?;
            // That nobody provides a model to fall back on is no reason why the first one failed.
            let is_provided = run.services.model_provider(call.request.model.provider()).is_some();
            let told = cause.take().filter(|_| !is_provided).unwrap_or_else(|| error.clone());
            let Some(next) = fallbacks.next().filter(|_| can_fall_back(error.kind)) else {
                return Err(model_api_error(&told));
            };
            tracing::warn!("{error}; trying {next}");
            asked = Arc::new(ModelRequest { model: next, ..ModelRequest::clone(&asked) });
            cause = Some(told);
        }
    }

    pub(super) fn default_model(&self) -> ModelId {
        self.0.services.options.model.clone()
    }

    /// Refuses a model that the run may not use.
    fn check_allowed(&self, model: &ModelId) -> Result<(), ApiError> {
        if self.0.grant().may.models.allows(self.1, &model.to_string()) {
            Ok(())
        } else {
            Err(unauthorized_error(&format!("model {model}")))
        }
    }

    /// The models to try when this one fails: those the run may use.
    fn allowed_fallbacks(&self, model: &ModelId) -> Vec<ModelId> {
        let others = self.0.services.options.fallback_models.iter().filter(|other| *other != model);
        others.filter(|other| self.check_allowed(other).is_ok()).cloned().collect()
    }

    /// Sends a request, which is on record before. That its model failed is no failure of the host.
    async fn send_request(&self, request: &ModelRequest) -> Result<Result<ModelStream, ModelError>, ApiError> {
        let Some(provider) = self.0.services.model_provider(request.model.provider()).cloned() else {
            return Ok(Err(self.unknown_provider_error(request.model.provider())));
        };
        let body = provider.request_body(request);
        let alike = || RequestBody { rest: JsonObject::new(), ..wire::openai_body(request) };
        let recorded = body.as_ref().map_or_else(|| Cow::Owned(alike()), Cow::Borrowed);
        // It is written out while the record of it is on its way to the log.
        let text = async { Ok(body.as_ref().map(RequestBody::to_text)) };
        let ((), text) = tokio::try_join!(biased; record_call(&self.0, &recorded, &request.model), text)?;
        let waits = |error: &ModelError, wait: Duration| {
            let (reason, seconds) = (error.message.clone(), wait.as_secs_f64());
            self.0.try_emit(StreamEvent::Waiting { reason, seconds });
        };
        Ok(provider.send_recorded(request, text, &waits).await)
    }

    fn unknown_provider_error(&self, name: &str) -> ModelError {
        let known: Vec<&str> = self.0.services.model_providers().collect();
        let message = format!("there is no model provider {name:?}; known: {}", known.join(", "));
        ModelError::new(ModelErrorKind::UnknownModel, message)
    }

    async fn run_before_hooks(&self, request: Arc<ModelRequest>) -> Result<LlmDecision, ApiError> {
        let args = BeforeLlmCallArgs {
            request: LlmRequest(request),
            session_id: self.0.context.conversation.session_id.clone(),
            state: self.0.state.clone(),
        };
        self.0.services.hooks.before_llm_call(args).await.map_err(|failure| hook_api_error(&failure))
    }
}

/// What is sent is on record before it is sent, and on disk with what comes of it: what a model was asked is lost with a
/// power cut, as its answer is, and asked anew.
async fn record_call(run: &Run, body: &RequestBody, model: &ModelId) -> Result<(), ApiError> {
    let number = {
        let mut progress = run.progress();
        progress.model_calls += 1;
        progress.model_calls
    };
    let (contents, entry) = model_call_log::record_model_call(body, model, number, &run.services.call_content_cache);
    run.journal.extend(contents);
    run.append(entry);
    run.journal.flush_ordered().await.map_err(|error| store_api_error(&error))
}

/// An answer that a plugin gave in place of the provider.
fn output_stream(output: ModelOutput) -> ModelStream {
    let ModelOutput { text, tool_calls, usage, provider_meta } = output;
    let text = (!text.is_empty()).then_some(ModelEvent::Text(text));
    let calls = tool_calls.into_iter().map(ModelEvent::ToolCall);
    let meta = (!provider_meta.is_empty()).then_some(ModelEvent::ProviderMeta(provider_meta));
    let end = meta.into_iter().chain(usage.map(ModelEvent::Usage)).chain([ModelEvent::Stop]);
    stream::iter(text.into_iter().chain(calls).chain(end).map(Ok)).boxed()
}

/// A call that was sent, or that a plugin finished.
struct PendingModelCall {
    run: Arc<Run>,
    request: Arc<ModelRequest>,
    /// What has come so far.
    output: ModelOutput,
    /// Whether the limit of tokens cut it short.
    truncated: bool,
    /// How long it is so far.
    bytes: usize,
}

impl PendingModelCall {
    fn new(run: &Arc<Run>, request: ModelRequest) -> Self {
        let (run, request) = (Arc::clone(run), Arc::new(request));
        Self { run, request, output: ModelOutput::default(), truncated: false, bytes: 0 }
    }

    /// Passes the provider's events on, and sees to it that the call ends exactly once.
    fn into_results(mut self, mut events: ModelStream) -> ModelResultStream {
        let results = async_stream::stream! {
            while let Some(event) = events.next().await {
                match event {
                    Ok(ModelEvent::Stop) => {
                        match self.finish(Ok(())).await {
                            Ok(()) => yield Ok(ModelEvent::Stop),
                            Err(error) => yield Err(error),
                        }
                        return;
                    }
                    Ok(event) => {
                        self.bytes += event_len(&event);
                        if self.bytes > MAX_MODEL_REPLY_BYTES {
                            let message = format!("the answer has more than the {MAX_MODEL_REPLY_BYTES} bytes allowed");
                            let endless = ModelError::new(ModelErrorKind::Broken, message);
                            yield Err(self.finish(Err(&endless)).await.err().unwrap_or_else(|| model_api_error(&endless)));
                            return;
                        }
                        self.collect_event(&event).await;
                        for piece in split_event(event) {
                            yield Ok(piece);
                        }
                    }
                    Err(error) => {
                        yield Err(self.finish(Err(&error)).await.err().unwrap_or_else(|| model_api_error(&error)));
                        return;
                    }
                }
            }
            let cut = ModelError::new(ModelErrorKind::Broken, "the model's stream ended before it was complete");
            yield Err(self.finish(Err(&cut)).await.err().unwrap_or_else(|| model_api_error(&cut)));
        };
        results.boxed()
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
                tracing::warn!("the answer of {} reached its limit of tokens and is not whole", self.request.model);
            }
            ModelEvent::Reasoning(_) | ModelEvent::Stop => {}
        }
    }

    /// Puts the end of the call on the tape, with what it used as far as the provider said.
    fn record_end(&self, end: Result<(), &ModelError>) {
        let usage = self.output.usage.clone();
        if let Some(usage) = &usage {
            self.run.add_usage(usage);
        }
        let status = if end.is_ok() { ModelCallStatus::Ok } else { ModelCallStatus::Error };
        let (model, truncated) = (self.request.model.clone(), self.truncated);
        let end = ModelCallEnd { status, usage, model, truncated };
        self.run.append(TapeEvent::ModelCallEnded(end).into());
    }

    /// The one end of the call: on the tape, and shown to the hooks.
    async fn finish(&self, end: Result<(), &ModelError>) -> Result<(), ApiError> {
        self.record_end(end);
        let outcome = end.map(|()| self.output.clone()).map_err(|error| error.message.clone());
        let args = AfterLlmCallArgs {
            request: LlmRequest(Arc::clone(&self.request)),
            outcome: LlmOutcome(Arc::new(outcome)),
            session_id: self.run.context.conversation.session_id.clone(),
            state: self.run.state.clone(),
        };
        self.run.services.hooks.after_llm_call(&args).await.map_err(|failure| hook_api_error(&failure))
    }
}

/// An event in pieces as a runner may pass them on: a server that does not stream gives its whole answer at once.
fn split_event(event: ModelEvent) -> Vec<ModelEvent> {
    match event {
        ModelEvent::Text(text) => split_text(text).into_iter().map(ModelEvent::Text).collect(),
        ModelEvent::Reasoning(text) => split_text(text).into_iter().map(ModelEvent::Reasoning).collect(),
        event => vec![event],
    }
}

fn split_text(mut text: String) -> Vec<String> {
    let mut pieces = Vec::new();
    while text.len() > MAX_REPLY_CHUNK_BYTES {
        let rest = text.split_off(text.floor_char_boundary(MAX_REPLY_CHUNK_BYTES));
        pieces.push(std::mem::replace(&mut text, rest));
    }
    pieces.push(text);
    pieces
}

/// How much of an answer an event is.
fn event_len(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(delta) | ModelEvent::Reasoning(delta) => delta.len(),
        ModelEvent::ToolCall(call) => call.function.name.len() + call.function.arguments.len(),
        ModelEvent::ProviderMeta(_) | ModelEvent::Usage(_) | ModelEvent::Truncated | ModelEvent::Stop => 0,
    }
}

/// Whether another model may do what this one could not: it is the provider that failed, and not the request.
fn can_fall_back(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Unreachable
        | ModelErrorKind::Unauthorized
        | ModelErrorKind::UnknownModel
        | ModelErrorKind::RateLimited
        | ModelErrorKind::Broken => true,
        ModelErrorKind::ContextOverflow | ModelErrorKind::Rejected => false,
    }
}

fn model_api_error(error: &ModelError) -> ApiError {
    let (code, retryable) = match error.kind {
        ModelErrorKind::UnknownModel => (ApiErrorCode::NotFound, false),
        ModelErrorKind::RateLimited => (ApiErrorCode::RateLimited, true),
        ModelErrorKind::ContextOverflow => (ApiErrorCode::PayloadTooLarge, false),
        ModelErrorKind::Unreachable | ModelErrorKind::Broken => (ApiErrorCode::RuntimeError, true),
        ModelErrorKind::Unauthorized | ModelErrorKind::Rejected => (ApiErrorCode::RuntimeError, false),
    };
    ApiError { code, message: error.message.clone(), retryable, cause: Some(error.kind.code().into()) }
}
