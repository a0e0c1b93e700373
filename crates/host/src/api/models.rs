//! Models, as a run may use them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelCall, ModelError, ModelErrorKind, ModelEvent, ModelResults, ModelsApi};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId, ModelRequest, StreamEvent, Usage};
use capstan_tape::{Draft, conversation};
use futures::StreamExt as _;
use serde_json::json;

use super::{store_failed, unauthorized};
use crate::calls;
use crate::run::Run;

pub(super) struct Models(pub(super) Arc<Run>);

#[async_trait]
impl ModelsApi for Models {
    async fn stream(&self, call: ModelCall) -> Result<ModelResults, ApiError> {
        let run = Arc::clone(&self.0);
        let model = call.model.unwrap_or_else(|| self.default_model());
        if !run.grant().models.allows(&model.to_string()) {
            return Err(unauthorized(&format!("model {model}")));
        }
        let Some(provider) = run.services.model_provider(model.provider()).cloned() else {
            let message = format!("there is no model provider {:?}", model.provider());
            return Err(ApiError::new(ApiErrorCode::NotFound, message).caused_by(ModelErrorKind::UnknownModel.code()));
        };
        run.take_in();
        let request = ModelRequest {
            model,
            system: call.system,
            messages: conversation::request(call.messages),
            tools: call.tools,
            options: run.services.settings.model_options.clone(),
        };
        record_call(&run, &request).await?;
        match provider.stream(&request).await {
            Ok(stream) => Ok(journalled(run, request.model, stream)),
            Err(error) => {
                record_end(&run, &request.model, "error", None);
                Err(api_error(&error))
            }
        }
    }

    fn default_model(&self) -> ModelId {
        self.0.services.settings.model.clone()
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

/// How the call ended, with what it used as far as the provider said.
fn record_end(run: &Run, model: &ModelId, status: &str, usage: Option<&Usage>) {
    run.append(Draft::event("run", json!({ "status": status, "usage": usage, "model": model })));
}

fn journalled(run: Arc<Run>, model: ModelId, mut stream: capstan_hooks::contracts::ModelStream) -> ModelResults {
    let results = async_stream::stream! {
        let mut used: Option<Usage> = None;
        while let Some(event) = stream.next().await {
            match event {
                Ok(ModelEvent::Usage(usage)) => {
                    used = Some(usage.clone());
                    run.emit(StreamEvent::Usage { usage: usage.clone() }).await;
                    yield Ok(ModelEvent::Usage(usage));
                }
                Ok(ModelEvent::Stop) => {
                    if let Some(usage) = &used {
                        let mut progress = run.progress();
                        progress.usage = Some(progress.usage.take().unwrap_or_default().plus(usage));
                    }
                    record_end(&run, &model, "ok", used.as_ref());
                    yield Ok(ModelEvent::Stop);
                    return;
                }
                Ok(event) => yield Ok(event),
                Err(error) => {
                    record_end(&run, &model, "error", used.as_ref());
                    yield Err(api_error(&error));
                    return;
                }
            }
        }
        record_end(&run, &model, "error", used.as_ref());
        let cut = ModelError::new(ModelErrorKind::Broken, "the model's stream ended before it was complete");
        yield Err(api_error(&cut));
    };
    results.boxed()
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
