//! Codes of failures that cross the boundary of the host.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{CodeOwner, ErrorCode, ExitClass};

/// Code of a failure as it is sent and recorded: one of the [`ErrorCode`]s, or a code that a plugin brings.
///
/// ```
/// use capstan_protocol::{ErrorCode, FailureCode};
///
/// assert_eq!(FailureCode::from("run-timeout"), FailureCode::Known(ErrorCode::RunTimeout));
/// assert_eq!(FailureCode::from("quota-exceeded").as_str(), "quota-exceeded");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FailureCode {
    /// A code of Capstan.
    Known(ErrorCode),
    /// A code of a plugin.
    Other(String),
}

impl FailureCode {
    /// Id as it is sent and recorded.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.id(),
            Self::Other(id) => id,
        }
    }

    /// Advice to the user; empty for a code of a plugin.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Known(code) => code.hint(),
            Self::Other(_) => "",
        }
    }

    /// Message for a chat in place of the text of a model provider; `None` for all other failures, whose messages are
    /// written by Capstan or a plugin.
    pub fn public_message(&self) -> Option<String> {
        match self {
            Self::Known(code) if code.is_model_failure() => {
                Some(format!("{} ({})", lower_first(code.meaning().trim_end_matches('.')), code.id()))
            }
            Self::Known(_) | Self::Other(_) => None,
        }
    }

    /// Exit class of a command that fails with this code.
    pub fn exit_class(&self) -> ExitClass {
        match self {
            Self::Known(code) => code.exit_class(),
            Self::Other(_) => ExitClass::Failed,
        }
    }

    /// Component that may report the code.
    pub fn owner(&self) -> CodeOwner {
        match self {
            Self::Known(code) => code.owner(),
            Self::Other(_) => CodeOwner::Shared,
        }
    }

    /// Returns true if the code reports a failure of the host or its store, which a runner cannot claim.
    pub fn is_reserved(&self) -> bool {
        self.owner() != CodeOwner::Shared
    }
}

impl From<ErrorCode> for FailureCode {
    fn from(code: ErrorCode) -> Self {
        Self::Known(code)
    }
}

impl From<String> for FailureCode {
    fn from(id: String) -> Self {
        ErrorCode::from_id(&id).map_or(Self::Other(id), Self::Known)
    }
}

impl From<&str> for FailureCode {
    fn from(id: &str) -> Self {
        ErrorCode::from_id(id).map_or_else(|| Self::Other(id.to_owned()), Self::Known)
    }
}

impl From<FailureCode> for String {
    fn from(code: FailureCode) -> Self {
        match code {
            FailureCode::Known(code) => code.id().to_owned(),
            FailureCode::Other(id) => id,
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<ErrorCode> for FailureCode {
    fn eq(&self, code: &ErrorCode) -> bool {
        matches!(self, Self::Known(known) if known == code)
    }
}

impl PartialEq<str> for FailureCode {
    fn eq(&self, id: &str) -> bool {
        self.as_str() == id
    }
}

impl PartialEq<&str> for FailureCode {
    fn eq(&self, id: &&str) -> bool {
        self.as_str() == *id
    }
}

impl JsonSchema for FailureCode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Text with its first letter in lower case.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
