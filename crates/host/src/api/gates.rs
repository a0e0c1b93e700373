//! What each method is called, what it needs, and how large what it was given is.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{
    ApiMethod as M, Artifact, ArtifactPart, ArtifactsApi, ChildCall, ChildEnd, CommandCall, ModelCall, ModelResults,
    ModelsApi, NewArtifact, PromptApi, Ranked, RerankCall, RunsApi, SessionApi, SteeringApi, TapeApi, TapeInfo,
    TokenCount, ToolsApi,
};
use capstan_protocol::{
    ApiError, ArtifactId, ArtifactUse, ChatMessage, Content, Map, ModelId, ModelOutput, ModelUse, TapeAccess, ToolCall,
    ToolOutput, ToolSpec, ToolUse,
};
use capstan_tape::Entry;
use serde_json::Value;

use super::guarded::{Ask, Guarded};
use super::needs::Needs;
use super::size::{of_calls, of_content, of_json, of_model_call, of_text, of_tools};
use super::spending::Spending;
use super::watched::Watched;

/// Models under the budget of a run, which are asked in two ways: under each its own operation is needed.
pub(super) struct TwoWays {
    pub(super) streaming: Spending<Watched>,
    pub(super) invoking: Spending<Watched>,
}

impl Guarded<TwoWays> {
    fn model(&self, what: ModelUse, model: Option<&ModelId>) -> Needs {
        let name = model.map_or_else(|| self.default_model().to_string(), ToString::to_string);
        Needs::Model(what, name)
    }

    /// How much a call brings. What the host has given out itself is not weighed again with every step.
    fn weight(&self, call: &ModelCall) -> u64 {
        let are_own = Arc::ptr_eq(&call.tools, self.run.services.tool_specs());
        of_model_call(call) + if are_own { 0 } else { of_tools(&call.tools) }
    }
}

#[async_trait]
impl ModelsApi for Guarded<TwoWays> {
    async fn stream(&self, call: ModelCall) -> Result<ModelResults, ApiError> {
        let needs = self.model(ModelUse::Stream, call.model.as_ref());
        let ask = Ask::new(M::ModelsStream, needs).carrying(self.weight(&call));
        self.pass_stream(ask, self.group.streaming.stream(call)).await
    }

    async fn invoke(&self, call: ModelCall) -> Result<ModelOutput, ApiError> {
        let needs = self.model(ModelUse::Invoke, call.model.as_ref());
        let ask = Ask::new(M::ModelsInvoke, needs).carrying(self.weight(&call));
        self.pass(ask, self.group.invoking.invoke(call)).await
    }

    async fn count_tokens(&self, call: ModelCall) -> Result<TokenCount, ApiError> {
        let needs = self.model(ModelUse::CountTokens, call.model.as_ref());
        let ask = Ask::new(M::ModelsCountTokens, needs).carrying(self.weight(&call));
        self.pass(ask, self.group.invoking.count_tokens(call)).await
    }

    async fn rerank(&self, call: RerankCall) -> Result<Vec<Ranked>, ApiError> {
        let needs = self.model(ModelUse::Rerank, call.model.as_ref());
        let bytes = of_text(&call.query) + call.documents.iter().map(|text| of_text(text)).sum::<u64>();
        self.pass(Ask::new(M::ModelsRerank, needs).carrying(bytes), self.group.invoking.rerank(call)).await
    }

    fn default_model(&self) -> ModelId {
        self.group.streaming.default_model()
    }
}

impl<G> Guarded<G> {
    /// What a tool is called by itself: a model writes the name it was given.
    fn tool(&self, what: ToolUse, name: &str) -> Needs {
        let own = self.run.services.tool(name).map(|tool| tool.spec().name.to_string());
        Needs::Tool(what, own.unwrap_or_else(|| name.to_owned()))
    }
}

#[async_trait]
impl<G: ToolsApi> ToolsApi for Guarded<G> {
    async fn list(&self) -> Result<Arc<[ToolSpec]>, ApiError> {
        self.pass(Ask::new(M::ToolsList, Needs::Nothing), self.group.list()).await
    }

    async fn detail(&self, name: &str) -> Result<ToolSpec, ApiError> {
        // Nobody needs a grant to hear that there is no such tool.
        let is_there = self.run.services.tool(name).is_some();
        let needs = if is_there { self.tool(ToolUse::Detail, name) } else { Needs::Nothing };
        let ask = Ask::new(M::ToolsDetail, needs).carrying(of_text(name));
        self.pass(ask, self.group.detail(name)).await
    }

    async fn call(&self, calls: Vec<ToolCall>) -> Result<Vec<ToolOutput>, ApiError> {
        let ask = Ask::new(M::ToolsCall, Needs::AnyTool(ToolUse::Call)).carrying(of_calls(&calls));
        self.pass(ask, self.group.call(calls)).await
    }

    async fn command(&self, call: CommandCall) -> Result<ToolOutput, ApiError> {
        let bytes = of_text(&call.raw) + of_json(&call.arguments);
        let ask = Ask::new(M::ToolsCommand, self.tool(ToolUse::Call, &call.name)).carrying(bytes);
        self.pass(ask, self.group.command(call)).await
    }

