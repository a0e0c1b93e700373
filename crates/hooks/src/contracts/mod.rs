//! The things a plugin can bring, and the one door through which a runner reaches the host.

mod api_method;
mod artifacts;
mod channel;
mod child_runs;
mod cli_command;
mod history;
mod knowledge;
mod model;
mod model_operations;
mod platform;
mod run_api;
mod runner;
mod stored_state;
mod tool;

pub use api_method::ApiMethod;
pub use artifacts::{Artifact, ArtifactPart, ArtifactsApi, NewArtifact};
pub use channel::{
    Channel, ChannelCapabilities, ChannelError, ChannelErrorKind, ChannelReply, DebounceOptions, Gateway, IntakeError,
    IntakeOptions, PlatformAction,
};
pub use child_runs::{ChildRunCall, ChildRunOutcome, RunsApi};
pub use cli_command::CliCommand;
pub use history::{CursorPage, EventRecord, EventsApi, HistoryApi, HistoryMessage, PageRequest};
pub use knowledge::{KnowledgeError, KnowledgeQuery, KnowledgeSource, RetrieveCall, RetrievedPage, RetrievedPassages};
pub use model::{
    ModelError, ModelErrorKind, ModelEvent, ModelProvider, ModelStream, RequestBody, RequestBodyText, RetryObserver,
    ToolList, collect_output,
};
pub use model_operations::{RerankCall, RerankScore, TokenCount, tool_spec_bytes};
pub use platform::{KnowledgeApi, KnowledgeBase, KnowledgePassage, PlatformApi};
pub use run_api::{
    CommandCall, ModelCall, ModelResultStream, ModelsApi, PromptApi, RunApi, SessionApi, SteeringApi, TapeApi,
    TapeInfo, ToolsApi,
};
pub use runner::{ResultStream, Runner};
pub use stored_state::{StateApi, StateEntry, StorageApi, StorageEntry};
pub use tool::{FnTool, Tool, ToolContext, ToolEffect, ToolError};
