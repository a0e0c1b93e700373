//! Methods of `models.*`.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use capstan_hooks::LlmDecision;
use capstan_hooks::args::{BeforeLlmCallArgs, LlmRequest};
use capstan_hooks::contracts::methods::{ModelsCountTokens, ModelsInvoke, ModelsRerank, ModelsStream};
use capstan_hooks::contracts::{
    CallObserver, KeyPosition, ModelCall, ModelError, ModelErrorKind, ModelProvider, ModelResultStream, ModelStream,
    RequestBody, RerankCall, RerankRequest, RerankScore, TokenCount, collect_api_output,
};
use capstan_models::wire;
use capstan_protocol::{
    ApiError, ApiErrorCode, ChatMessage, JsonObject, ModelId, ModelOperation, ModelOptions, ModelOutput, ModelRequest,
    StreamEvent, Timestamp,
};
use capstan_tape::conversation;

use super::method_handler::MethodHandler;
use super::model_call_deadline::ModelCallDeadline;
use super::model_reply::{PendingModelCall, model_api_error, output_stream};
use super::required_permission::RequiredPermission;
use super::token_meter::{SentText, TokenMeter, budget_error};
use super::{hook_api_error, image_limit, store_api_error, unauthorized_error};
use crate::model_call_log;
use crate::payload_size::{PayloadSize, model_call_size, text_size, tool_specs_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::run::open_calls::OpenModelCall;

impl MethodHandler for ModelsStream {
    fn permission(run: &Run, call: &ModelCall) -> RequiredPermission {
        model_permission(run, ModelOperation::Stream, call.model.as_ref())
    }

    fn payload(run: &Run, call: &ModelCall) -> PayloadSize {
        model_call_payload(run, call)
    }

    async fn handle(run: &Arc<Run>, call: ModelCall, permit: CallPermit) -> Result<ModelResultStream, ApiError> {
        let deadline = ModelCallDeadline::of_call(run, &call);
        let sender = ModelSender { run, operation: ModelOperation::Stream };
        Ok(deadline.limit_stream(deadline.limit(sender.open_stream(call, permit)).await?))
    }
}

impl MethodHandler for ModelsInvoke {
    fn permission(run: &Run, call: &ModelCall) -> RequiredPermission {
        model_permission(run, ModelOperation::Invoke, call.model.as_ref())
    }

    fn payload(run: &Run, call: &ModelCall) -> PayloadSize {
        model_call_payload(run, call)
    }

    async fn handle(run: &Arc<Run>, call: ModelCall, permit: CallPermit) -> Result<ModelOutput, ApiError> {
        let deadline = ModelCallDeadline::of_call(run, &call);
        let sender = ModelSender { run, operation: ModelOperation::Invoke };
        let results = deadline.limit(sender.open_stream(call, permit)).await?;
        deadline.limit(collect_api_output(results)).await
    }
}

impl MethodHandler for ModelsCountTokens {
    fn permission(run: &Run, call: &ModelCall) -> RequiredPermission {
        model_permission(run, ModelOperation::CountTokens, call.model.as_ref())
    }

    fn payload(run: &Run, call: &ModelCall) -> PayloadSize {
        model_call_payload(run, call)
    }

    async fn handle(_: &Arc<Run>, call: ModelCall, _: CallPermit) -> Result<TokenCount, ApiError> {
        Ok(TokenCount::estimate(&call))
    }
}

impl MethodHandler for ModelsRerank {
    fn permission(run: &Run, call: &RerankCall) -> RequiredPermission {
        model_permission(run, ModelOperation::Rerank, call.model.as_ref())
    }

    fn payload(_: &Run, call: &RerankCall) -> PayloadSize {
        PayloadSize::Content(text_size(&call.query) + call.documents.iter().map(|text| text_size(text)).sum::<u64>())
    }

    async fn handle(run: &Arc<Run>, call: RerankCall, _: CallPermit) -> Result<Vec<RerankScore>, ApiError> {
        let sender = ModelSender { run, operation: ModelOperation::Rerank };
        sender.rank_texts(call).await
    }
}

fn model_permission(run: &Run, operation: ModelOperation, model: Option<&ModelId>) -> RequiredPermission {
    let model = model.unwrap_or(&run.environment.options.model);
    RequiredPermission::Model(operation, model.to_string())
}

/// Size of a model request. The host's own list of tools is not measured again with every step.
fn model_call_payload(run: &Run, call: &ModelCall) -> PayloadSize {
    let is_host_list = Arc::ptr_eq(&call.tools, run.environment.tools.model_specs());
    PayloadSize::Content(model_call_size(call) + if is_host_list { 0 } else { tool_specs_size(&call.tools) })
}

/// Sends the model requests of a run, under the operation that its grant must cover.
struct ModelSender<'a> {
    run: &'a Arc<Run>,
    operation: ModelOperation,
}

