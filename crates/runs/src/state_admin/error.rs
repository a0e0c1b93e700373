//! Why something was not kept, or not found.

use capstan_protocol::CodedError;
use capstan_tape::StoreError;

/// Why something was not kept, or not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum StateAdminError {
    /// There is no such space.
    #[error("nothing is kept in a space {wanted:?}")]
    #[code(StateUnknown)]
    UnknownNamespace {
        /// What was asked for.
        wanted: String,
    },
    /// Several spaces are meant.
    #[error("{wanted:?} could be {count} spaces")]
    #[code(StateUnknown)]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many.
        count: usize,
    },
    /// There is no such key.
    #[error("nothing is kept under {key:?} in space {space}")]
    #[code(StateUnknown)]
    UnknownKey {
        /// The space.
        space: String,
        /// The key.
        key: String,
    },
    /// It makes no sense.
    #[error("it cannot be kept: {detail}")]
    #[code(StateInvalid)]
    Invalid {
        /// What is wrong.
        detail: String,
    },
    /// It is more than may be kept.
    #[error("it is too large: {detail}")]
    #[code(StateTooLarge)]
    TooLarge {
        /// Which limit.
        detail: String,
    },
    /// The store refused or failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
}
