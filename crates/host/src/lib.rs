//! Host: the composition root.
//!
//! [`Host::start`] asks the start-up hooks for channels, runners, models and tools, and wires the components of
//! [`capstan_sessions`], [`capstan_runs`] and [`capstan_delivery`]. A running [`Host`] serves events, runs
//! channels, and stops in order. It also accepts LangBot queries ([`Host::map_langbot_query`]).
//!
//! [`builtin`] registers the default stages of a turn. The logic of sessions, runs and delivery is in their crates.
//! `testing` (feature `test-util`) builds hosts for tests.

pub mod builtin;
mod channel_listeners;
mod host;
mod langbot;
mod options;
mod tapes;
#[cfg(feature = "test-util")]
#[expect(clippy::missing_panics_doc, reason = "a function of a test fixture panics on any failure")]
pub mod testing;

pub use capstan_delivery::{CALLER_DISCONNECTED_REASON, drop_request, request_revision, resend_request};
pub use capstan_hooks::SecretMasker;
pub use capstan_runs::{
    ApiLimits, RefusedRunner, ResultLimits, RunLimits, RunnerRegistry, WorkspaceDir, artifact_admin, model_call_log,
    model_provider_names, state_admin, tool_names,
};
pub use capstan_sessions::{
    EventResolver, HostError, IncomingEvent, LeaseOwner, OrphanedWork, OverdueRun, ProcessLiveness, ResolvedEvent,
    SYSTEM_SESSION, ServedEvent, conservation,
};
pub use host::Host;
pub use langbot::LangBotQueryError;
pub use options::{HostOptions, TrustedChannel};
pub use tapes::open_tapes;