impl ModelSender<'_> {
    /// Calls a model, within the run's budget. The call is in flight until its stream ends or is dropped.
    async fn open_stream(&self, call: ModelCall, permit: CallPermit) -> Result<ModelResultStream, ApiError> {
        if let Some(problem) = call.options.error() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, problem));
        }
        let budget = &self.run.budget;
        budget.begin_step().map_err(budget_error)?;
        let sent_text = SentText::of_metered_call(budget, &call);
        let open_call = OpenModelCall::begin(self.run, &call);
        match self.send_with_fallbacks(call, open_call.as_ref()).await {
            Ok((pending, events)) => {
                let meter = sent_text.map(|text| TokenMeter::start(budget, text));
                Ok(pending.into_results(events, meter, open_call, permit))
            }
            Err(error) => {
                if let Some(open_call) = open_call {
                    open_call.end();
                }
                Err(error)
            }
        }
    }

    /// Ranks texts, within the run's budget. The hooks see the query and the texts as the messages of a model call.
    async fn rank_texts(&self, call: RerankCall) -> Result<Vec<RerankScore>, ApiError> {
        let (run, budget) = (self.run, &self.run.budget);
        let model = call.model.unwrap_or_else(|| run.environment.options.model.clone());
        self.reranking_provider(&model)?;
        if call.documents.is_empty() {
            return Ok(Vec::new());
        }
        let texts = std::iter::once(call.query).chain(call.documents);
        let messages = texts.map(ChatMessage::user).collect();
        let call = ModelCall { model: Some(model), messages, ..ModelCall::default() };
        budget.begin_step().map_err(budget_error)?;
        let sent_text = SentText::of_metered_call(budget, &call);
        let open_call = OpenModelCall::begin(run, &call);
        let ranked = self.send_rerank(call, open_call.as_ref()).await;
        if let Some(open_call) = open_call {
            open_call.end();
        }
        if ranked.is_ok() {
            drop(sent_text.map(|text| TokenMeter::start(budget, text)));
        }
        ranked
    }

    /// Sends the texts of a call to a model that ranks them.
    async fn send_rerank(
        &self,
        call: ModelCall,
        open_call: Option<&OpenModelCall>,
    ) -> Result<Vec<RerankScore>, ApiError> {
        let (run, count) = (self.run, call.messages.len());
        run.ingest_message();
        let request = Arc::new(ModelRequest {
            model: call.model.unwrap_or_else(|| run.environment.options.model.clone()),
            system: String::new(),
            messages: call.messages,
            tools: Arc::default(),
            options: ModelOptions::default(),
        });
        let LlmDecision::Send(request) = self.run_before_hooks(request).await? else {
            let message = "a plugin answered the call in place of the model, and has no scores";
            return Err(ApiError::new(ApiErrorCode::RuntimeError, message));
        };
        let request = ModelRequest::clone(&request);
        let mut texts = request.messages.iter().map(|message| message.content.text());
        let (Some(query), documents) = (texts.next(), texts.collect::<Vec<_>>()) else {
            return Err(ApiError::new(ApiErrorCode::RuntimeError, "a plugin removed the query"));
        };
        if documents.len() + 1 != count {
            let message = "a plugin changed the number of texts, so that their positions are not known";
            return Err(ApiError::new(ApiErrorCode::RuntimeError, message));
        }
        let provider = self.reranking_provider(&request.model)?;
        provider.check_keys(&request.model, true).map_err(|error| model_api_error(&error))?;
        if let Some(open_call) = open_call {
            open_call.update(&request);
        }
        let rerank = RerankRequest { model: request.model.clone(), query, documents };
        record_call(run, &rerank.body(), &rerank.model).await?;
        let observer = RunCallObserver { run, key: AtomicU32::new(0), can_wait_for_keys: true };
        let ranked = provider.rerank(&rerank, &observer).await;
        let ranked = ranked.and_then(|scores| check_scores(scores, rerank.documents.len()));
        let pending = PendingModelCall::new(run, request).with_key(observer.key());
        match ranked {
            Ok(scores) => pending.finish(Ok(())).await.map(|()| scores),
            Err(error) => {
                pending.finish(Err(&error)).await?;
                Err(model_api_error(&error))
            }
        }
    }

    /// Provider of a model that the run may use to rank texts.
    fn reranking_provider(&self, model: &ModelId) -> Result<Arc<dyn ModelProvider>, ApiError> {
        self.check_allowed(model)?;
        let provider = self.run.environment.model_provider(model.provider());
        provider.filter(|provider| provider.can_rerank()).cloned().ok_or_else(|| {
            let message = format!("the provider of model {model} does not rank texts");
            ApiError::new(ApiErrorCode::NotFound, message)
        })
    }

    /// Sends a request. If a model fails, the next fallback model is tried.
    async fn send_with_fallbacks(
        &self,
        call: ModelCall,
        open_call: Option<&OpenModelCall>,
    ) -> Result<(PendingModelCall, ModelStream), ApiError> {
        let (run, options) = (self.run, &self.run.environment.options);
        let request = Arc::new(ModelRequest {
            model: call.model.unwrap_or_else(|| options.model.clone()),
            system: call.system,
            messages: call.messages,
            tools: call.tools,
            options: options.model_options.for_call(&call.options),
        });
        let requested_fallbacks = call.fallbacks;
        self.check_allowed(&request.model)?;
        run.ingest_message();
        let mut current = request;
        let mut fallbacks: Option<std::vec::IntoIter<ModelId>> = None;
        let mut cause: Option<ModelError> = None;
        let mut cooling = CoolingModels::default();
        loop {
            // The hooks run for each model: they may allow content for one model and not for another.
            let request = match self.run_before_hooks(Arc::clone(&current)).await? {
                LlmDecision::Send(request) => ModelRequest::clone(&request),
                LlmDecision::Finish(output) => {
                    return Ok((PendingModelCall::new(run, ModelRequest::clone(&current)), output_stream(*output)));
                }
            };
            // The hooks may have changed anything, so the request is checked and normalized after them.
            self.check_allowed(&request.model)?;
            let messages = image_limit::keep_newest_images(conversation::normalize_request(request.messages));
            let request = ModelRequest { messages, ..request };
            let fallbacks = fallbacks.get_or_insert_with(|| {
                self.allowed_fallbacks(&request.model, requested_fallbacks.as_deref()).into_iter()
            });
            if let Some(open_call) = open_call {
                open_call.update(&request);
            }
            let observer = RunCallObserver {
                run,
                key: AtomicU32::new(0),
                can_wait_for_keys: !self.is_any_free(fallbacks.as_slice()),
            };
            let attempt = self.send_request(&request, &observer).await?;
            let call = PendingModelCall::new(run, request).with_key(observer.key());
            let error = match attempt {
                Ok(events) => return Ok((call, events)),
                Err(error) => error,
            };
            call.finish(Err(&error)).await?;
            cooling.add(&call.request.model, error.retry_at);
            // A fallback model without a provider is not the reason why the first one failed.
            let is_provided = run.environment.model_provider(call.request.model.provider()).is_some();
            let reported = cause.take().filter(|_| !is_provided).unwrap_or_else(|| error.clone());
            let Some(next) = fallbacks.next().filter(|_| can_fall_back(error.kind)) else {
                return Err(model_api_error(&cooling.exhausted_error().unwrap_or(reported)));
            };
            tracing::warn!("{error}; trying {next}");
            current = Arc::new(ModelRequest { model: next, ..ModelRequest::clone(&current) });
            cause = Some(reported);
        }
    }

    /// Rejects a model that the run may not use.
    fn check_allowed(&self, model: &ModelId) -> Result<(), ApiError> {
        if self.run.grant().may.models.allows(self.operation, &model.to_string()) {
            Ok(())
        } else {
            Err(unauthorized_error(&format!("model {model}")))
        }
    }

    /// Fallback models of a model that the run may use.
    fn allowed_fallbacks(&self, model: &ModelId, requested: Option<&[ModelId]>) -> Vec<ModelId> {
        let fallbacks = requested.unwrap_or(&self.run.environment.options.fallback_models);
        let others = fallbacks.iter().filter(|other| *other != model);
        others.filter(|other| self.check_allowed(other).is_ok()).cloned().collect()
    }

    /// Returns true if one of these models has a provider with a key that is not cooling down.
    fn is_any_free(&self, models: &[ModelId]) -> bool {
        let is_free = |model: &ModelId| {
            let provider = self.run.environment.model_provider(model.provider());
            provider.is_some_and(|provider| provider.check_keys(model, false).is_ok())
        };
        models.iter().any(is_free)
    }

    /// Records a request and sends it. The inner result is the model's; the outer one is the host's. A request that no
    /// key can be used for is neither recorded nor sent.
    async fn send_request(
        &self,
        request: &ModelRequest,
        observer: &RunCallObserver<'_>,
    ) -> Result<Result<ModelStream, ModelError>, ApiError> {
        let Some(provider) = self.run.environment.model_provider(request.model.provider()).cloned() else {
            return Ok(Err(self.unknown_provider_error(request.model.provider())));
        };
        if let Err(error) = provider.check_keys(&request.model, observer.can_wait_for_keys) {
            return Ok(Err(error));
        }
        let body = provider.request_body(request);
        let substitute_body = || RequestBody { rest: JsonObject::new(), ..wire::openai_body(request) };
        let recorded = body.as_ref().map_or_else(|| Cow::Owned(substitute_body()), Cow::Borrowed);
        // The body is serialized while its record is written to the log.
        let text = async { Ok(body.as_ref().map(RequestBody::to_text)) };
        let ((), text) = tokio::try_join!(biased; record_call(self.run, &recorded, &request.model), text)?;
        Ok(provider.send_recorded(request, text, observer).await)
    }

    fn unknown_provider_error(&self, name: &str) -> ModelError {
        let known: Vec<&str> = self.run.environment.model_providers().collect();
        let message = format!("there is no model provider {name:?}; known: {}", known.join(", "));
        ModelError::new(ModelErrorKind::UnknownModel, message)
    }

    async fn run_before_hooks(&self, request: Arc<ModelRequest>) -> Result<LlmDecision, ApiError> {
        let args = BeforeLlmCallArgs {
            request: LlmRequest(request),
            session_id: self.run.context.conversation.session_id.clone(),
            state: self.run.state.clone(),
        };
        self.run
            .environment
            .hooks
            .interceptors()
            .before_llm_call(args)
            .await
            .map_err(|failure| hook_api_error(&failure))
    }
}

