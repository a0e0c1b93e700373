//! What each method is called, what it needs, and how large what it was given is.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{
    ApiMethod as M, Artifact, ArtifactPart, ArtifactsApi, ChildRunCall, ChildRunOutcome, CommandCall, ModelCall,
    ModelResultStream, ModelsApi, NewArtifact, PromptApi, RerankCall, RerankScore, RunsApi, SessionApi, SteeringApi,
    TapeApi, TapeInfo, TokenCount, ToolsApi,
};
use capstan_protocol::{
    ApiError, ArtifactId, ArtifactOperation, ChatMessage, Content, JsonObject, ModelId, ModelOperation, ModelOutput,
    TapeAccess, ToolCall, ToolOperation, ToolOutput, ToolSpec,
};
use capstan_tape::Entry;
use serde_json::Value;

use super::guard::{CallRequest, GuardedApi};
use super::metered_models::MeteredModels;
use super::payload_size::{content_size, json_size, model_call_size, text_size, tool_calls_size, tool_specs_size};
use super::required_permission::RequiredPermission;
use super::tracked_models::TrackedModels;

/// Models under the budget of a run, which are asked in two ways: under each its own operation is needed.
pub(super) struct GuardedModels {
    pub(super) streaming: MeteredModels<TrackedModels>,
    pub(super) invoking: MeteredModels<TrackedModels>,
}

impl GuardedApi<GuardedModels> {
    fn model_permission(&self, what: ModelOperation, model: Option<&ModelId>) -> RequiredPermission {
        let name = model.map_or_else(|| self.default_model().to_string(), ToString::to_string);
        RequiredPermission::Model(what, name)
    }

    /// How much a call brings. What the host has given out itself is not weighed again with every step.
    fn model_call_bytes(&self, call: &ModelCall) -> u64 {
        let are_own = Arc::ptr_eq(&call.tools, self.run.services.tool_specs());
        model_call_size(call) + if are_own { 0 } else { tool_specs_size(&call.tools) }
    }
}

#[async_trait]
impl ModelsApi for GuardedApi<GuardedModels> {
    async fn stream(&self, call: ModelCall) -> Result<ModelResultStream, ApiError> {
        let needs = self.model_permission(ModelOperation::Stream, call.model.as_ref());
        let ask = CallRequest::new(M::ModelsStream, needs).with_payload(self.model_call_bytes(&call));
        self.stream_guarded(ask, self.inner.streaming.stream(call)).await
    }

    async fn invoke(&self, call: ModelCall) -> Result<ModelOutput, ApiError> {
        let needs = self.model_permission(ModelOperation::Invoke, call.model.as_ref());
        let ask = CallRequest::new(M::ModelsInvoke, needs).with_payload(self.model_call_bytes(&call));
        self.call_guarded(ask, self.inner.invoking.invoke(call)).await
    }

    async fn count_tokens(&self, call: ModelCall) -> Result<TokenCount, ApiError> {
        let needs = self.model_permission(ModelOperation::CountTokens, call.model.as_ref());
        let ask = CallRequest::new(M::ModelsCountTokens, needs).with_payload(self.model_call_bytes(&call));
        self.call_guarded(ask, self.inner.invoking.count_tokens(call)).await
    }

    async fn rerank(&self, call: RerankCall) -> Result<Vec<RerankScore>, ApiError> {
        let needs = self.model_permission(ModelOperation::Rerank, call.model.as_ref());
        let bytes = text_size(&call.query) + call.documents.iter().map(|text| text_size(text)).sum::<u64>();
        self.call_guarded(
            CallRequest::new(M::ModelsRerank, needs).with_payload(bytes),
            self.inner.invoking.rerank(call),
        )
        .await
    }

    fn default_model(&self) -> ModelId {
        self.inner.streaming.default_model()
    }
}

