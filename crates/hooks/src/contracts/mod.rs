//! The things a plugin can bring, and the one door through which a runner reaches the host.

mod api;
mod artifacts;
mod channel;
mod children;
mod command;
mod facts;
mod keeping;
mod knowledge;
mod method;
mod model;
mod model_use;
mod outside;
mod runner;
mod tool;

pub use api::{
    CommandCall, ModelCall, ModelResults, ModelsApi, PromptApi, RunApi, SessionApi, SteeringApi, TapeApi, TapeInfo,
    ToolsApi,
};
pub use artifacts::{Artifact, ArtifactPart, ArtifactsApi, NewArtifact};
pub use channel::{
    Action, Answer, Channel, ChannelCapabilities, ChannelError, Debounce, Fate, Gateway, Intake, Refusal,
};
pub use children::{ChildCall, ChildEnd, RunsApi};
pub use command::CliCommand;
pub use facts::{EventRecord, EventsApi, HistoryApi, Page, PageCall, Said};
pub use keeping::{KeptValue, StateApi, StorageApi, Stored};
pub use knowledge::{KnowledgeError, KnowledgeSource, Question, RetrieveCall, Retrieved, RetrievedPage};
pub use method::ApiMethod;
pub use model::{
    BodyText, ModelError, ModelErrorKind, ModelEvent, ModelProvider, ModelStream, RequestBody, ToolList, Waits, collect,
};
pub use model_use::{Ranked, RerankCall, TokenCount, tool_bytes};
pub use outside::{KnowledgeApi, KnowledgeBase, Passage, PlatformApi};
pub use runner::{ResultStream, Runner};
pub use tool::{FnTool, Tool, ToolContext, ToolError, Touches};
