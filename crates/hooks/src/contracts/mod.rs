//! Contracts of the objects that a plugin provides, and the run API through which a runner reaches the host.

mod api_call;
mod channel;
mod cli_command;
mod cli_context;
mod knowledge;
mod model;
mod run_api;
mod runner;
mod tool;

pub use api_call::{ApiReply, ModelResultStream, RunApiBackend, RunApiMethod};
pub use capstan_protocol::Artifact;
pub use capstan_protocol::run_api::{
    ApiMethod, ApiRequest, ApiResponse, ArtifactPart, ChildRunCall, ChildRunOutcome, ChildSession, CommandCall,
    CursorPage, EventLogItem, EventRecord, ForkSummary, HistoryMessage, KnowledgeBase, KnowledgePassage, MessageEvent,
    ModelCall, ModelDirectory, ModelEvent, NewArtifact, PageRequest, RawPayloadPart, RerankCall, RerankScore,
    RetrieveCall, RetrievedPage, RunSummary, StateEntry, SteeredMessage, StorageEntry, StoredContent, TapeEntry,
    TapeSummary, TokenCount,
};
pub use channel::{
    Channel, ChannelCapabilities, ChannelError, ChannelErrorKind, ChannelReply, DebounceOptions, Gateway, IntakeError,
    IntakeOptions, PlatformAction,
};
pub use cli_command::{CliCommand, CliInvocation};
pub use cli_context::{CliContext, CliEnvironment, CommandHost, CommandReply, HostLauncher};
pub use knowledge::{KnowledgeError, KnowledgeQuery, KnowledgeSource, RetrievedPassages};
pub use model::{
    CallObserver, KeyPosition, ModelError, ModelErrorKind, ModelProvider, ModelStream, RequestBody, RequestBodyText,
    RerankRequest, ToolList, collect_api_output, collect_output,
};
pub use run_api::{
    ArtifactsApi, EventsApi, HistoryApi, KnowledgeApi, ModelsApi, PlatformApi, PromptApi, RunApi, RunsApi, SessionApi,
    StateApi, SteeringApi, StorageApi, TapeApi, ToolsApi, methods,
};
pub use runner::{ResultStream, Runner};
pub use tool::{FnTool, Tool, ToolContext, ToolEffect, ToolError};
