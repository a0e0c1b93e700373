//! Kinds of entries.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of an entry. Unknown kinds are preserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EntryKind {
    /// Chat message.
    Message,
    /// System prompt.
    System,
    /// Tool calls of one step.
    ToolCall,
    /// Results of tool calls.
    ToolResult,
    /// Named event with data, not shown by views.
    Event,
    /// Point from which the context is reconstructed.
    Anchor,
    /// Error in a stage of the turn.
    Error,
    /// Kind of another system.
    Other(String),
}

impl EntryKind {
    /// Name of the kind, as on the tape.
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
