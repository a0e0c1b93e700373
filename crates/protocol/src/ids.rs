//! Ids as newtypes, so that a session id cannot be passed in place of a run id. Ids are cloned often, so clones share
//! their text.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Invalid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {reason}")]
pub struct IdError {
    /// Kind of id.
    pub what: &'static str,
    /// Rejected text.
    pub value: String,
    /// Reason of the rejection.
    pub reason: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Id with this text.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into().into())
            }

            /// Text of the id.
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
    /// Id of a session: the key of its tape, actor, lease and state.
    SessionId
);
text_id!(
    /// Id of a run, one execution of a runner.
    RunId
);
text_id!(
    /// Id of an event, unique within its source and bot.
    EventId
);
text_id!(
    /// Id of a binding.
    BindingId
);
text_id!(
    /// Id of a runner, such as `builtin:agent` or `plugin:author/name/runner`.
    RunnerId
);
text_id!(
    /// Name of a channel, such as `cli`.
    ChannelName
);
text_id!(
    /// Id of a chat within a channel.
    ChatId
);
text_id!(
    /// Name under which a plugin is registered.
    PluginName
);
text_id!(
    /// Id of a workspace: its resolved path at first use.
    WorkspaceId
);
text_id!(
    /// Content hash of a blob, in hexadecimal.
    BlobHash
);

text_id!(
    /// Id of an artifact: the run that created it and a number within the run.
    ArtifactId
);
text_id!(
    /// Id of a platform action: the run that requested it and a number within the run.
    ActionId
);

/// New id that sorts by time, also if the clock is set to a time before 1970.
pub fn time_ordered_uuid() -> uuid::Uuid {
    uuid_at(SystemTime::now())
}

fn uuid_at(time: SystemTime) -> uuid::Uuid {
    if time >= SystemTime::UNIX_EPOCH {
        return uuid::Uuid::now_v7();
    }
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 0, 0))
}

impl RunId {
    /// New run id; ids sort by time.
    pub fn generate() -> Self {
        Self::new(format!("run-{}", time_ordered_uuid()))
    }
}

impl EventId {
    /// New event id, for sources without ids of their own.
    pub fn generate() -> Self {
        Self::new(format!("evt-{}", time_ordered_uuid()))
    }
}

/// Position of an entry on its tape. Ids increase and are never reused.
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

/// Beginning of the id of an attachment; the ids of other artifacts begin with that of a run.
const ATTACHMENT_ID_PREFIX: &str = "event-";

impl ArtifactId {
    /// Id of an attachment: the entry that records its event, and the position of the part, from 0.
    ///
    /// ```
    /// use capstan_protocol::{ArtifactId, EntryId};
    ///
    /// let id = ArtifactId::of_attachment(EntryId(12), 0);
    /// assert_eq!((id.as_str(), id.attachment_entry()), ("event-12.1", Some(EntryId(12))));
    /// assert_eq!(ArtifactId::new("run-0199.1").attachment_entry(), None);
    /// ```
    pub fn of_attachment(entry: EntryId, position: usize) -> Self {
        Self::new(format!("{ATTACHMENT_ID_PREFIX}{entry}.{}", position.saturating_add(1)))
    }

    /// Entry that records the event of an attachment; `None` for every other artifact.
    pub fn attachment_entry(&self) -> Option<EntryId> {
        let (entry, _) = self.as_str().strip_prefix(ATTACHMENT_ID_PREFIX)?.split_once('.')?;
        entry.parse().ok().map(EntryId)
    }
}

/// Name of a tape. Validated on construction, because it may become a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct TapeName(Arc<str>);

impl TapeName {
    const MAX_TAPE_NAME_LEN: usize = 200;

    /// Validates a tape name: no path separators, no control characters, no leading dot, 1 to 200 bytes.
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

    /// Text of the name.
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
    use std::time::{Duration, SystemTime};

    use super::{TapeName, uuid_at};

    #[test]
    fn x07_id_of_a_clock_before_1970_is_unique() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_ne!(uuid_at(before), uuid_at(before));
        assert_eq!(uuid_at(before).get_version_num(), 7);
    }

    #[test]
    fn tape_name_cannot_leave_its_directory() {
        for invalid in ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", ".hidden", &"x".repeat(201)] {
            assert!(TapeName::parse(invalid).is_err(), "{invalid:?}");
        }
        assert!(TapeName::parse("0f3a__9c1d").is_ok());
        assert!(serde_json::from_str::<TapeName>("\"../x\"").is_err());
    }
}
