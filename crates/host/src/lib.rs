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
//! - [`Folder`] makes a knowledge base of the files of a folder.
//! - [`keeping`] shows and changes what runners keep in the host.
//! - [`builtin`] is the host's part of the built-in plugin.
//!
//! It knows channels, models and runners only through their contracts.

mod actions;
mod api;
pub mod bindings;
pub mod builtin;
mod clock;
mod delivery;
mod engine;
mod error;
mod host;
mod intake;
pub mod keeping;
mod knowledge;
mod nesting;
mod queries;
pub mod recovery;
mod results;
pub mod runs;
mod services;
mod sessions;
mod settings;
#[cfg(test)]
mod test_host;
mod turns;

pub use api::ApiLimits;
pub use bindings::{BindingError, Bindings, default_binding};
pub use capstan_hooks::Secrets;
pub use clock::Clock;
pub use error::HostError;
pub use host::{Host, Served};
pub use intake::gateway::raw_with_acceptance;
pub use knowledge::{Folder, FolderLimits};
pub use queries::QueryError;
pub use services::{SYSTEM, tapes};
pub use sessions::lease::Owner;
pub use sessions::owners::{Abandoned, Owners};
pub use settings::{Limits, ResultLimits, Settings, Workspace};
