//! Errors of state administration.

use capstan_protocol::CodedError;
use capstan_tape::StoreError;

/// Errors of state administration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum StateAdminError {
    /// No namespace has this id.
    #[error("there is no namespace {wanted:?} with stored state")]
    #[code(StateUnknown)]
    UnknownNamespace {
        /// The requested id.
        wanted: String,
    },
    /// The prefix of a namespace id is too short.
    #[error("{wanted:?} is too short: give at least {min_len} characters of the id of a namespace")]
    #[code(StateUnknown)]
    ShortNamespaceId {
        /// The requested id.
        wanted: String,
        /// Minimum length of a prefix.
        min_len: usize,
    },
    /// Several namespaces have this prefix.
    #[error("{wanted:?} matches {count} namespaces")]
    #[code(StateUnknown)]
    Ambiguous {
        /// The requested prefix.
        wanted: String,
        /// Number of matching namespaces.
        count: usize,
    },
    /// The namespace has no such key.
    #[error("there is no key {key:?} in namespace {namespace}")]
    #[code(StateUnknown)]
    UnknownKey {
        /// Id of the namespace.
        namespace: String,
        /// The key.
        key: String,
    },
    /// The key or value is not valid.
    #[error("the value cannot be stored: {detail}")]
    #[code(StateInvalid)]
    Invalid {
        /// The rule it violates.
        detail: String,
    },
    /// A limit is exceeded.
    #[error("the value is too large: {detail}")]
    #[code(StateTooLarge)]
    TooLarge {
        /// The exceeded limit.
        detail: String,
    },
    /// The store rejected the change or failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
}
