//! The one door through which a runner reaches the host. Every call is checked against the run's grant.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_protocol::{
    ApiError, ChatMessage, Content, EntryId, JsonObject, ModelId, ModelOutput, RunId, SessionId, TapeName, ToolCall,
    ToolOutput, ToolSpec,
};
use capstan_tape::Entry;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::model_operations::{collect_api_output, rerank_unsupported};
use super::{
    ArtifactsApi, EventsApi, HistoryApi, KnowledgeApi, ModelEvent, PlatformApi, RerankCall, RerankScore, RunsApi,
    StateApi, StorageApi, TokenCount,
};

/// The host, as one run may use it. Cheap to clone.
#[derive(Clone)]
pub struct RunApi {
    /// The run it belongs to.
    pub run_id: RunId,
    /// The session the run serves.
    pub session_id: SessionId,
    /// Models.
    pub models: Arc<dyn ModelsApi>,
    /// Tools.
    pub tools: Arc<dyn ToolsApi>,
    /// The session's tape.
    pub tape: Arc<dyn TapeApi>,
    /// The host's prompts.
    pub prompt: Arc<dyn PromptApi>,
    /// Messages that came meanwhile.
    pub steering: Arc<dyn SteeringApi>,
    /// What is kept for the session.
    pub session: Arc<dyn SessionApi>,
    /// Contents that are too large for the conversation.
    pub artifacts: Arc<dyn ArtifactsApi>,
    /// Child runs.
    pub runs: Arc<dyn RunsApi>,
    /// Values that the host keeps.
    pub state: Arc<dyn StateApi>,
    /// Contents that the host keeps.
    pub storage: Arc<dyn StorageApi>,
    /// What was said.
    pub history: Arc<dyn HistoryApi>,
    /// What came in, and what became of it.
    pub events: Arc<dyn EventsApi>,
    /// Knowledge bases.
    pub knowledge: Arc<dyn KnowledgeApi>,
    /// The platform the event came from.
    pub platform: Arc<dyn PlatformApi>,
    /// Fires when the run is cancelled or its time is up.
    pub cancel_token: CancellationToken,
}

/// What is asked of a model. The host adds what the runner leaves out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelCall {
    /// Which model; the host's own choice when absent.
    pub model: Option<ModelId>,
    /// The system prompt.
    pub system: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools the model may call.
    pub tools: Arc<[ToolSpec]>,
}

/// What a model answers, through the host.
pub type ModelResultStream = BoxStream<'static, Result<ModelEvent, ApiError>>;

/// Models, as a run may use them.
#[async_trait]
pub trait ModelsApi: Send + Sync + 'static {
    /// Sends a request. What is sent is recorded before it is sent.
    async fn stream(&self, call: ModelCall) -> Result<ModelResultStream, ApiError>;

    /// Sends a request and waits for the whole answer.
    async fn invoke(&self, call: ModelCall) -> Result<ModelOutput, ApiError> {
        collect_api_output(self.stream(call).await?).await
    }

    /// How many tokens a request has. It says whether they were counted or reckoned.
    async fn count_tokens(&self, call: ModelCall) -> Result<TokenCount, ApiError> {
        Ok(TokenCount::estimate(&call))
    }

    /// Has a model order texts by how well they fit a question, the best first. Refused as not found where nobody can.
    async fn rerank(&self, call: RerankCall) -> Result<Vec<RerankScore>, ApiError> {
        let _ = call;
        Err(rerank_unsupported())
    }

    /// The model a call goes to when it names none. Nothing is asked for it, so it is no call.
    fn default_model(&self) -> ModelId;
}

