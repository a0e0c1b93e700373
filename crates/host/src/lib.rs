//! The host: what stands around a turn.
//!
//! - [`Host`] takes an event all the way: acceptance, turn, outcome, delivery.
//! - The gateway makes an event durable before its source is told so; a lease keeps a session to one turn at a time.
//! - The orchestrator is the only way to run: it resolves the runner, computes the [`grant`], opens the run in the
//!   ledger, lets the model hooks or the binding's runner work, and journals what they do.
//! - The run API (`api`) is the only door a runner has, and checks every call against the run's grant.
//! - [`builtin`] is the host's part of the built-in plugin.
//!
//! It knows channels, models and runners only through their contracts.

mod api;
mod attending;
mod backoff;
pub mod bindings;
mod budget;
pub mod builtin;
pub mod calls;
mod cancelling;
mod chats;
mod child;
mod clock;
pub mod conservation;
mod delays;
mod delivery;
mod ending;
mod engine;
mod error;
mod gateway;
pub mod grant;
mod host;
mod item;
mod journal;
mod lane;
mod lease;
mod listening;
mod notices;
mod offered;
mod orchestrator;
mod order;
mod outbox;
mod overheard;
mod owners;
mod parcel;
mod precedence;
mod recovery;
mod reported;
mod results;
mod run;
mod secrets;
mod services;
mod sessions;
mod settings;
mod spill;
mod staging;
mod stand_in;
mod state;
mod steering;
#[cfg(test)]
mod test_host;

pub use api::ApiLimits;
pub use bindings::{BindingError, Bindings, default_binding};
pub use clock::Clock;
pub use error::HostError;
pub use host::{Host, Served};
pub use lease::Owner;
pub use owners::{Abandoned, Owners};
pub use secrets::Secrets;
pub use services::{SYSTEM, tapes};
pub use settings::{Limits, ResultLimits, Settings, Workspace};
