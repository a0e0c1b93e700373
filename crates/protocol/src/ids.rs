//! Ids as newtypes, so that a session id is never passed where a run id belongs. Each is in many places at once, so all of
//! them share its text.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value that cannot serve as an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {reason}")]
pub struct IdError {
    /// Which kind of id was meant.
    pub what: &'static str,
    /// The text that was refused.
    pub value: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Names the thing by this text.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into().into())
            }

            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// A conversation: the key of its tape, its lane, its lease and its state.
    SessionId
);
text_id!(
    /// One execution of a runner.
    RunId
);
text_id!(
    /// Something that happened, unique within its source and bot.
    EventId
);
text_id!(
    /// Which runner serves which events, and with what.
    BindingId
);
text_id!(
    /// A runner, such as `builtin:agent` or `plugin:author/name/runner`.
    RunnerId
);
text_id!(
    /// A channel, such as `cli`.
    ChannelName
);
text_id!(
    /// A chat within a channel.
    ChatId
);
text_id!(
    /// A plugin, by the name it registered under.
    PluginName
);
text_id!(
    /// A workspace: its resolved path when it was first seen.
    WorkspaceId
);
text_id!(
    /// The content hash of a blob, in hex.
    BlobHash
);

text_id!(
    /// An artifact, by the run that made it and its number there.
    ArtifactId
);
text_id!(
    /// An action on a platform, by the run that asked for it and its number there.
    ActionId
);

impl RunId {
    /// A new run id, ordered by time.
    pub fn generate() -> Self {
        Self::new(format!("run-{}", uuid::Uuid::now_v7()))
    }
}

impl EventId {
    /// A new event id, for sources that have none of their own.
    pub fn generate() -> Self {
        Self::new(format!("evt-{}", uuid::Uuid::now_v7()))
    }
}

/// The position of an entry on its tape: increasing, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EntryId(pub u64);

impl EntryId {
    /// The id after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a tape. It may become a file name, so it is checked where it is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct TapeName(Arc<str>);

impl TapeName {
    const MAX_TAPE_NAME_LEN: usize = 200;

    /// Checks that the text can name a tape: no separators, no control characters, no leading dot, at most 200 bytes.
    pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
        let value = text.into();
        let reason = if value.is_empty() {
            "it is empty"
        } else if value.len() > Self::MAX_TAPE_NAME_LEN {
            "it is longer than 200 bytes"
        } else if value.starts_with('.') {
            "it starts with a dot"
        } else if value.contains(['/', '\\']) || value.chars().any(char::is_control) {
            "it contains a path separator or a control character"
        } else {
            return Ok(Self(value.into()));
        };
        Err(IdError { what: "tape name", value, reason })
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TapeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TapeName {
    type Error = IdError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        Self::parse(value)
    }
}

#[cfg(test)]
mod tests {
    use super::TapeName;

    #[test]
    fn a_tape_name_cannot_leave_its_directory() {
        for bad in ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", ".hidden", &"x".repeat(201)] {
            assert!(TapeName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(TapeName::parse("0f3a__9c1d").is_ok());
        assert!(serde_json::from_str::<TapeName>("\"../x\"").is_err());
    }
}
