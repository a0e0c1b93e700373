//! What an entry is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an entry. Kinds that are not known here are kept as they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EntryKind {
    /// Something said, in the form of a chat message.
    Message,
    /// A system prompt.
    System,
    /// The tool calls of one step.
    ToolCall,
    /// Results of tool calls.
    ToolResult,
    /// Something that happened.
    Event,
    /// A point from which context is reconstructed.
    Anchor,
    /// Something that went wrong.
    Error,
    /// A kind of another system.
    Other(String),
}

impl EntryKind {
    /// The kind as it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Message => "message",
            Self::System => "system",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Event => "event",
            Self::Anchor => "anchor",
            Self::Error => "error",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for EntryKind {
    fn from(name: &str) -> Self {
        match name {
            "message" => Self::Message,
            "system" => Self::System,
            "tool_call" => Self::ToolCall,
            "tool_result" => Self::ToolResult,
            "event" => Self::Event,
            "anchor" => Self::Anchor,
            "error" => Self::Error,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl From<String> for EntryKind {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<EntryKind> for String {
    fn from(kind: EntryKind) -> Self {
        kind.as_str().to_owned()
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