/// Observer of a call for its run.
struct RunCallObserver<'a> {
    run: &'a Run,
    /// Number of the last key that was used; 0 if the provider reported none.
    key: AtomicU32,
    can_wait_for_keys: bool,
}

impl RunCallObserver<'_> {
    fn key(&self) -> Option<u32> {
        Some(self.key.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }
}

impl CallObserver for RunCallObserver<'_> {
    fn on_retry(&self, error: &ModelError, delay: Duration) {
        let (reason, seconds) = (error.message.clone(), delay.as_secs_f64());
        self.run.try_emit(StreamEvent::Waiting { reason, seconds, code: Some(error.kind.code().into()) });
    }

    fn on_key(&self, key: KeyPosition) {
        self.key.store(key.number, Ordering::Relaxed);
    }

    fn can_wait_for_keys(&self) -> bool {
        self.can_wait_for_keys
    }
}

/// Models of a chain that failed because their keys are cooling down.
#[derive(Default)]
struct CoolingModels {
    models: Vec<(ModelId, Timestamp)>,
    /// A model failed for another reason, so that a retry may succeed at any time.
    has_other_failure: bool,
}

impl CoolingModels {
    fn add(&mut self, model: &ModelId, retry_at: Option<Timestamp>) {
        match retry_at {
            Some(retry_at) => self.models.push((model.clone(), retry_at)),
            None => self.has_other_failure = true,
        }
    }

