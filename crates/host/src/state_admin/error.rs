//! Why something was not kept, or not found.

use capstan_tape::StoreError;

/// Why something was not kept, or not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateAdminError {
    /// There is no such space.
    #[error("nothing is kept in a space {wanted:?}")]
    UnknownNamespace {
        /// What was asked for.
        wanted: String,
    },
    /// Several spaces are meant.
    #[error("{wanted:?} could be {count} spaces")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many.
        count: usize,
    },
    /// There is no such key.
    #[error("nothing is kept under {key:?} in space {space}")]
    UnknownKey {
        /// The space.
        space: String,
        /// The key.
        key: String,
    },
    /// It makes no sense.
    #[error("it cannot be kept: {detail}")]
    Invalid {
        /// What is wrong.
        detail: String,
    },
    /// It is more than may be kept.
    #[error("it is too large: {detail}")]
    TooLarge {
        /// Which limit.
        detail: String,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateAdminError {
    /// A stable code, which has a page in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownNamespace { .. } | Self::Ambiguous { .. } | Self::UnknownKey { .. } => "state-unknown",
            Self::Invalid { .. } => "state-invalid",
            Self::TooLarge { .. } => "state-too-large",
            Self::Store(error) => error.code(),
        }
    }
}