/// Tools, as a run may use them.
#[async_trait]
pub trait ToolsApi: Send + Sync + 'static {
    /// The tools this run may call.
    async fn list(&self) -> Result<Arc<[ToolSpec]>, ApiError>;

    /// The description and schema of a tool, by its own name or by the one a model was given.
    async fn detail(&self, name: &str) -> Result<ToolSpec, ApiError>;

    /// Makes the calls of one step and gives their outputs in the same order. The calls are recorded before the first
    /// is made, each result when it is there. A tool that fails, or is not allowed, answers with an error output. Steps
    /// follow one another: a second one waits for the first.
    async fn call(&self, calls: Vec<ToolCall>) -> Result<Vec<ToolOutput>, ApiError>;

    /// Runs a comma command. It is recorded as a `command` event and takes no message in.
    async fn command(&self, call: CommandCall) -> Result<ToolOutput, ApiError>;

    /// Records a comma command that cannot be run, with the line as it was typed and why.
    async fn refuse_command(&self, raw: &str, reason: &str) -> Result<(), ApiError>;
}

/// A comma command.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandCall {
    /// The line as it was typed, without the comma.
    pub raw: String,
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: JsonObject,
}

/// What is known about a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeInfo {
    /// Its name.
    pub name: TapeName,
    /// Its newest entry.
    pub head: EntryId,
    /// How many anchors it has.
    pub anchors: u64,
    /// Its newest anchor.
    pub last_anchor: Option<String>,
    /// How many entries follow the newest anchor.
    pub entries_since_last_anchor: u64,
}

/// The session's tape, as a run may use it.
#[async_trait]
pub trait TapeApi: Send + Sync + 'static {
    /// The messages a model would read now, the message this run serves included.
    async fn view(&self) -> Result<Vec<ChatMessage>, ApiError>;

    /// Writes an anchor. Inside a step it takes effect after the step's results are recorded.
    async fn handoff(&self, name: &str, state: JsonObject) -> Result<(), ApiError>;

    /// Writes an event that no view shows. The names of the events that the host itself writes are refused.
    async fn note(&self, name: &str, data: Value) -> Result<(), ApiError>;

    /// Puts a message of the user's side on the tape, such as the prompt of a further step.
    async fn say(&self, content: Content) -> Result<(), ApiError>;

    /// Begins a new generation of the tape; with `archive` the old one is kept for good. Only a command may, while no other
    /// message of the session waits: a run would lose the message it serves.
    async fn reset(&self, archive: bool) -> Result<(), ApiError>;

    /// What is known about the tape.
    async fn info(&self) -> Result<TapeInfo, ApiError>;

    /// The anchors, newest first, at most 200.
    async fn anchors(&self, limit: usize) -> Result<Vec<Entry>, ApiError>;

    /// Entries with this text, newest first, at most 200.
    async fn search(&self, text: &str, limit: usize) -> Result<Vec<Entry>, ApiError>;
}

/// The host's prompts, as a run may ask for them.
#[async_trait]
pub trait PromptApi: Send + Sync + 'static {
    /// The system prompt, from the `system_prompt` hooks.
    async fn system(&self) -> Result<String, ApiError>;

    /// What to tell the model before a further step, from the `continue_prompt` hooks; usually nothing.
    async fn continuation(&self, step: u32) -> Result<Option<Content>, ApiError>;
}

/// Messages that came while the run goes on and are meant for it.
#[async_trait]
pub trait SteeringApi: Send + Sync + 'static {
    /// Takes in what has come since the last time, in order: each message stands on the tape from then on, and its
    /// event is folded into this run. To be asked between two steps.
    async fn take(&self) -> Result<Vec<Content>, ApiError>;
}

/// What is kept for the session, over its turns.
#[async_trait]
pub trait SessionApi: Send + Sync + 'static {
    /// The model that was chosen for the session, if one was.
    async fn model(&self) -> Result<Option<ModelId>, ApiError>;

    /// Chooses the model of the session, from the next call on; without one, it is the host's own choice again. Refused
    /// when the run may not use it or nobody provides it, and unless a person asks for it, with a command.
    async fn choose_model(&self, model: Option<ModelId>) -> Result<(), ApiError>;
}
