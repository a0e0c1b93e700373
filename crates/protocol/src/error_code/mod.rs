//! Stable error codes and the errors that carry them.
//!
//! [`ErrorCode`] is the one list of the codes of Capstan; [`FailureCode`] adds the codes that plugins bring over the
//! wire. Error enums name the code of each variant with the derive macro [`CodedError`](macro@CodedError):
//!
//! ```
//! use capstan_protocol::{CodedError, ErrorCode, ExitClass};
//!
//! #[derive(Debug, thiserror::Error, CodedError)]
//! enum LibraryError {
//!     #[error("there is no book {0:?}")]
//!     #[code(TapeUnknown)]
//!     UnknownBook(String),
//!     #[error("the library is closed")]
//!     #[code(StoreBusy, exit = Failed)]
//!     Closed,
//! }
//!
//! assert_eq!(LibraryError::UnknownBook("Emma".to_owned()).code(), ErrorCode::TapeUnknown);
//! assert_eq!(LibraryError::Closed.exit_class(), ExitClass::Failed);
//! ```

mod failure_code;
mod table;

use std::fmt;
use std::process::ExitCode;

pub use capstan_derive::CodedError;
use serde::{Serialize, Serializer};

pub use self::failure_code::FailureCode;
pub use self::table::ErrorCode;

/// Row of the table of codes.
struct CodeEntry {
    id: &'static str,
    meaning: &'static str,
    hint: &'static str,
    exit: ExitClass,
    owner: CodeOwner,
    page: &'static str,
}

/// Exit status of a command that fails with a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitClass {
    /// The turn or the operation failed, and the failure is recorded.
    Failed,
    /// The request is invalid, and nothing was done.
    Usage,
    /// The configuration is invalid, and nothing was done.
    Config,
    /// The store refused or failed.
    Store,
    /// The run was cancelled.
    Cancelled,
    /// The error is reported to its caller, and the process continues.
    Continue,
}

impl ExitClass {
    /// Exit status of the process, for a class that ends it.
    pub const fn status(self) -> Option<u8> {
        match self {
            Self::Failed => Some(1),
            Self::Usage => Some(2),
            Self::Config => Some(3),
            Self::Store => Some(4),
            Self::Cancelled => Some(130),
            Self::Continue => None,
        }
    }
}

impl From<ExitClass> for ExitCode {
    fn from(class: ExitClass) -> Self {
        class.status().map_or(Self::FAILURE, Self::from)
    }
}

/// Components that may report a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOwner {
    /// Only the store: a failure of the store, whose data may need attention.
    Store,
    /// Only the host.
    Host,
    /// The host, and runners as the reason of a failed run.
    Shared,
}

impl ErrorCode {
    /// Stable id, as it is printed, recorded and sent (`store-busy`).
    pub const fn id(self) -> &'static str {
        self.entry().id
    }

    /// Meaning in one sentence, with which the page begins.
    pub fn meaning(self) -> &'static str {
        self.entry().meaning.trim_start()
    }

    /// Returns true for a failure of a model call, whose message may quote the provider.
    pub fn is_model_failure(self) -> bool {
        matches!(
            self,
            Self::ModelBroken
                | Self::ModelContextOverflow
                | Self::ModelRateLimited
                | Self::ModelRejected
                | Self::ModelUnauthorized
                | Self::ModelUnknown
                | Self::ModelUnreachable
        )
    }

    /// Advice to the user, in lower case and without a final period.
    pub const fn hint(self) -> &'static str {
        self.entry().hint
    }

    /// Exit class of a command that fails with this code, unless the error says otherwise.
    pub const fn exit_class(self) -> ExitClass {
        self.entry().exit
    }

    /// Component that may report the code.
    pub const fn owner(self) -> CodeOwner {
        self.entry().owner
    }

    /// Path of the page that documents the code, from the root of the repository.
    pub const fn page(self) -> &'static str {
        self.entry().page
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl PartialEq<str> for ErrorCode {
    fn eq(&self, id: &str) -> bool {
        self.id() == id
    }
}

impl PartialEq<&str> for ErrorCode {
    fn eq(&self, id: &&str) -> bool {
        self.id() == *id
    }
}

/// An error with a stable code, implemented with the derive macro of the same name.
pub trait CodedError {
    /// [`ErrorCode`], or [`FailureCode`] for an error that may repeat the code of a plugin.
    type Code: Into<FailureCode>;

    /// Stable code of this error.
    fn code(&self) -> Self::Code;

    /// Exit class of a command that fails with this error.
    fn exit_class(&self) -> ExitClass {
        self.code().into().exit_class()
    }

    /// Message of a command that fails with this error.
    fn message(&self) -> String
    where
        Self: fmt::Display,
    {
        self.to_string()
    }

    /// Advice that replaces the hint of the code.
    fn hint(&self) -> Option<&'static str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, ExitClass, FailureCode};

    #[test]
    fn codes_are_sorted_and_their_ids_are_unique() {
        let ids: Vec<&str> = ErrorCode::ALL_CODES.iter().map(|code| code.id()).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(ids, sorted);
        for code in ErrorCode::ALL_CODES {
            assert_eq!(ErrorCode::from_id(code.id()), Some(*code));
            let name: String = code.id().split('-').map(capitalize).collect();
            assert_eq!(format!("{code:?}"), name, "a variant is named after its id");
        }
    }

    fn capitalize(word: &str) -> String {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    }

    #[test]
    fn hints_and_meanings_have_one_form() {
        for code in ErrorCode::ALL_CODES {
            let (meaning, hint) = (code.meaning(), code.hint());
            assert!(meaning.ends_with('.') && !meaning.trim_end_matches('.').contains(". "), "{code}: {meaning}");
            assert!(!hint.is_empty() && !hint.ends_with('.'), "{code}: {hint}");
            assert!(!hint.starts_with(|first: char| first.is_uppercase()), "{code}: {hint}");
        }
    }

    #[test]
    fn x03_exit_statuses_are_stable() {
        use ExitClass::{Cancelled, Config, Continue, Failed, Store, Usage};
        let statuses = [Failed, Usage, Config, Store, Cancelled, Continue].map(ExitClass::status);
        assert_eq!(statuses, [Some(1), Some(2), Some(3), Some(4), Some(130), None]);
    }

    #[test]
    fn a_failure_code_is_written_as_its_id_and_keeps_unknown_codes() {
        for id in ["store-busy", "club-closed"] {
            let code: FailureCode = serde_json::from_value(id.into()).unwrap();
            assert_eq!(code, id);
            assert_eq!(serde_json::to_value(&code).unwrap(), id);
        }
        assert_eq!(FailureCode::from("store-busy"), FailureCode::Known(ErrorCode::StoreBusy));
        assert_eq!(FailureCode::from("club-closed"), FailureCode::Other("club-closed".to_owned()));
    }
}
