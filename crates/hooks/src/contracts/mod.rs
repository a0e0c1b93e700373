//! The things a plugin can bring, and the one door through which a runner reaches the host.

mod api;
mod channel;
mod command;
mod model;
mod runner;
mod tool;

pub use api::{
    CommandCall, ModelCall, ModelResults, ModelsApi, PromptApi, RunApi, SteeringApi, TapeApi, TapeInfo, ToolsApi,
};
pub use channel::{Answer, Channel, ChannelCapabilities, ChannelError, Debounce, Fate, Gateway, Intake, Refusal};
pub use command::CliCommand;
pub use model::{ModelError, ModelErrorKind, ModelEvent, ModelProvider, ModelStream, collect};
pub use runner::{ResultStream, Runner};
pub use tool::{FnTool, Tool, ToolContext, ToolError, Touches};
