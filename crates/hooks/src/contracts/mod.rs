//! The things a plugin can bring, and the one door through which a runner reaches the host.

mod api;
mod channel;
mod command;
mod model;
mod runner;
mod tool;

pub use api::{CommandCall, ModelCall, ModelResults, ModelsApi, PromptApi, RunApi, TapeApi, TapeInfo, ToolsApi};
pub use channel::{Channel, ChannelCapabilities, ChannelError, Gateway};
pub use command::CliCommand;
pub use model::{ModelError, ModelErrorKind, ModelEvent, ModelProvider, ModelStream, collect};
pub use runner::{ResultStream, Runner};
pub use tool::{FnTool, Tool, ToolContext, ToolError};
