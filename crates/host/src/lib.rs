//! The host: what stands around a turn.
//!
//! - [`Host`] takes an event all the way: acceptance, turn, outcome, delivery.
//! - The gateway (`intake`) makes an event durable before its source is told so; a lease (`sessions`) keeps a session to
//!   one turn at a time.
//! - What pipelines of older hosts ask (`queries`) comes in as an event with a binding of its own.
//! - The orchestrator ([`runs`]) is the only way to run: it resolves the runner by the [`bindings`], computes the
//!   [grant](runs::grant), opens the run in the ledger, and lets the model hooks or the binding's runner work.
//! - The run API (`api`) is the only door a runner has, and checks every call against the run's grant.
//! - What a run wants done on the platform (`actions`) is done at most once, and only where everybody allows it.
//! - What a runner yields (`results`) and what a turn writes (`turns`) is committed with the turn's outcome, and goes out
//!   from there (`delivery`). What a crash cut off is taken up by [`recovery`].
//! - [`keeping`] shows and changes what runners keep in the host.
//! - [`builtin`] is the host's part of the built-in plugin.
//!
//! It knows channels, models and runners only through their contracts.

mod actions;
mod api;
pub mod builtin;
mod delivery;
mod engine;
mod error;
mod host;
mod intake;
mod langbot;
mod nesting;
mod options;
pub mod recovery;
mod results;
pub mod runs;
mod services;
mod sessions;
pub mod state_admin;
#[cfg(test)]
mod test_host;
mod turns;

pub use api::ApiLimits;
pub use capstan_hooks::SecretMasker;
pub use error::HostError;
pub use host::{Host, IncomingEvent, ServedEvent};
pub use langbot::LangBotQueryError;
pub use options::{HostOptions, ResultLimits, RunLimits, WorkspaceDir};
pub use services::{SYSTEM_SESSION, open_tapes};
pub use sessions::lease::LeaseOwner;
pub use sessions::process_liveness::{OrphanedWork, ProcessLiveness};