impl<G> GuardedApi<G> {
    /// What a tool is called by itself: a model writes the name it was given.
    fn tool_permission(&self, what: ToolOperation, name: &str) -> RequiredPermission {
        let own = self.run.services.tool(name).map(|tool| tool.spec().name.to_string());
        RequiredPermission::Tool(what, own.unwrap_or_else(|| name.to_owned()))
    }
}

#[async_trait]
impl<G: ToolsApi> ToolsApi for GuardedApi<G> {
    async fn list(&self) -> Result<Arc<[ToolSpec]>, ApiError> {
        self.call_guarded(CallRequest::new(M::ToolsList, RequiredPermission::Nothing), self.inner.list()).await
    }

    async fn detail(&self, name: &str) -> Result<ToolSpec, ApiError> {
        // Nobody needs a grant to hear that there is no such tool.
        let is_there = self.run.services.tool(name).is_some();
        let needs =
            if is_there { self.tool_permission(ToolOperation::Detail, name) } else { RequiredPermission::Nothing };
        let ask = CallRequest::new(M::ToolsDetail, needs).with_payload(text_size(name));
        self.call_guarded(ask, self.inner.detail(name)).await
    }

    async fn call(&self, calls: Vec<ToolCall>) -> Result<Vec<ToolOutput>, ApiError> {
        let ask = CallRequest::new(M::ToolsCall, RequiredPermission::AnyTool(ToolOperation::Call))
            .with_payload(tool_calls_size(&calls));
        self.call_guarded(ask, self.inner.call(calls)).await
    }

    async fn command(&self, call: CommandCall) -> Result<ToolOutput, ApiError> {
        let bytes = text_size(&call.raw) + json_size(&call.arguments);
        let ask = CallRequest::new(M::ToolsCommand, self.tool_permission(ToolOperation::Call, &call.name))
            .with_payload(bytes);
        self.call_guarded(ask, self.inner.command(call)).await
    }

    async fn refuse_command(&self, raw: &str, why: &str) -> Result<(), ApiError> {
        let bytes = text_size(raw) + text_size(why);
        let ask =
            CallRequest::new(M::ToolsRefuseCommand, RequiredPermission::Tape(TapeAccess::Write)).with_payload(bytes);
        self.call_guarded(ask, self.inner.refuse_command(raw, why)).await
    }
}

const TAPE_READ: RequiredPermission = RequiredPermission::Tape(TapeAccess::Read);
const TAPE_WRITE: RequiredPermission = RequiredPermission::Tape(TapeAccess::Write);

#[async_trait]
impl<G: TapeApi> TapeApi for GuardedApi<G> {
    async fn view(&self) -> Result<Vec<ChatMessage>, ApiError> {
        self.call_guarded(CallRequest::new(M::TapeView, TAPE_READ), self.inner.view()).await
    }

    async fn handoff(&self, name: &str, state: JsonObject) -> Result<(), ApiError> {
        let ask = CallRequest::new(M::TapeHandoff, TAPE_WRITE).with_payload(text_size(name) + json_size(&state));
        self.call_guarded(ask, self.inner.handoff(name, state)).await
    }

    async fn note(&self, name: &str, data: Value) -> Result<(), ApiError> {
        let ask = CallRequest::new(M::TapeNote, TAPE_WRITE).with_payload(text_size(name) + json_size(&data));
        self.call_guarded(ask, self.inner.note(name, data)).await
    }

    async fn say(&self, content: Content) -> Result<(), ApiError> {
        let ask = CallRequest::new(M::TapeSay, TAPE_WRITE).with_payload(content_size(&content));
        self.call_guarded(ask, self.inner.say(content)).await
    }

    async fn reset(&self, archive: bool) -> Result<(), ApiError> {
        self.call_guarded(CallRequest::new(M::TapeReset, TAPE_WRITE), self.inner.reset(archive)).await
    }

