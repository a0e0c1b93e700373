//! State administration: the stored state of runners, as an operator sees and changes it.
//!
//! Runners write to their [namespaces](RunnerNamespace) through the run API. [`StateAdmin`] lists them, changes them
//! and clears those that are no longer in use (see [`unused_reason`]). Each change is recorded on the workspace's
//! system tape.

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

/// Maximum length of a key, in bytes.
pub(crate) const MAX_STATE_KEY_LEN: usize = 256;