    async fn refuse_command(&self, raw: &str, why: &str) -> Result<(), ApiError> {
        let bytes = of_text(raw) + of_text(why);
        let ask = Ask::new(M::ToolsRefuseCommand, Needs::Tape(TapeAccess::Write)).carrying(bytes);
        self.pass(ask, self.group.refuse_command(raw, why)).await
    }
}

const READ: Needs = Needs::Tape(TapeAccess::Read);
const WRITE: Needs = Needs::Tape(TapeAccess::Write);

#[async_trait]
impl<G: TapeApi> TapeApi for Guarded<G> {
    async fn view(&self) -> Result<Vec<ChatMessage>, ApiError> {
        self.pass(Ask::new(M::TapeView, READ), self.group.view()).await
    }

    async fn handoff(&self, name: &str, state: Map) -> Result<(), ApiError> {
        let ask = Ask::new(M::TapeHandoff, WRITE).carrying(of_text(name) + of_json(&state));
        self.pass(ask, self.group.handoff(name, state)).await
    }

    async fn note(&self, name: &str, data: Value) -> Result<(), ApiError> {
        let ask = Ask::new(M::TapeNote, WRITE).carrying(of_text(name) + of_json(&data));
        self.pass(ask, self.group.note(name, data)).await
    }

    async fn say(&self, content: Content) -> Result<(), ApiError> {
        let ask = Ask::new(M::TapeSay, WRITE).carrying(of_content(&content));
        self.pass(ask, self.group.say(content)).await
    }

    async fn reset(&self, archive: bool) -> Result<(), ApiError> {
        self.pass(Ask::new(M::TapeReset, WRITE), self.group.reset(archive)).await
    }

    async fn info(&self) -> Result<TapeInfo, ApiError> {
        self.pass(Ask::new(M::TapeInfo, READ), self.group.info()).await
    }

    async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, ApiError> {
        self.pass(Ask::new(M::TapeAnchors, READ), self.group.anchors(limit)).await
    }

    async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let ask = Ask::new(M::TapeSearch, READ).carrying(of_text(text));
        self.pass(ask, self.group.search(text, limit)).await
    }
}

#[async_trait]
impl<G: PromptApi> PromptApi for Guarded<G> {
    async fn system(&self) -> Result<String, ApiError> {
        self.pass(Ask::new(M::PromptSystem, Needs::Prompt), self.group.system()).await
    }

    async fn continuation(&self, step: u32) -> Result<Option<Content>, ApiError> {
        self.pass(Ask::new(M::PromptContinuation, Needs::Prompt), self.group.continuation(step)).await
    }
}

#[async_trait]
impl<G: SteeringApi> SteeringApi for Guarded<G> {
    async fn take(&self) -> Result<Vec<Content>, ApiError> {
        self.pass(Ask::new(M::SteeringTake, Needs::Steering), self.group.take()).await
    }
}

#[async_trait]
impl<G: SessionApi> SessionApi for Guarded<G> {
    async fn model(&self) -> Result<Option<ModelId>, ApiError> {
        self.pass(Ask::new(M::SessionModel, Needs::AnyModel(ModelUse::Stream)), self.group.model()).await
    }

    async fn choose_model(&self, model: Option<ModelId>) -> Result<(), ApiError> {
        let needs = match &model {
            Some(model) => Needs::Model(ModelUse::Stream, model.to_string()),
            None => Needs::AnyModel(ModelUse::Stream),
        };
        let bytes = model.as_ref().map_or(0, |model| of_text(&model.to_string()));
        self.pass(Ask::new(M::SessionChooseModel, needs).carrying(bytes), self.group.choose_model(model)).await
    }
}

#[async_trait]
impl<G: ArtifactsApi> ArtifactsApi for Guarded<G> {
    async fn describe(&self, id: &ArtifactId) -> Result<Artifact, ApiError> {
        let ask = Ask::new(M::ArtifactsDescribe, Needs::Artifacts(ArtifactUse::Metadata));
        self.pass(ask.carrying(of_text(id.as_str())), self.group.describe(id)).await
    }

    async fn read(&self, id: &ArtifactId, offset: u64, limit: u64) -> Result<ArtifactPart, ApiError> {
        let ask = Ask::new(M::ArtifactsRead, Needs::Artifacts(ArtifactUse::Read));
        self.pass(ask.carrying(of_text(id.as_str())), self.group.read(id, offset, limit)).await
    }

    async fn create(&self, artifact: NewArtifact) -> Result<Artifact, ApiError> {
        let bytes = of_text(&artifact.name) + of_text(&artifact.media_type) + artifact.content.len() as u64;
        let ask = Ask::new(M::ArtifactsCreate, Needs::Artifacts(ArtifactUse::Create)).carrying(bytes);
        self.pass(ask, self.group.create(artifact)).await
    }
}

#[async_trait]
impl<G: RunsApi> RunsApi for Guarded<G> {
    async fn child(&self, call: ChildCall) -> Result<ChildEnd, ApiError> {
        let ask = Ask::new(M::RunsChild, Needs::Children).carrying(of_content(&call.prompt));
        self.pass(ask, self.group.child(call)).await
    }
}
