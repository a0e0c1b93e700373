//! What runners keep in the host, as whoever runs it sees and changes it.
//!
//! Runners write their [spaces](Space) through the run API. [`Spaces`] is the other way in: it shows them, changes them,
//! and clears what nobody uses any more (see [`unused`]). What it changes stands on the workspace's system tape.

mod admin;
mod error;
mod namespace;
mod stored_content;
mod unused_namespaces;

pub use admin::{NamespaceSummary, StateAdmin};
pub use error::StateAdminError;
pub use namespace::RunnerNamespace;
pub(crate) use stored_content::ContentLocation;
pub use unused_namespaces::{NamespaceUsers, UnusedReason, namespace_limits, unused_reason};

/// How long a key may be.
pub(crate) const MAX_STATE_KEY_LEN: usize = 256;
