//! Data of the events of a run: model calls, commands, handoffs, dispatched messages, the agent's loop.

use capstan_protocol::{
    BlobHash, ChannelName, ChatId, JsonObject, ModelId, OutboundKind, PluginName, ToolName, Usage, truncate_bytes,
};
use serde::{Deserialize, Serialize};

/// Maximum length of a command's name in an error message, in bytes.
const MAX_COMMAND_NAME_BYTES: usize = 80;

/// A request to a model, with hashes in place of content, which is stored as blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCallRecord {
    /// Number of the call within its run, from 1.
    pub call: u32,
    /// Provider of the model.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Hashes of lists that contain the hashes of the first messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<BlobHash>,
    /// Hashes of the following messages.
    pub messages: Vec<BlobHash>,
    /// Hash of the list that contains the hashes of the tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_list: Option<BlobHash>,
    /// Hashes of the tools. Older calls have them here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<BlobHash>,
    /// Hash of the rest of the body. Older calls have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<BlobHash>,
    /// Key of the messages in the body, if it is not `messages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_key: Option<String>,
}

/// End of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallEnd {
    /// Result of the call.
    pub status: ModelCallStatus,
    /// Tokens, as far as the provider reported them.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Model that was called.
    pub model: ModelId,
    /// True if a token limit truncated the reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Number of the last key that was used, starting at 1, for a provider with several keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
}

/// Result of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelCallStatus {
    /// The reply was complete.
    Ok,
    /// The call failed.
    Error,
}

/// Start of a comma command, whose effect is unknown until it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandStart {
    /// Command line as typed.
    pub raw: String,
    /// Name of the tool.
    pub name: ToolName,
}

/// End of a comma command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Command line as typed.
    pub raw: String,
    /// Name of the tool; absent if the command was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ToolName>,
    /// Result of the command.
    pub status: CommandStatus,
    /// Duration; absent if the command was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// Text of the output; `None` if the command was cancelled.
    #[serde(default)]
    pub output: Option<String>,
}

impl CommandEnd {
    /// Error message of a command that failed or was refused. It names the first word of the line.
    pub fn error_message(&self) -> Option<String> {
        let mut name = self.raw.split_whitespace().next().unwrap_or_default().to_owned();
        truncate_bytes(&mut name, MAX_COMMAND_NAME_BYTES, "…");
        (self.status == CommandStatus::Error).then(|| format!("the command {name} failed"))
    }
}

/// Result of a comma command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandStatus {
    /// The command succeeded.
    Ok,
    /// The command failed or was refused.
    Error,
    /// The command was cancelled before it had an output.
    Cancelled,
}

/// An anchor that was written, repeated as an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandoffNotice {
    /// Name of the anchor.
    pub name: String,
    /// State of the anchor.
    #[serde(default)]
    pub state: JsonObject,
}

/// An outbound message that was passed to the plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundDispatch {
    /// Kind of the message.
    #[serde(default)]
    pub kind: OutboundKind,
    /// Channel that sends the message.
    pub channel: ChannelName,
    /// Chat that receives the message.
    pub chat_id: ChatId,
    /// Answer of each plugin.
    #[serde(default)]
    pub sent: Vec<DispatchVote>,
}

/// Answer of one plugin: whether it sent the message, or staged it for delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchVote {
    /// The plugin.
    pub plugin: PluginName,
    /// Its answer.
    pub sent: bool,
}

/// Start of the built-in agent's loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopStart {
    /// Default model.
    pub model: ModelId,
    /// Beginning of the prompt.
    pub prompt: String,
}

/// Start of a step of the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopStepStart {
    /// Number of the step, from 1.
    pub step: u32,
}

/// End of a step of the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopStepEnd {
    /// Number of the step, from 1.
    pub step: u32,
    /// Duration.
    pub elapsed_ms: u64,
    /// Result of the step.
    pub status: LoopStepStatus,
}

/// Result of a step of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopStepStatus {
    /// The agent is done.
    Ok,
    /// Another step follows.
    Continue,
    /// The reply was empty, and the model is asked again.
    Empty,
    /// The context was too long, and an anchor was written.
    AutoHandoff,
    /// The step failed.
    Error,
}