    async fn info(&self) -> Result<TapeInfo, ApiError> {
        self.call_guarded(CallRequest::new(M::TapeInfo, TAPE_READ), self.inner.info()).await
    }

    async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, ApiError> {
        self.call_guarded(CallRequest::new(M::TapeAnchors, TAPE_READ), self.inner.anchors(limit)).await
    }

    async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let ask = CallRequest::new(M::TapeSearch, TAPE_READ).with_payload(text_size(text));
        self.call_guarded(ask, self.inner.search(text, limit)).await
    }
}

#[async_trait]
impl<G: PromptApi> PromptApi for GuardedApi<G> {
    async fn system(&self) -> Result<String, ApiError> {
        self.call_guarded(CallRequest::new(M::PromptSystem, RequiredPermission::Prompt), self.inner.system()).await
    }

    async fn continuation(&self, step: u32) -> Result<Option<Content>, ApiError> {
        self.call_guarded(
            CallRequest::new(M::PromptContinuation, RequiredPermission::Prompt),
            self.inner.continuation(step),
        )
        .await
    }
}

#[async_trait]
impl<G: SteeringApi> SteeringApi for GuardedApi<G> {
    async fn take(&self) -> Result<Vec<Content>, ApiError> {
        self.call_guarded(CallRequest::new(M::SteeringTake, RequiredPermission::Steering), self.inner.take()).await
    }
}

#[async_trait]
impl<G: SessionApi> SessionApi for GuardedApi<G> {
    async fn model(&self) -> Result<Option<ModelId>, ApiError> {
        self.call_guarded(
            CallRequest::new(M::SessionModel, RequiredPermission::AnyModel(ModelOperation::Stream)),
            self.inner.model(),
        )
        .await
    }

    async fn choose_model(&self, model: Option<ModelId>) -> Result<(), ApiError> {
        let needs = match &model {
            Some(model) => RequiredPermission::Model(ModelOperation::Stream, model.to_string()),
            None => RequiredPermission::AnyModel(ModelOperation::Stream),
        };
        let bytes = model.as_ref().map_or(0, |model| text_size(&model.to_string()));
        self.call_guarded(
            CallRequest::new(M::SessionChooseModel, needs).with_payload(bytes),
            self.inner.choose_model(model),
        )
        .await
    }
}

#[async_trait]
impl<G: ArtifactsApi> ArtifactsApi for GuardedApi<G> {
    async fn describe(&self, id: &ArtifactId) -> Result<Artifact, ApiError> {
        let ask = CallRequest::new(M::ArtifactsDescribe, RequiredPermission::Artifacts(ArtifactOperation::Metadata));
        self.call_guarded(ask.with_payload(text_size(id.as_str())), self.inner.describe(id)).await
    }

    async fn read(&self, id: &ArtifactId, offset: u64, limit: u64) -> Result<ArtifactPart, ApiError> {
        let ask = CallRequest::new(M::ArtifactsRead, RequiredPermission::Artifacts(ArtifactOperation::Read));
        self.call_guarded(ask.with_payload(text_size(id.as_str())), self.inner.read(id, offset, limit)).await
    }

    async fn create(&self, artifact: NewArtifact) -> Result<Artifact, ApiError> {
        let bytes = text_size(&artifact.name) + text_size(&artifact.media_type) + artifact.content.len() as u64;
        let ask = CallRequest::new(M::ArtifactsCreate, RequiredPermission::Artifacts(ArtifactOperation::Create))
            .with_payload(bytes);
        self.call_guarded(ask, self.inner.create(artifact)).await
    }
}

#[async_trait]
impl<G: RunsApi> RunsApi for GuardedApi<G> {
    async fn child(&self, call: ChildRunCall) -> Result<ChildRunOutcome, ApiError> {
        let ask = CallRequest::new(M::RunsChild, RequiredPermission::Children).with_payload(content_size(&call.prompt));
        self.call_guarded(ask, self.inner.child(call)).await
    }
}
