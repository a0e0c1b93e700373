//! Models, as a run may use them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::LlmDecision;
use capstan_hooks::args::{AfterLlmArgs, BeforeLlmArgs, LlmOutcome, LlmRequest};
use capstan_hooks::contracts::{
    ModelCall, ModelError, ModelErrorKind, ModelEvent, ModelProvider, ModelResults, ModelStream, ModelsApi,
};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId, ModelOutput, ModelRequest, StreamEvent};
use capstan_tape::{Draft, conversation};
use futures::{StreamExt as _, stream};
use serde_json::json;

use super::{hook_failed, store_failed, unauthorized};
use crate::calls;
use crate::run::Run;

pub(super) struct Models(pub(super) Arc<Run>);

#[async_trait]
impl ModelsApi for Models {
    async fn stream(&self, call: ModelCall) -> Result<ModelResults, ApiError> {
        let run = &self.0;
        let request = Arc::new(ModelRequest {
            model: call.model.unwrap_or_else(|| self.default_model()),
            system: call.system,
            messages: call.messages,
            tools: call.tools,
            options: run.services.settings.model_options.clone(),
        });
        self.check(&request.model)?;
        run.take_in();
        let request = match self.before(request).await? {
            LlmDecision::Send(request) => ModelRequest::clone(&request),
            LlmDecision::Finish(output) => return Ok(finished(*output)),
        };
        // An interception may have changed anything, so what is sent is checked and made valid after it.
        let provider = self.check(&request.model)?;
        let request = ModelRequest { messages: conversation::request(request.messages), ..request };
        record_call(run, &request).await?;
        let call = Call { run: Arc::clone(run), request: Arc::new(request), output: ModelOutput::default() };
        match provider.stream(&call.request).await {
            Ok(stream) => Ok(call.results(stream)),
            Err(error) => {
                call.ended(Err(&error)).await?;
                Err(api_error(&error))
            }
        }
    }

    fn default_model(&self) -> ModelId {
        self.0.services.settings.model.clone()
    }
}

impl Models {
    /// The provider of a model, if the run may use it.
    fn check(&self, model: &ModelId) -> Result<Arc<dyn ModelProvider>, ApiError> {
        if !self.0.grant().models.allows(&model.to_string()) {
            return Err(unauthorized(&format!("model {model}")));
        }
        self.0.services.model_provider(model.provider()).cloned().ok_or_else(|| {
            let message = format!("there is no model provider {:?}", model.provider());
            ApiError::new(ApiErrorCode::NotFound, message).caused_by(ModelErrorKind::UnknownModel.code())
        })
    }

    async fn before(&self, request: Arc<ModelRequest>) -> Result<LlmDecision, ApiError> {
        let args = BeforeLlmArgs {
            request: LlmRequest(request),
            session_id: self.0.context.conversation.session_id.clone(),
            state: self.0.state.clone(),
        };
        self.0.services.hooks.before_llm_call(args).await.map_err(|failure| hook_failed(&failure))
    }
}

/// What is sent is on record before it is sent.
async fn record_call(run: &Run, request: &ModelRequest) -> Result<(), ApiError> {
    let number = {
        let mut progress = run.progress();
        progress.calls += 1;
        progress.calls
    };
    let (contents, entry) = calls::record(request, number);
    run.journal.extend(contents);
    run.append(entry);
    run.flush().await.map_err(|error| store_failed(&error))
}

/// An answer that a plugin gave in place of the provider.
fn finished(output: ModelOutput) -> ModelResults {
    let text = (!output.text.is_empty()).then_some(ModelEvent::Text(output.text));
    let calls = output.tool_calls.into_iter().map(ModelEvent::ToolCall);
    stream::iter(text.into_iter().chain(calls).chain([ModelEvent::Stop]).map(Ok)).boxed()
}

/// A call that was sent.
struct Call {
    run: Arc<Run>,
    request: Arc<ModelRequest>,
    /// What has come so far.
    output: ModelOutput,
}

impl Call {
    /// Passes the provider's events on, and sees to it that the call ends exactly once.
    fn results(mut self, mut events: ModelStream) -> ModelResults {
        let results = async_stream::stream! {
            while let Some(event) = events.next().await {
                match event {
                    Ok(ModelEvent::Stop) => {
                        match self.ended(Ok(())).await {
                            Ok(()) => yield Ok(ModelEvent::Stop),
                            Err(error) => yield Err(error),
                        }
                        return;
                    }
                    Ok(event) => {
                        self.collect(&event).await;
                        yield Ok(event);
                    }
                    Err(error) => {
                        yield Err(self.ended(Err(&error)).await.err().unwrap_or_else(|| api_error(&error)));
                        return;
                    }
                }
            }
            let cut = ModelError::new(ModelErrorKind::Broken, "the model's stream ended before it was complete");
            yield Err(self.ended(Err(&cut)).await.err().unwrap_or_else(|| api_error(&cut)));
        };
        results.boxed()
    }

    async fn collect(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(delta) => self.output.text.push_str(delta),
            ModelEvent::ToolCall(call) => self.output.tool_calls.push(call.clone()),
            ModelEvent::ProviderMeta(meta) => self.output.provider_meta.extend(meta.clone()),
            ModelEvent::Usage(usage) => {
                self.output.usage = Some(usage.clone());
                self.run.emit(StreamEvent::Usage { usage: usage.clone() }).await;
            }
            ModelEvent::Reasoning(_) | ModelEvent::Stop => {}
        }
    }

    /// The one end of the call: on the tape with what it used as far as the provider said, and shown to the hooks.
    async fn ended(&self, end: Result<(), &ModelError>) -> Result<(), ApiError> {
        let usage = self.output.usage.as_ref();
        if let Some(usage) = usage {
            self.run.add_usage(usage);
        }
        let status = if end.is_ok() { "ok" } else { "error" };
        let data = json!({ "status": status, "usage": usage, "model": self.request.model });
        self.run.append(Draft::event("run", data));
        let outcome = end.map(|()| self.output.clone()).map_err(|error| error.message.clone());
        let args = AfterLlmArgs {
            request: LlmRequest(Arc::clone(&self.request)),
            outcome: LlmOutcome(Arc::new(outcome)),
            session_id: self.run.context.conversation.session_id.clone(),
            state: self.run.state.clone(),
        };
        self.run.services.hooks.after_llm_call(&args).await.map_err(|failure| hook_failed(&failure))
    }
}

fn api_error(error: &ModelError) -> ApiError {
    let (code, retryable) = match error.kind {
        ModelErrorKind::UnknownModel => (ApiErrorCode::NotFound, false),
        ModelErrorKind::RateLimited => (ApiErrorCode::RateLimited, true),
        ModelErrorKind::ContextOverflow => (ApiErrorCode::PayloadTooLarge, false),
        ModelErrorKind::Unreachable | ModelErrorKind::Broken => (ApiErrorCode::RuntimeError, true),
        ModelErrorKind::Unauthorized | ModelErrorKind::Rejected => (ApiErrorCode::RuntimeError, false),
    };
    ApiError { code, message: error.message.clone(), retryable, cause: Some(error.kind.code().to_owned()) }
}