    /// Error of a chain of several models none of which can answer now. Shown in chats, so it has no address.
    fn exhausted_error(&self) -> Option<ModelError> {
        let earliest = self.models.iter().map(|(_, retry_at)| *retry_at).min()?;
        if self.has_other_failure || self.models.len() < 2 {
            return None;
        }
        let models: Vec<String> = self.models.iter().map(|(model, _)| model.to_string()).collect();
        let message = format!(
            "no model can answer: the keys of {} are cooling down; a retry can succeed from {} on",
            models.join(", "),
            earliest.to_utc_seconds()
        );
        Some(ModelError::new(ModelErrorKind::Exhausted, message).with_retry_at(earliest))
    }
}

/// Scores of the texts, best first. Fails if they do not name each of the texts at most once.
fn check_scores(mut scores: Vec<RerankScore>, count: usize) -> Result<Vec<RerankScore>, ModelError> {
    let mut named = vec![false; count];
    let is_valid = |score: &RerankScore| {
        let name = named.get_mut(score.index);
        score.score.is_finite() && name.is_some_and(|is_named| !std::mem::replace(is_named, true))
    };
    if !scores.iter().all(is_valid) {
        return Err(ModelError::new(ModelErrorKind::Broken, "the model ranked texts that it was not given"));
    }
    scores.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    Ok(scores)
}

/// Records a request before it is sent. It becomes durable together with the reply: a power cut loses both, and the
/// request is sent again.
async fn record_call(run: &Run, body: &RequestBody, model: &ModelId) -> Result<(), ApiError> {
    let number = {
        let mut progress = run.progress();
        progress.model_calls += 1;
        progress.model_calls
    };
    let environment = &run.environment;
    let secrets = &environment.options.secret_masker;
    let (facts, entry) =
        model_call_log::record_model_call(body, model, number, &environment.call_content_cache, secrets);
    run.journal.extend(facts);
    run.append(entry);
    run.journal.flush_ordered().await.map_err(|error| store_api_error(&error))
}

/// Returns true if another model may succeed: the provider failed, not the request.
fn can_fall_back(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Unreachable
        | ModelErrorKind::Unauthorized
        | ModelErrorKind::UnknownModel
        | ModelErrorKind::RateLimited
        | ModelErrorKind::Broken
        | ModelErrorKind::Exhausted => true,
        ModelErrorKind::ContextOverflow | ModelErrorKind::Rejected => false,
    }
}
